//! Lives of pods: what the small kubelet does to them, on whatever runtime, and what must have
//! been announced when they are over.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt};
use pleg::core::{Cause, Id, LifecycleType, ReportedState};
use pleg::{Pleg, Subscription};
use pleg_cri::v1::ContainerState;

use crate::check::Announced;
use crate::kubelet::{Deeds, Kubelet, Life};
use crate::tap::Ear;
use crate::wait::{let_pass, until};

/// How long anything may take that happens at once when all is well.
const SOON: Duration = Duration::from_secs(20);

/// Full lives of so many pods, `at_once` of them at a time.
///
/// # Errors
/// If a call fails.
pub async fn churn(
    kubelet: &Kubelet,
    pods: u32,
    at_once: usize,
    linger: Duration,
) -> anyhow::Result<()> {
    futures::stream::iter(0..pods)
        .map(|n| life_of_a_pod(kubelet, n, linger))
        .buffer_unordered(at_once)
        .try_collect()
        .await
}

/// One pod: two containers run, one crashes and is restarted and crashes at once, then all goes.
/// Whatever state is reached lasts for `linger`, so that a poller can see it.
///
/// # Errors
/// If a call fails.
pub async fn life_of_a_pod(kubelet: &Kubelet, n: u32, linger: Duration) -> anyhow::Result<()> {
    let pod = kubelet.run_pod(&format!("pod-{n}")).await?;
    let app = kubelet.create(&pod, "app", 0, Life::UntilStopped).await?;
    kubelet.start(&app).await?;
    let code = i32::try_from(n)? + 1;
    // Polling sees Started only of what still runs when it lists.
    let linger_ms = u64::try_from(linger.as_millis())?;
    let crash = Life::Exit {
        code,
        after_ms: linger_ms.max(u64::from(n % 5) * 50),
    };
    let job = kubelet.create(&pod, "job", 0, crash).await?;
    kubelet.start(&job).await?;
    ended(kubelet, &job).await?;
    linger_for(linger).await;
    let at_once = Life::Exit {
        code: code + 100,
        after_ms: linger_ms,
    };
    let again = kubelet.create(&pod, "job", 1, at_once).await?;
    kubelet.start(&again).await?;
    ended(kubelet, &again).await?;
    linger_for(linger).await;
    kubelet.stop(&app).await?;
    linger_for(linger).await;
    if n.is_multiple_of(2) {
        for id in [&app, &job, &again] {
            kubelet.remove(id).await?;
        }
    }
    kubelet.stop_pod(&pod).await?;
    linger_for(linger).await;
    kubelet.remove_pod(&pod).await
}

/// Waits until the runtime says that the container has ended.
///
/// # Errors
/// If it does not end soon.
pub async fn ended(kubelet: &Kubelet, id: &Id) -> anyhow::Result<()> {
    until(SOON, "the container ends", || async {
        let status = kubelet.container_status(id).await.ok()??;
        (status.state() == ContainerState::ContainerExited).then_some(())
    })
    .await
}

/// Tries until it succeeds, for half a minute, as a kubelet does while its runtime is away.
///
/// # Errors
/// The last one, if it does not succeed.
pub async fn insist<T, F: Future<Output = anyhow::Result<T>>>(
    mut call: impl FnMut() -> F,
) -> anyhow::Result<T> {
    let mut last = None;
    for _ in 0..150 {
        match call().await {
            Ok(done) => return Ok(done),
            Err(error) => last = Some(error),
        }
        let_pass(Duration::from_millis(200)).await;
    }
    Err(last.context("never tried")?)
}

/// Waits until everything that was removed is announced as removed.
///
/// # Errors
/// What is missing, if that does not happen soon.
pub async fn removals_are_announced(
    kubelet: &Kubelet,
    events: &mut Subscription,
    announced: &mut Announced,
) -> anyhow::Result<()> {
    let deeds = kubelet.deeds();
    until(SOON, "all removals are announced", || {
        announced.drain(events);
        let mut removed = deeds.iter().filter(|(_, d)| d.removed);
        let all = removed.all(|(id, _)| announced.has(id, LifecycleType::ContainerRemoved));
        async move { all.then_some(()) }
    })
    .await
    .map_err(|e| anyhow::anyhow!("{e}: {:#?}", announced.missing(&deeds, None)))
}

/// What a listing shows and was not announced as such, and what was announced, is not listed any
/// more, and was not announced as removed.
pub fn unannounced(
    listed: &BTreeMap<Id, ReportedState>,
    deeds: &Deeds,
    announced: &Announced,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for (id, deed) in deeds {
        let said = announced.types(id);
        let due = match listed.get(id) {
            Some(ReportedState::Running) => LifecycleType::ContainerStarted,
            Some(ReportedState::Exited) => LifecycleType::ContainerDied,
            // Of what came and went unseen nothing is said.
            None if !said.is_empty() => LifecycleType::ContainerRemoved,
            _ => continue,
        };
        let gone = said.contains(&LifecycleType::ContainerRemoved);
        if !said.contains(&due) || (gone && listed.contains_key(id)) {
            let shown = listed.get(id);
            wrong.push(format!(
                "{} ({id}) is listed {shown:?}, said: {said:?}",
                deed.name
            ));
        }
    }
    wrong
}

/// Says what it took: calls by cause, what was announced by source.
pub fn report(title: &str, pleg: &Pleg, ear: &Ear, announced: &Announced) {
    let (log, counters) = (ear.log(), pleg.counters());
    println!("{title}: sources {:?}", announced.sources());
    println!("  calls {:?}; {} events heard", log.calls, log.events.len());
    for cause in Cause::ALL {
        let n = counters.inspections_by_cause[cause as usize];
        if n > 0 {
            println!("  inspections because {}: {n}", cause.as_str());
        }
    }
    println!(
        "  lists {} ({} failed), exit reads {}, contradictions {}, overruled {}, missed {:?}, \
         incomplete {}",
        counters.lists,
        counters.lists_failed,
        counters.exit_reads,
        counters.contradictions,
        counters.overruled,
        counters.missed,
        counters.events_incomplete
    );
}

async fn linger_for(span: Duration) {
    if !span.is_zero() {
        let_pass(span).await;
    }
}
