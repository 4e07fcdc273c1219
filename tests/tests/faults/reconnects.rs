//! Every attempt to connect fails for a while, in each possible way. The number of attempts stays within
//! the bounds of the defaults, lists keep the cache up to date where they can, and afterwards everything
//! recovers.

use std::time::Duration;

use pleg::core::{LifecycleType, NotReady, Settings};
use pleg_tests::check::cached;
use pleg_tests::faulty_pipe::{Accepting, Break};
use pleg_tests::generator::Generator;
use pleg_tests::recording::Calls;

use crate::in_process::{InProcess, MINUTE, MS, SECOND};

/// Subscribes within a minute.
const MOST_SUBSCRIBES: u64 = 10;
/// Dials of the event stream within the first minute: one at once, every 50 ms for 5 s, then after
/// 100 ms, doubling: 8 or 9 more until 60 s, or a few more by jitter.
const MOST_DIALS: u64 = 1 + 100 + 12;

fn calls_since(before: Calls, generator: &Generator) -> Calls {
    let now = generator.recorder.log().calls;
    Calls {
        full_lists: now.full_lists - before.full_lists,
        pod_lists: now.pod_lists - before.pod_lists,
        statuses: now.statuses - before.statuses,
        subscribes: now.subscribes - before.subscribes,
        versions: now.versions - before.versions,
    }
}

/// Checks the calls of a minute in which each call fails at once.
fn check_calls_of_a_minute(calls: Calls) {
    // A list each second. Its second call is not made if the first one fails.
    assert!((55..=65).contains(&calls.full_lists), "{calls:?}");
    // A probe before `Version` has failed, and its pod, which is listed again each second with two calls.
    assert!(calls.statuses <= 1, "{calls:?}");
    assert!(calls.pod_lists <= 2 * 61, "{calls:?}");
    // At most one after each failed read, the one before included, and the probes: one each 15 s.
    let reads = 1 + calls.full_lists + calls.pod_lists / 2 + calls.statuses;
    assert!(calls.versions <= reads + 5, "{calls:?}");
}

/// For a minute, both connections are refused or closed after they are accepted.
async fn unreachable_for_a_minute(how: Accepting) -> anyhow::Result<()> {
    let node = InProcess::up();
    let kubelet = node.kubelet()?;
    node.run_pods(&kubelet, 3).await?;
    let mut generator = node.start(Settings::default()).await?;
    let before = (node.events.dials(), node.calls.dials());
    let before_calls = generator.recorder.log().calls;
    node.events.set_accepting(how);
    node.calls.set_accepting(how);
    node.events.break_now(Break::Reset);
    node.calls.break_now(Break::Reset);
    let reported_after = node
        .until(3 * SECOND, "both are reported", || {
            generator.is_degraded("stream_down") && generator.is_degraded("list_failed")
        })
        .await?;
    let pod = kubelet.run_pod("meanwhile").await?;
    for _ in 0..600 {
        node.pass(100 * MS).await;
        assert_eq!(generator.pleg.health().ready(), Ok(()));
        assert!(generator.is_degraded("stream_down") && generator.is_degraded("list_failed"));
    }
    let dials = (
        node.events.dials() - before.0,
        node.calls.dials() - before.1,
    );
    println!(
        "{how:?}: reported after {reported_after:?}; in 60 s {dials:?} dials for events and calls"
    );
    assert!((100..=MOST_DIALS).contains(&dials.0), "{dials:?}");
    let calls = calls_since(before_calls, &generator);
    println!("  {calls:?}");
    check_calls_of_a_minute(calls);
    let all = calls.full_lists + calls.pod_lists + calls.statuses + calls.versions;
    assert!(dials.1 <= all, "one dial per call: {dials:?} for {calls:?}");
    assert_eq!(cached(&generator.pleg).len(), 6, "no state is removed");

    node.events.set_accepting(Accepting::Served);
    node.calls.set_accepting(Accepting::Served);
    let listed = node
        .until(2 * SECOND, "a list finds the new pod", || {
            generator.has(&pod.sandbox, LifecycleType::ContainerStarted)
        })
        .await?;
    let evented = node
        .until(MINUTE + 2 * SECOND, "nothing is degraded", || {
            generator.is_well()
        })
        .await?;
    println!("  afterwards: listed after {listed:?}, confirmed after {evented:?}");
    assert_eq!(generator.missed(), 0);
    node.check_and_end(generator, &kubelet).await
}

#[tokio::test(start_paused = true)]
async fn refused_connections_are_retried_within_bounds() -> anyhow::Result<()> {
    unreachable_for_a_minute(Accepting::Refused).await
}

#[tokio::test(start_paused = true)]
async fn dropped_connections_are_retried_within_bounds() -> anyhow::Result<()> {
    unreachable_for_a_minute(Accepting::Dropped).await
}

