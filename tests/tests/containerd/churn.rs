//! 30 pods of two containers each: run, crash, restart, stop, remove.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use pleg::core::{Cause, LifecycleType, Mode};
use pleg_tests::check::{Announced, cache_is_right};
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::kubelet::{Kubelet, Life};
use pleg_tests::wait::{let_pass, until, until_right};

use crate::{SOON, Subject};

const PODS: u32 = 30;
/// How many pods live at the same time.
const AT_ONCE: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn evented_on_1_7() -> anyhow::Result<()> {
    churn(Version::V1_7, Mode::Evented).await
}

#[tokio::test(flavor = "multi_thread")]
async fn evented_on_2() -> anyhow::Result<()> {
    churn(Version::V2, Mode::Evented).await
}

#[tokio::test(flavor = "multi_thread")]
async fn polling_on_1_7() -> anyhow::Result<()> {
    churn(Version::V1_7, Mode::Polling).await
}

#[tokio::test(flavor = "multi_thread")]
async fn polling_on_2() -> anyhow::Result<()> {
    churn(Version::V2, Mode::Polling).await
}

async fn churn(version: Version, mode: Mode) -> anyhow::Result<()> {
    let Some(daemon) = Daemon::up(version)? else {
        return Ok(());
    };
    let mut subject = Subject::start(&daemon, mode)?;
    subject.pleg.wait_until_synced().await?;
    let kubelet = Kubelet::new(&daemon)?;
    // What polling is to see must stay for two and a half lists.
    let linger = match mode {
        Mode::Polling => Duration::from_millis(2500),
        _ => Duration::ZERO,
    };
    futures::stream::iter(0..PODS)
        .map(|n| life_of_a_pod(&kubelet, n, linger))
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;

    let deeds = kubelet.deeds();
    let mut announced = Announced::default();
    // Everything that was removed is announced as removed; then nothing more comes.
    until(SOON, "all removals are announced", || {
        announced.drain(&mut subject.events);
        let all = deeds
            .iter()
            .filter(|(_, d)| d.removed)
            .all(|(id, _)| announced.has(id, LifecycleType::ContainerRemoved));
        async move { all.then_some(()) }
    })
    .await
    .map_err(|e| anyhow::anyhow!("{e}: {:#?}", announced.missing(&deeds, None)))?;
    // The exit reasons that may arrive late are read after two seconds.
    let_pass(Duration::from_millis(2500)).await;
    until_right(SOON, "the cache equals the listing", || {
        cache_is_right(&subject.pleg, &subject.truth)
    })
    .await?;
    announced.drain(&mut subject.events);

    let log = subject.ear.log();
    let counters = subject.pleg.counters();
    println!(
        "{version:?} {mode:?}: {} ids, sources {:?}",
        deeds.len(),
        announced.sources()
    );
    println!("calls {:?}; {} events heard", log.calls, log.events.len());
    for cause in Cause::ALL {
        let n = counters.inspections_by_cause[cause as usize];
        if n > 0 {
            println!("  inspections because {}: {n}", cause.as_str());
        }
    }
    println!(
        "  lists {}, exit reads {}, contradictions {}, overruled {}, missed {:?}, incomplete {}",
        counters.lists,
        counters.exit_reads,
        counters.contradictions,
        counters.overruled,
        counters.missed,
        counters.events_incomplete
    );

    let heard = (mode == Mode::Evented).then_some(&log);
    let wrong = announced.never_wrong(&deeds);
    assert!(wrong.is_empty(), "{wrong:#?}");
    let missing = announced.missing(&deeds, heard);
    assert!(missing.is_empty(), "{missing:#?}");
    assert_eq!(announced.reborn(), 0, "nothing that was believed was wrong");
    if mode == Mode::Evented {
        calls_are_accounted_for(&subject);
    }
    subject.pleg.shutdown().await;
    daemon.down()
}

/// No unary call beyond the full lists and the reads that the design names.
fn calls_are_accounted_for(subject: &Subject) {
    let calls = subject.ear.log().calls;
    let counters = subject.pleg.counters();
    assert_eq!(calls.full_lists, 2 * counters.lists, "two calls a list");
    let by = |cause: Cause| counters.inspections_by_cause[cause as usize];
    for unasked in [Cause::Waiter, Cause::Relist, Cause::Reinspect, Cause::Retry] {
        assert_eq!(by(unasked), 0, "nobody asked for {}", unasked.as_str());
    }
    assert!(calls.pod_lists == 0 || counters.inspections > 0);
    assert!(calls.statuses == 0 || counters.inspections + counters.exit_reads > 0);
    assert_eq!(
        counters.missed.iter().sum::<u64>(),
        0,
        "no event was missed"
    );
    assert_eq!(calls.subscribes, 1, "one stream for the whole time");
}

/// One pod: two containers run, one crashes and is restarted and crashes at once, then all goes.
async fn life_of_a_pod(kubelet: &Kubelet, n: u32, linger: Duration) -> anyhow::Result<()> {
    let pod = kubelet.run_pod(&format!("pod-{n}")).await?;
    let app = kubelet.create(&pod, "app", 0, Life::UntilStopped).await?;
    kubelet.start(&app).await?;
    let code = i32::try_from(n)? + 1;
    // Polling sees Started only of what still runs when it lists.
    let after_ms = if linger.is_zero() {
        u64::from(n % 5) * 50
    } else {
        2500
    };
    let crash = Life::Exit { code, after_ms };
    let job = kubelet.create(&pod, "job", 0, crash).await?;
    kubelet.start(&job).await?;
    ended(kubelet, &job).await?;
    linger_for(linger).await;
    let at_once = Life::Exit {
        code: code + 100,
        after_ms: if linger.is_zero() { 0 } else { 2500 },
    };
    let again = kubelet.create(&pod, "job", 1, at_once).await?;
    kubelet.start(&again).await?;
    ended(kubelet, &again).await?;
    linger_for(linger).await;
    kubelet.stop(&app).await?;
    linger_for(linger).await;
    if n % 2 == 0 {
        for id in [&app, &job, &again] {
            kubelet.remove(id).await?;
        }
    }
    kubelet.stop_pod(&pod).await?;
    linger_for(linger).await;
    kubelet.remove_pod(&pod).await
}

async fn ended(kubelet: &Kubelet, id: &pleg::core::Id) -> anyhow::Result<()> {
    use pleg_cri::v1::ContainerState;
    until(SOON, "the container ends", || async {
        let status = kubelet.container_status(id).await.ok()??;
        (status.state() == ContainerState::ContainerExited).then_some(())
    })
    .await
}

async fn linger_for(span: Duration) {
    if !span.is_zero() {
        let_pass(span).await;
    }
}
