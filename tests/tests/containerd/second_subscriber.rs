//! Tests a generator on containerd 1.7 while another client takes half of the events: 1.7 sends each to one subscriber.

use pleg::core::Mode;
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::kubelet::Kubelet;
use pleg_tests::second_subscriber::{PLAN, PODS, work_beside_second_subscriber};
use pleg_tests::workers::Workers;

use crate::{start, with_daemon};

/// A second generator, such as that of `pleg watch`, takes events, while pod workers restart containers at once.
#[tokio::test(flavor = "multi_thread")]
async fn second_generator_on_containerd_1_7_causes_polling() -> anyhow::Result<()> {
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
    let done = work_beside_second_subscriber(&mut generator, &kubelet, taken, work);
    Box::pin(done).await?;
    second.pleg.shutdown().await;
    generator.pleg.shutdown().await;
    Ok(())
}
