//! Read-your-writes: right after a call has returned, `newer_than` shows its effect.

use std::time::Duration;

use pleg::core::Mode;
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::fresh;
use pleg_tests::kubelet::Kubelet;

use crate::start;

/// How often each of the four calls is followed.
const ROUNDS: usize = 50;

on_both_versions! {
    evented_newer_than_shows_own_write: read_your_writes(Mode::Evented);
    polling_newer_than_shows_own_write: read_your_writes(Mode::Polling);
}

async fn read_your_writes(daemon: &Daemon, mode: Mode) -> anyhow::Result<()> {
    let version = daemon.version;
    let generator = start(daemon, mode)?;
    generator.pleg.wait_until_synced().await?;
    let kubelet = Kubelet::new(daemon)?;
    let answers = fresh::read_your_writes(&generator, &kubelet, ROUNDS).await?;
    let (count, median) = (answers.count(), answers.percentile(50));
    println!(
        "{version:?} {mode:?}: {count} waits, median {median:?}, p99 {:?}, {} stale",
        answers.percentile(99),
        answers.stale
    );
    // containerd ≥ 2 now and then lists the state from before a call that has returned; what it
    // lists then is what a read begun after the call shows.
    let excused = if version == Version::V2 {
        count / 20
    } else {
        0
    };
    assert!(
        answers.stale <= excused,
        "{} answers lack the effect",
        answers.stale
    );
    if mode == Mode::Evented {
        assert!(median < Duration::from_millis(20), "median {median:?}");
    }
    generator.pleg.shutdown().await;
    Ok(())
}
