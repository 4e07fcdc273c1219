//! 30 pods of two containers each: run, crash, restart, stop, remove.

use std::time::Duration;

use pleg::core::Mode;
use pleg_tests::daemon::Daemon;
use pleg_tests::generator::Generator;
use pleg_tests::kubelet::Kubelet;
use pleg_tests::lives;
use pleg_tests::wait::pass_time;

use crate::{SOON, start};

const PODS: u32 = 30;
/// How many pods live at the same time.
const AT_ONCE: usize = 8;

on_both_versions! {
    evented_churn_is_announced_once: churn(Mode::Evented);
    polling_churn_is_announced_once: churn(Mode::Polling);
}

async fn churn(daemon: &Daemon, mode: Mode) -> anyhow::Result<()> {
    let version = daemon.version;
    let mut generator = start(daemon, mode)?;
    generator.pleg.wait_until_synced().await?;
    let kubelet = Kubelet::new(daemon)?;
    // For polling, each state must last for two and a half lists.
    let linger = match mode {
        Mode::Polling => Duration::from_millis(2500),
        _ => Duration::ZERO,
    };
    generator
        .drain_during(Box::pin(lives::churn(&kubelet, PODS, AT_ONCE, linger)))
        .await?;

    // Everything that was removed is announced as removed, and nothing follows.
    generator
        .wait_until_removals_are_announced(&kubelet.objects())
        .await?;
    // The exit reasons that may arrive late are read after two seconds.
    pass_time(Duration::from_millis(2500)).await;
    generator.wait_until_cache_equals_list(SOON).await?;
    generator.report(&format!("{version:?} {mode:?}"));
    generator.check_complete(&kubelet)?;
    assert_eq!(generator.pleg.counters().undone, 0, "no end was undone");
    if mode == Mode::Evented {
        calls_are_accounted_for(&generator);
    }
    generator.pleg.shutdown().await;
    Ok(())
}

/// No unary call beyond the full lists and the reads that the design names.
fn calls_are_accounted_for(generator: &Generator) {
    let calls = generator.recorder.log().calls;
    let counters = generator.pleg.counters();
    assert_eq!(calls.full_lists, 2 * counters.lists, "two calls a list");
    assert!(calls.pod_lists <= 2 * counters.pod_reads, "{calls:?}");
    assert!(calls.statuses <= counters.statuses, "{calls:?}");
    assert_eq!(counters.missed.total(), 0, "no event was missed");
    assert_eq!(calls.subscribes, 1, "one stream for the whole time");
}
