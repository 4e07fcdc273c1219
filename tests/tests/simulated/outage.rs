//! The runtime is cut off for a while, in real time.

use std::time::Duration;

use pleg::core::Mode;
use pleg_tests::environment::number;
use pleg_tests::outage::deaths_are_announced_after_outage;

use crate::{Node, SOON, settings};

#[tokio::test(flavor = "multi_thread")]
async fn deaths_in_an_outage_are_announced_at_its_end() -> anyhow::Result<()> {
    let mut node = Node::up()?;
    let mut generator = node.start(settings(Mode::Evented)).await?;
    let kubelet = node.kubelet()?;
    let outage = Duration::from_secs(number("PLEG_OUTAGE_SECONDS", 20)?.into());
    deaths_are_announced_after_outage(&mut generator, &kubelet, &mut node, outage).await?;
    generator.wait_until_confirmed(SOON).await?;
    generator
        .wait_until_events_are_used(&kubelet, "afterwards")
        .await?;
    generator.pleg.shutdown().await;
    node.down().await;
    Ok(())
}
