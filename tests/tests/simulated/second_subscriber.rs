//! While another client takes half of a simulated containerd 1.7's events, the generator must poll: relist each second.

use pleg::core::Settings;
use pleg_sim::Mode;
use pleg_tests::lives;
use pleg_tests::second_subscriber::{PLAN, PODS, work_beside_second_subscriber};
use pleg_tests::workers::Workers;

use crate::node::Node;

async fn beside_second_subscriber(seed: u64, restarts: bool) -> anyhow::Result<()> {
    let node = Node::with(Mode::Containerd17, seed);
    let mut generator = node.start(Settings::default()).await?;
    node.set("all.latency=2ms");
    node.set("second_subscriber=50%");
    let kubelet = node.kubelet()?;
    let workers = Workers::new(&generator.pleg, &kubelet, PLAN);
    let work = async {
        match restarts {
            true => workers.churn(PODS).await,
            false => lives::churn(&kubelet, PODS, PLAN.at_once as usize, PLAN.keep).await,
        }
    };
    let taken = || {
        node.sim
            .fired()
            .get("second_subscriber")
            .copied()
            .unwrap_or(0)
    };
    work_beside_second_subscriber(&mut generator, &kubelet, taken, work).await?;
    node.end(generator).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn second_subscriber_makes_generator_poll() -> anyhow::Result<()> {
    beside_second_subscriber(11, false).await
}

#[tokio::test(start_paused = true)]
async fn second_subscriber_makes_generator_poll_while_containers_restart() -> anyhow::Result<()> {
    beside_second_subscriber(12, true).await
}
