//! Connections that are cut after a number of bytes: within the frame header, the message header
//! and the message, of an event and of a list.

use pleg::core::{Id, LifecycleType, Settings};
use pleg_tests::check::cached;
use pleg_tests::faulty_pipe::Break;
use pleg_tests::kubelet::{Kubelet, Life};

use crate::in_process::{InProcess, MINUTE, MS, SECOND};

/// More bytes than are sent.
const NEVER: u64 = u32::MAX as u64;

/// Byte counts up to `all`: each one at the start, where the frame headers are, then every
/// `step`th, and the last ones.
fn cuts(all: u64, step: usize) -> impl Iterator<Item = u64> {
    let few = all.min(40);
    let some = (few..all).step_by(step);
    (1..few).chain(some).chain(all.saturating_sub(3)..=all)
}

/// A pod whose container has not started yet.
async fn waiting_container(kubelet: &Kubelet) -> anyhow::Result<Id> {
    let pod = kubelet.run_pod("pod").await?;
    let life = Life::Exit {
        code: 7,
        after_ms: 100,
    };
    kubelet.create(&pod, "job", 0, life).await
}

/// A container starts and ends, and the stream breaks after `at` bytes of its events. Returns the
/// number of bytes.
async fn cut_event(at: u64, how: Break) -> anyhow::Result<u64> {
    let node = InProcess::up();
    let kubelet = node.kubelet()?;
    let job = waiting_container(&kubelet).await?;
    let mut generator = node.start(Settings::default()).await?;
    let before = node.events.carried();
    node.events.break_after(at, how);
    kubelet.start(&job).await?;
    node.until(3 * SECOND, "the end is announced", || {
        assert_eq!(generator.pleg.health().ready(), Ok(()));
        generator.has(&job, LifecycleType::ContainerDied)
    })
    .await?;
    // Wait for the remaining events.
    node.pass(100 * MS).await;
    let carried = node.events.carried().saturating_sub(before);
    let lost = node.events.dials() > 1;
    node.until(5 * SECOND, "nothing is degraded", || generator.is_well())
        .await?;
    generator.check(&kubelet).await?;
    let counters = generator.pleg.counters();
    assert_eq!(counters.streams_lost, u64::from(lost), "cut after {at}");
    assert_eq!(
        generator.missed(),
        0,
        "missed although the stream was lost: cut after {at}"
    );
    // The new stream delivers events.
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
async fn stream_cut_at_any_byte_of_an_event_loses_nothing() -> anyhow::Result<()> {
    let all = cut_event(NEVER, Break::Reset).await?;
    assert!(all > 400, "two events are that long at least: {all}");
    let mut tried = 0;
    for at in cuts(all, 17) {
        for how in [Break::Reset, Break::End] {
            cut_event(at, how)
                .await
                .map_err(|e| e.context(format!("{how:?} after {at} bytes of {all}")))?;
            tried += 1;
        }
    }
    println!("two events are {all} bytes; {tried} cuts");
    Ok(())
}

/// A list of `whole` bytes breaks after `at` bytes. Returns the number of bytes that arrived.
async fn cut_list(at: u64, whole: u64, how: Break) -> anyhow::Result<u64> {
    let node = InProcess::up();
    let kubelet = node.kubelet()?;
    node.run_pods(&kubelet, 3).await?;
    let mut generator = node.start(Settings::default()).await?;
    let before = (node.calls.carried(), cached(&generator.pleg));
    assert_eq!(before.1.len(), 6);
    let failed = generator.pleg.counters().lists_failed;
    node.calls.break_after(at, how);
    let list = generator.pleg.relist_now().await;
    let carried = node.calls.carried().saturating_sub(before.0);
    if let Err(error) = &list {
        assert!(generator.is_degraded("list_failed"), "{error}");
        assert_eq!(generator.pleg.counters().lists_failed, failed + 1);
    }
    assert_eq!(list.is_ok(), at >= whole, "{list:?}");
    assert_eq!(generator.pleg.health().ready(), Ok(()));
    assert_eq!(
        cached(&generator.pleg),
        before.1,
        "a failed list changes nothing"
    );
    let took = node
        .until(2 * SECOND, "nothing is degraded", || generator.is_well())
        .await?;
    assert!(took <= SECOND + 10 * MS, "{took:?}");
    assert_eq!(cached(&generator.pleg), before.1);
    generator.check(&kubelet).await?;
    let removed = LifecycleType::ContainerRemoved;
    assert!(
        before
            .1
            .keys()
            .all(|id| !generator.announced.has(id, removed))
    );
    // Without further loss the relist period grows.
    node.pass(MINUTE).await;
    assert!(generator.health().period >= 8 * SECOND);
    node.end(generator).await;
    Ok(carried)
}

#[tokio::test(start_paused = true)]
async fn list_cut_at_any_byte_changes_nothing() -> anyhow::Result<()> {
    let all = cut_list(NEVER, NEVER, Break::Reset).await?;
    assert!(all > 1000, "six rows are that long at least: {all}");
    let mut tried = 0;
    for at in cuts(all, 41) {
        for how in [Break::Reset, Break::End] {
            cut_list(at, all, how)
                .await
                .map_err(|e| e.context(format!("{how:?} after {at} bytes of {all}")))?;
            tried += 1;
        }
    }
    println!("two lists of 6 rows are {all} bytes; {tried} cuts");
    Ok(())
}
