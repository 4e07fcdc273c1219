//! The runtime is cut off for a minute, on paused time.

use pleg::core::Settings;
use pleg_tests::outage::deaths_are_announced_after_outage;

use crate::in_process::{InProcess, MINUTE};

#[tokio::test(start_paused = true)]
async fn deaths_in_an_outage_are_announced_at_its_end() -> anyhow::Result<()> {
    let mut node = InProcess::up();
    let mut generator = node.start(Settings::default()).await?;
    let kubelet = node.kubelet()?;
    deaths_are_announced_after_outage(&mut generator, &kubelet, &mut node, MINUTE).await?;
    node.end(generator).await;
    Ok(())
}
