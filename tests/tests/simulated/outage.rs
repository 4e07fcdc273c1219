//! The runtime goes away in mid-churn and comes back: seen from outside, a restart.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pleg::core::{Health, Id, LifecycleType, Mode, ReportedState, StreamState};
use pleg_tests::check::{Announced, cache_is_right, cached, listing};
use pleg_tests::kubelet::{Kubelet, Life};
use pleg_tests::lives::{self, insist};
use pleg_tests::wait::{let_pass, until, until_right};
use tokio::task::JoinSet;

use crate::{Node, SOON, Subject, settings};

/// How many containers end while nobody can tell of it.
const DOOMED: i32 = 8;

#[tokio::test(flavor = "multi_thread")]
async fn served_again_in_mid_churn() -> anyhow::Result<()> {
    let mut node = Node::up()?;
    let mut subject = Subject::start(&node, settings(Mode::Evented)).await?;
    let kubelet = node.kubelet()?;
    let mut doomed = Vec::new();
    for n in 0..DOOMED {
        let pod = kubelet.run_pod(&format!("doomed-{n}")).await?;
        let life = Life::Exit {
            code: 10 + n,
            after_ms: 3_600_000,
        };
        let id = kubelet.create(&pod, "app", 0, life).await?;
        kubelet.start(&id).await?;
        doomed.push(id);
    }
    let mut churn = JoinSet::new();
    for n in 0..12 {
        let kubelet = kubelet.clone();
        churn.spawn(async move { stubborn_lives(&kubelet, n).await });
    }
    let_pass(Duration::from_millis(300)).await;
    node.stop_serving().await;
    for (n, id) in (0..).zip(&doomed) {
        assert!(node.sim.kill_container(id.as_str(), 10 + n), "it runs");
    }
    // Containers end, and calls and lists fail, while nobody serves.
    let before = subject.pleg.counters().lists_failed;
    until(SOON, "a list fails", || {
        let failed = subject.pleg.counters().lists_failed;
        async move { (failed > before).then_some(()) }
    })
    .await?;
    node.serve()?;
    let (back, lists) = (subject.pleg.now(), complete_lists(&subject));
    until(SOON, "what ended meanwhile is cached", || {
        let cached = cached(&subject.pleg);
        let all = doomed
            .iter()
            .all(|id| cached.get(id) == Some(&ReportedState::Exited));
        async move { all.then_some(()) }
    })
    .await?;
    let settled = subject.pleg.now().since(back);
    // One that was under way may count, too.
    let audits = complete_lists(&subject) - lists;
    assert!(audits <= 2, "{audits} audits for what the first one shows");

    while let Some(done) = churn.join_next().await {
        done??;
    }
    until_right(SOON, "the cache equals the listing", || {
        cache_is_right(&subject.pleg, &subject.truth)
    })
    .await?;
    let mut announced = Announced::default();
    announced.drain(&mut subject.events);
    events_are_used_again(&mut subject, &kubelet, &mut announced).await?;

    lives::report("served again", &subject.pleg, &subject.ear, &announced);
    println!("  what ended meanwhile was known after {settled:?} and {audits} audits");
    let deeds = kubelet.deeds();
    let wrong = announced.never_wrong(&deeds);
    assert!(wrong.is_empty(), "{wrong:#?}");
    let wrong = lives::unannounced(&listing(&subject.truth).await?, &deeds, &announced);
    assert!(wrong.is_empty(), "{wrong:#?}");
    for id in &doomed {
        assert!(announced.has(id, LifecycleType::ContainerDied));
    }
    subject.pleg.shutdown().await;
    node.down().await;
    Ok(())
}

fn complete_lists(subject: &Subject) -> u64 {
    let counters = subject.pleg.counters();
    counters.lists - counters.lists_failed
}

/// A container that is made now is announced because the stream told of it.
async fn events_are_used_again(
    subject: &mut Subject,
    kubelet: &Kubelet,
    announced: &mut Announced,
) -> anyhow::Result<()> {
    until(SOON, "the stream is confirmed", || {
        let health: Health = subject.pleg.health().current();
        async move {
            let stands = |s: &StreamState| {
                matches!(
                    s,
                    StreamState::Subscribed {
                        confirmed: true,
                        ..
                    }
                )
            };
            stands(&health.stream).then_some(())
        }
    })
    .await?;
    let told = |announced: &Announced| announced.sources().get("stream").copied().unwrap_or(0);
    let before = told(announced);
    let pod = kubelet.run_pod("afterwards").await?;
    let life = Life::Exit {
        code: 42,
        after_ms: 50,
    };
    let id = kubelet.create(&pod, "job", 0, life).await?;
    kubelet.start(&id).await?;
    until(SOON, "a new container's end is announced", || {
        announced.drain(&mut subject.events);
        let died = announced.has(&id, LifecycleType::ContainerDied);
        async move { died.then_some(()) }
    })
    .await?;
    assert!(told(announced) > before, "{:?}", announced.sources());
    assert!(subject.ear.log().calls.subscribes > 1);
    Ok(())
}

/// Four pods, one after the other; what fails because the runtime is away is tried again.
async fn stubborn_lives(kubelet: &Kubelet, n: usize) -> anyhow::Result<()> {
    for round in 0..4 {
        let pod = kubelet.run_pod(&format!("life-{n}-{round}")).await?;
        // A CreateContainer that was cut off leaves its name reserved.
        let attempt = AtomicU32::new(0);
        let life = Life::Exit {
            code: 7,
            after_ms: 40,
        };
        let job = insist(|| {
            let attempt = attempt.fetch_add(1, Ordering::Relaxed);
            kubelet.create(&pod, "job", attempt, life)
        })
        .await?;
        insist(|| started(kubelet, &job)).await?;
        insist(|| lives::ended(kubelet, &job)).await?;
        insist(|| kubelet.remove(&job)).await?;
        insist(|| kubelet.stop_pod(&pod)).await?;
        if round > 0 {
            insist(|| kubelet.remove_pod(&pod)).await?;
        }
    }
    Ok(())
}

/// Started by this call, or by one before it whose answer was cut off.
async fn started(kubelet: &Kubelet, id: &Id) -> anyhow::Result<()> {
    let outcome = kubelet.start(id).await;
    match kubelet.container_status(id).await? {
        Some(status) if status.started_at != 0 => Ok(()),
        _ => outcome,
    }
}
