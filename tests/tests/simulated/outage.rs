//! The runtime goes away in mid-churn and comes back: seen from outside, a restart.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pleg::core::{Id, LifecycleType, Mode, ReportedState};
use pleg_tests::check::{cached, listing, unannounced};
use pleg_tests::generator::Generator;
use pleg_tests::kubelet::{Kubelet, Life};
use pleg_tests::lives::{self, insist};
use pleg_tests::outage::deaths_are_announced_after_outage;
use pleg_tests::wait::{let_pass, until};
use tokio::task::JoinSet;

use crate::{Node, SOON, settings};

/// How many containers end while nobody can tell of it.
const DOOMED: i32 = 8;

#[tokio::test(flavor = "multi_thread")]
async fn served_again_in_mid_churn() -> anyhow::Result<()> {
    let mut node = Node::up()?;
    let mut generator = node.start(settings(Mode::Evented)).await?;
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
    let before = generator.pleg.counters().lists_failed;
    until(SOON, "a list fails", || {
        let failed = generator.pleg.counters().lists_failed;
        async move { (failed > before).then_some(()) }
    })
    .await?;
    node.serve()?;
    let (back, lists) = (generator.pleg.now(), complete_lists(&generator));
    until(SOON, "what ended meanwhile is cached", || {
        let cached = cached(&generator.pleg);
        let all = doomed
            .iter()
            .all(|id| cached.get(id) == Some(&ReportedState::Exited));
        async move { all.then_some(()) }
    })
    .await?;
    let settled = generator.pleg.now().since(back);
    // One that was under way may count, too.
    let audits = complete_lists(&generator) - lists;
    assert!(audits <= 2, "{audits} audits for what the first one shows");

    while let Some(done) = churn.join_next().await {
        done??;
    }
    generator.wait_until_cache_is_right(SOON).await?;
    generator.wait_until_confirmed(SOON).await?;
    generator
        .wait_until_events_are_used(&kubelet, "afterwards")
        .await?;
    generator.report("served again");
    println!("  what ended meanwhile was known after {settled:?} and {audits} audits");
    generator.check(&kubelet).await?;
    let listed = listing(&generator.truth).await?;
    let wrong = unannounced(&listed, &kubelet.deeds(), &generator.announced);
    assert!(wrong.is_empty(), "{wrong:#?}");
    for id in &doomed {
        assert!(generator.has(id, LifecycleType::ContainerDied));
    }
    generator.pleg.shutdown().await;
    node.down().await;
    Ok(())
}

/// The socket is away for that many seconds instead of 20.
const SECONDS: &str = "PLEG_OUTAGE_SECONDS";

#[tokio::test(flavor = "multi_thread")]
async fn deaths_in_an_outage_are_announced_at_its_end() -> anyhow::Result<()> {
    let mut node = Node::up()?;
    let mut generator = node.start(settings(Mode::Evented)).await?;
    let kubelet = node.kubelet()?;
    let seconds = std::env::var(SECONDS).map_or(Ok(20), |s| s.parse())?;
    let outage = Duration::from_secs(seconds);
    deaths_are_announced_after_outage(&mut generator, &kubelet, &mut node, outage).await?;
    generator.pleg.shutdown().await;
    node.down().await;
    Ok(())
}

fn complete_lists(generator: &Generator) -> u64 {
    let counters = generator.pleg.counters();
    counters.lists - counters.lists_failed
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