/// For five minutes, each stream is lost as soon as it is requested. Calls succeed.
async fn lists_replace_the_stream_for_five_minutes(
    node: &InProcess,
    generator: &mut Generator,
    mut break_stream: impl FnMut(),
) -> anyhow::Result<Vec<u64>> {
    let kubelet = node.kubelet()?;
    let mut subscribes = Vec::new();
    for minute in 0..5 {
        let asked = node.faults.asked("GetContainerEvents");
        let pod = kubelet.run_pod(&format!("in-minute-{minute}")).await?;
        let mut found_after = None;
        for n in 1..=6000 {
            break_stream();
            node.pass(10 * MS).await;
            if found_after.is_none() && generator.has(&pod.sandbox, LifecycleType::ContainerStarted)
            {
                found_after = Some(n * 10 * MS);
            }
            assert_eq!(generator.pleg.health().ready(), Ok(()));
        }
        let found_after = found_after.unwrap_or(Duration::MAX);
        assert!(
            found_after <= SECOND + 10 * MS,
            "lists run every second: {found_after:?}"
        );
        subscribes.push(node.faults.asked("GetContainerEvents") - asked);
    }
    for asked in &subscribes {
        assert!(*asked <= MOST_SUBSCRIBES, "per minute: {subscribes:?}");
    }
    assert!(subscribes[0] >= 5, "too few attempts: {subscribes:?}");
    Ok(subscribes)
}

#[tokio::test(start_paused = true)]
async fn failing_subscribes_are_retried_within_bounds() -> anyhow::Result<()> {
    let node = InProcess::up();
    let mut generator = node.start(Settings::default()).await?;
    node.faults.fail("GetContainerEvents");
    node.events.break_now(Break::Reset);
    let subscribes =
        lists_replace_the_stream_for_five_minutes(&node, &mut generator, || ()).await?;
    println!("subscribes that fail: {subscribes:?} a minute");
    node.faults.clear();
    node.until(MINUTE + 2 * SECOND, "nothing is degraded", || {
        generator.is_well()
    })
    .await?;
    generator.check(&node.kubelet()?).await?;
    node.end(generator).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn cut_streams_are_retried_within_bounds() -> anyhow::Result<()> {
    let node = InProcess::up();
    let mut generator = node.start(Settings::default()).await?;
    let mut seen = 0;
    let subscribes = lists_replace_the_stream_for_five_minutes(&node, &mut generator, || {
        let asked = node.faults.asked("GetContainerEvents");
        if asked > seen {
            seen = asked;
            node.events.break_now(Break::Reset);
        }
    })
    .await?;
    println!("streams that are cut at once: {subscribes:?} a minute");
    node.until(MINUTE + 2 * SECOND, "nothing is degraded", || {
        generator.is_well()
    })
    .await?;
    assert_eq!(generator.missed(), 0);
    generator.check(&node.kubelet()?).await?;
    node.end(generator).await;
    Ok(())
}

/// From the start, the server accepts connections and sends nothing. Health reports it, and connection
/// attempts are rare. When the server responds, the generator recovers.
#[tokio::test(start_paused = true)]
async fn silent_server_is_reported_and_dialled_rarely() -> anyhow::Result<()> {
    let node = InProcess::up();
    let kubelet = node.kubelet()?;
    node.run_pods(&kubelet, 2).await?;
    node.events.set_accepting(Accepting::Silent);
    node.calls.set_accepting(Accepting::Silent);
    let generator = node.spawn(Settings::default())?;
    let reported_after = node
        .until(3 * SECOND, "it is reported", || {
            generator.is_degraded("list_slow")
        })
        .await?;
    assert_eq!(generator.pleg.health().ready(), Err(NotReady::NeverListed));
    node.pass(5 * MINUTE).await;
    assert_eq!(generator.pleg.health().ready(), Err(NotReady::NeverListed));
    assert!(!generator.degraded().is_empty());
    let dials = (node.events.dials(), node.calls.dials());
    println!(
        "silent: reported after {reported_after:?}; in 5 min {dials:?} dials for events and calls"
    );
    assert!(dials.0 <= 5 * MOST_SUBSCRIBES && dials.1 <= 12, "{dials:?}");

    // A server that responds replaces it.
    node.events.set_accepting(Accepting::Served);
    node.calls.set_accepting(Accepting::Served);
    node.events.break_now(Break::End);
    node.calls.break_now(Break::End);
    node.until(2 * SECOND, "it is ready", || {
        generator.pleg.health().ready().is_ok()
    })
    .await?;
    node.until(MINUTE + 2 * SECOND, "nothing is degraded", || {
        generator.is_well()
    })
    .await?;
    node.check_and_end(generator, &kubelet).await
}
