//! Breaks connections after many different numbers of bytes: within the HTTP/2 frame header, the message header
//! and the message, of an event and of a list.

use pleg::core::{LifecycleType, Settings};
use pleg_tests::check::cached;
use pleg_tests::kubelet::Life;

use crate::node::{MINUTE, MS, Node, SECOND};
use crate::pipe::Break;

/// A number of bytes that no connection in these tests reaches, so that it does not break.
const NEVER: u64 = u32::MAX as u64;

/// Calls `cut` without a break to count the server's bytes. Then lets `cut` break the connection after each of the
/// first 40 bytes (HTTP/2 and message headers), after every `step`th byte, and after each of the last bytes.
async fn at_many_bytes(
    least: u64,
    step: usize,
    cut: impl AsyncFn(u64, u64, Break) -> anyhow::Result<u64>,
) -> anyhow::Result<()> {
    let all = cut(NEVER, NEVER, Break::Reset).await?;
    assert!(all > least, "{all} bytes");
    let few = all.min(40);
    let some = (few..all).step_by(step);
    let cuts = (1..few).chain(some).chain(all.saturating_sub(3)..=all);
    for (at, how) in cuts.zip([Break::Reset, Break::End].into_iter().cycle()) {
        cut(at, all, how)
            .await
            .map_err(|e| e.context(format!("{how:?} after {at} bytes of {all}")))?;
    }
    Ok(())
}

/// Runs a short container, and breaks the event stream after `at` bytes. Returns how many bytes of events arrived.
async fn cut_event(at: u64, _whole: u64, how: Break) -> anyhow::Result<u64> {
    let node = Node::up();
    let kubelet = node.kubelet()?;
    let pod = kubelet.run_pod("pod").await?;
    let (code, after_ms) = (7, 100);
    let job = kubelet.create(&pod, "job", 0, Life::Exit { code, after_ms });
    let job = job.await?;
    let mut generator = node.start(Settings::default()).await?;
    let before = node.events.carried();
    node.events.break_after(at, how);
    kubelet.start(&job).await?;
    node.until(3 * SECOND, "the end is announced", || {
        assert_eq!(generator.pleg.health().ready(), Ok(()));
        generator.has(&job, LifecycleType::ContainerDied)
    })
    .await?;
    // Wait for the remaining events of the container.
    node.pass(100 * MS).await;
    let carried = node.events.carried().saturating_sub(before);
    let lost = node.events.dials() > 1;
    node.until(5 * SECOND, "nothing is degraded", || generator.is_well())
        .await?;
    generator.check(&kubelet).await?;
    assert_eq!(generator.pleg.counters().streams_lost, u64::from(lost));
    assert_eq!(generator.missed(), 0, "missed although the stream was lost");
    // Check that the new stream delivers events.
    let received = generator.recorder.log().events.len();
    let pod = kubelet.run_pod("next").await?;
    node.until(SECOND, "the next pod is announced", || {
        generator.has(&pod.sandbox, LifecycleType::ContainerStarted)
    })
    .await?;
    assert!(generator.recorder.log().events.len() > received);
    node.end(generator).await;
    Ok(carried)
}

#[tokio::test(start_paused = true)]
async fn stream_cut_within_an_event_loses_no_change() -> anyhow::Result<()> {
    at_many_bytes(400, 17, cut_event).await
}

/// Requests a list of `whole` bytes, and breaks the connection after `at` bytes. Returns how many bytes arrived.
async fn cut_list(at: u64, whole: u64, how: Break) -> anyhow::Result<u64> {
    let node = Node::up();
    let kubelet = node.kubelet()?;
    kubelet.run_pods(3).await?;
    let mut generator = node.start(Settings::default()).await?;
    let (before, known) = (node.calls.carried(), cached(&generator.pleg));
    assert_eq!(known.len(), 6);
    node.calls.break_after(at, how);
    let list = generator.pleg.relist_now().await;
    let carried = node.calls.carried().saturating_sub(before);
    assert_eq!(list.is_ok(), at >= whole, "{list:?}");
    assert_eq!(generator.is_degraded("list_failed"), list.is_err());
    let failed = generator.pleg.counters().lists_failed;
    assert_eq!(failed, u64::from(list.is_err()));
    assert_eq!(generator.pleg.health().ready(), Ok(()));
    assert_eq!(cached(&generator.pleg), known, "a failed list changed it");
    node.until(SECOND + 10 * MS, "nothing is degraded", || {
        generator.is_well()
    })
    .await?;
    generator.check(&kubelet).await?;
    let removed = LifecycleType::ContainerRemoved;
    assert!(known.keys().all(|id| !generator.has(id, removed)));
    // No event was missed, so the relist period grows.
    node.until(MINUTE, "the relist period is 8 s", || {
        generator.health().period >= 8 * SECOND
    })
    .await?;
    node.end(generator).await;
    Ok(carried)
}

#[tokio::test(start_paused = true)]
async fn list_cut_at_any_byte_leaves_cache_unchanged() -> anyhow::Result<()> {
    at_many_bytes(1000, 41, cut_list).await
}
