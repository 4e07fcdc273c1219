//! On containerd 1.7 each event goes to one subscriber only. Another client takes half of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use pleg::core::{EventType, Mode};
use pleg::runtime::Runtime;
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::kubelet::Kubelet;
use pleg_tests::lives;
use pleg_tests::second_subscriber::{PLAN, PODS, work_beside_second_subscriber};
use pleg_tests::workers::Workers;

use crate::{start, with_daemon};

/// A second subscriber takes events of pods that no kubelet restarts.
#[tokio::test(flavor = "multi_thread")]
async fn second_subscriber_causes_polling() -> anyhow::Result<()> {
    with_daemon(Version::V1_7, take_events).await
}

async fn take_events(daemon: &Daemon) -> anyhow::Result<()> {
    let mut generator = start(daemon, Mode::Evented)?;
    generator.pleg.wait_until_synced().await?;
    let kubelet = Kubelet::new(daemon)?;
    let taken = Arc::new(AtomicU64::new(0));
    let mut stolen = daemon.runtime()?.subscribe().await?;
    let count = taken.clone();
    let second = tokio::spawn(async move {
        // The call is issued when the stream is polled.
        while let Some(Ok(event)) = stolen.next().await {
            if matches!(event.event, EventType::Started | EventType::Stopped) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let work = lives::churn(&kubelet, PODS, PLAN.at_once as usize, PLAN.keep);
    let taken = || taken.load(Ordering::Relaxed);
    Box::pin(work_beside_second_subscriber(
        &mut generator,
        &kubelet,
        taken,
        work,
    ))
    .await?;
    second.abort();
    generator.pleg.shutdown().await;
    Ok(())
}

/// A second generator, as `pleg watch` runs one, beside a kubelet that restarts containers at once.
#[tokio::test(flavor = "multi_thread")]
async fn second_generator_causes_polling() -> anyhow::Result<()> {
    with_daemon(Version::V1_7, run_second_generator).await
}

async fn run_second_generator(daemon: &Daemon) -> anyhow::Result<()> {
    let mut generator = start(daemon, Mode::Evented)?;
    let second = start(daemon, Mode::Evented)?;
    for both in [&generator, &second] {
        both.pleg.wait_until_synced().await?;
    }
    let kubelet = Kubelet::new(daemon)?;
    let workers = Workers::new(&generator.pleg, &kubelet, PLAN);
    let work = workers.churn(PODS);
    let taken = || second.recorder.log().expected();
    Box::pin(work_beside_second_subscriber(
        &mut generator,
        &kubelet,
        taken,
        work,
    ))
    .await?;
    second.pleg.shutdown().await;
    generator.pleg.shutdown().await;
    Ok(())
}
