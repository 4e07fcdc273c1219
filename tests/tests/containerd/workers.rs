//! Pod workers that act on what the generator reports.

use std::time::Duration;

use pleg::core::Mode;
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::kubelet::Kubelet;
use pleg_tests::second_subscriber::arrived;
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

#[tokio::test(flavor = "multi_thread")]
async fn calm_stream_misses_nothing_and_is_relisted_every_minute_on_1_7() -> anyhow::Result<()> {
    calm(Version::V1_7).await
}

#[tokio::test(flavor = "multi_thread")]
async fn calm_stream_misses_nothing_and_is_relisted_every_minute_on_2() -> anyhow::Result<()> {
    calm(Version::V2).await
}

async fn calm(version: Version) -> anyhow::Result<()> {
    let Some(daemon) = Daemon::up(version)? else {
        return Ok(());
    };
    let mut generator = start(&daemon, Mode::Evented)?;
    generator.pleg.wait_until_synced().await?;
    let kubelet = Kubelet::new(&daemon)?;
    let workers = Workers::new(&generator.pleg, &kubelet, PLAN);
    generator.drain_during(workers.churn(PODS)).await?;
    let idle = generator.pleg.now();
    until(2 * IDLE, "the relist period is 60 s", || async {
        (generator.health().period == IDLE).then_some(())
    })
    .await?;
    let idle = generator.pleg.now().since(idle);
    let log = generator.ear.log();
    let (missed, events) = (generator.missed(), log.events.len() as u64);
    let (due, arrived) = arrived(&log, &kubelet.deeds());
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
    daemon.down()
}
