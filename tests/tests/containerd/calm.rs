//! Pod workers that act on what the generator reports.

use std::time::Duration;

use pleg::core::{EventType, Mode};
use pleg_tests::daemon::Daemon;
use pleg_tests::kubelet::{Kubelet, Objects};
use pleg_tests::recording::Log;
use pleg_tests::wait::until;
use pleg_tests::workers::{Plan, Workers};

use crate::start;

const PODS: u32 = 30;
const PLAN: Plan = Plan {
    at_once: 8,
    restarts: 2,
    job: Duration::from_millis(500),
    spread: Duration::from_millis(500),
    keep: Duration::ZERO,
};
/// The relist period of an idle node.
const IDLE: Duration = Duration::from_secs(60);

on_both_versions! {
    stream_misses_nothing_and_is_relisted_every_minute: calm();
}

async fn calm(daemon: &Daemon) -> anyhow::Result<()> {
    let version = daemon.version;
    let mut generator = start(daemon, Mode::Evented)?;
    generator.pleg.wait_until_synced().await?;
    let kubelet = Kubelet::new(daemon)?;
    let workers = Workers::new(&generator.pleg, &kubelet, PLAN);
    generator.drain_during(workers.churn(PODS)).await?;
    let idle = generator.pleg.now();
    until(2 * IDLE, "the relist period is 60 s", || async {
        (generator.health().period == IDLE).then_some(())
    })
    .await?;
    let idle = generator.pleg.now().since(idle);
    let log = generator.recorder.log();
    let (missed, events) = (generator.missed(), log.events.len() as u64);
    let (due, arrived) = arrived(&log, &kubelet.objects());
    println!(
        "{version:?}: {missed} missed of {events} events; {arrived} of {due} STARTED and STOPPED \
         arrived; relisted every 60 s {idle:?} after the last event"
    );
    assert!(
        1000 * missed <= events,
        "{:?}",
        generator.pleg.counters().missed
    );
    assert!(missed <= due - arrived, "missed, but arrived");
    generator.check_complete(&kubelet)?;
    generator.pleg.shutdown().await;
    Ok(())
}

/// STARTED and STOPPED of what was started and removed: how many the runtime sends, and how many
/// arrived.
fn arrived(log: &Log, objects: &Objects) -> (u64, u64) {
    let (mut due, mut arrived) = (0, 0);
    for (id, _) in objects.iter().filter(|(_, d)| d.started && d.removed) {
        for event in [EventType::Started, EventType::Stopped] {
            due += 1;
            arrived += u64::from(log.has(id, event));
        }
    }
    (due, arrived)
}
