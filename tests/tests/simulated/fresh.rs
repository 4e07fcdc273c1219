//! Read-your-writes: right after a call has returned, `newer_than` shows its effect.

use std::time::Duration;

use pleg::core::Mode;
use pleg_tests::fresh;

use crate::{Node, SOON, settings};

/// How often each of the four calls is followed.
const ROUNDS: usize = 25;

#[tokio::test(flavor = "multi_thread")]
async fn evented_newer_than_shows_own_write() -> anyhow::Result<()> {
    read_your_writes(Mode::Evented).await
}

#[tokio::test(flavor = "multi_thread")]
async fn polling_newer_than_shows_own_write() -> anyhow::Result<()> {
    read_your_writes(Mode::Polling).await
}

/// The lists of this runtime do not lag behind its own answers.
async fn read_your_writes(mode: Mode) -> anyhow::Result<()> {
    let node = Node::up()?;
    let generator = node.start(settings(mode)).await?;
    let answers = fresh::read_your_writes(&generator, &node.kubelet()?, ROUNDS).await?;
    let median = answers.percentile(50);
    println!(
        "{mode:?}: {} waits, median {median:?}, p99 {:?}",
        answers.count(),
        answers.percentile(99)
    );
    assert_eq!(answers.stale, 0);
    if mode == Mode::Evented {
        assert!(median < Duration::from_millis(20), "median {median:?}");
    }
    generator.wait_until_cache_equals_list(SOON).await?;
    generator.pleg.shutdown().await;
    node.down().await;
    Ok(())
}
