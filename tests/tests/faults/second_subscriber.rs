//! Another client takes half of the events of a simulated containerd 1.7: the script that also runs on
//! a real one.

use pleg::core::Settings;
use pleg_sim::Mode;
use pleg_tests::generator::Generator;
use pleg_tests::lives;
use pleg_tests::second_subscriber::{PLAN, PODS, work_beside_second_subscriber};
use pleg_tests::workers::Workers;

use crate::in_process::InProcess;

const KNOB: &str = "second_subscriber";

async fn start(seed: u64) -> anyhow::Result<(InProcess, Generator)> {
    let node = InProcess::with(Mode::Containerd17, seed);
    let generator = node.start(Settings::default()).await?;
    node.sim.set_knob("all.latency=2ms")?;
    node.sim.set_knob("second_subscriber=50%")?;
    Ok((node, generator))
}

fn taken(node: &InProcess) -> u64 {
    node.sim.fired().get(KNOB).copied().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn second_subscriber_causes_polling() -> anyhow::Result<()> {
    let (node, mut generator) = start(11).await?;
    let kubelet = node.kubelet()?;
    let work = lives::churn(&kubelet, PODS, PLAN.at_once as usize, PLAN.keep);
    work_beside_second_subscriber(&mut generator, &kubelet, || taken(&node), work).await?;
    node.end(generator).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn second_subscriber_and_restarting_kubelet_cause_polling() -> anyhow::Result<()> {
    let (node, mut generator) = start(12).await?;
    let kubelet = node.kubelet()?;
    let workers = Workers::new(&generator.pleg, &kubelet, PLAN);
    let work = workers.churn(PODS);
    work_beside_second_subscriber(&mut generator, &kubelet, || taken(&node), work).await?;
    node.end(generator).await;
    Ok(())
}
