//! Checks the ports with the cases of upstream's own tests (generic_test.go, evented_test.go and cache_test.go
//! of Kubernetes 1.36 and 1.37) that matter in a comparison.
//!
//! Time is paused: it advances when all tasks wait.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::time::Duration;

use pleg::Pleg;
use pleg_core::{CallErrorKind, EventType, PodUid, Report, ReportedState};
use pleg_runtime::fake::{FakeRuntime, Op, container, exited, sandbox};
use rivals::{Fifo, Ours, Port, Subject};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn pod(uid: &str) -> PodUid {
    uid.into()
}

async fn sleep(subject: &impl Subject, time: Duration) {
    let clock = subject.clock();
    clock.sleep_until(clock.now().after(time)).await;
}

/// The available lifecycle events as sorted text: `p Died p-c`, `p PodSync`.
fn drain(fifo: &mut Fifo) -> Vec<String> {
    let all = std::iter::from_fn(|| fifo.try_next());
    let text = all.map(|e| {
        let what = e.event.as_str().trim_start_matches("Container");
        e.data.map_or_else(
            || format!("{} {what}", e.uid),
            |id| format!("{} {what} {id}", e.uid),
        )
    });
    let mut text: Vec<String> = text.collect();
    text.sort();
    text
}

async fn relist(generic: &Port<FakeRuntime>, fifo: &mut Fifo) -> Vec<String> {
    generic.relist().await;
    drain(fifo)
}

/// The time until the subject has a status of the pod that is newer than `after`.
async fn waited(subject: &impl Subject, uid: &str, after: pleg_core::Instant) -> Duration {
    let began = subject.clock().now();
    let uid = pod(uid);
    let newer = subject.newer_than(&uid, after);
    let newer = tokio::time::timeout(60 * SECOND, newer).await;
    newer.expect("in time");
    subject.clock().now().since(began)
}

/// Upstream's TestRelisting and TestDetectingContainerDeaths, with containers and with sandboxes.
#[tokio::test(start_paused = true)]
async fn relist_announces_every_change_of_state_once() {
    type Create = fn(&str, &str, ReportedState) -> Report;
    for create in [container as Create, sandbox] {
        let node = FakeRuntime::new();
        let (generic, mut fifo) = Port::without_timer(node.clone());
        node.put(create("p1", "c1", ReportedState::Exited));
        node.put(create("p1", "c2", ReportedState::Running));
        node.put(create("p1", "c3", ReportedState::Unknown));
        node.put(create("p2", "c1", ReportedState::Running));
        let first = ["p1 Died p1-c1", "p1 Started p1-c2", "p2 Started p2-c1"];
        assert_eq!(relist(&generic, &mut fifo).await, first);
        assert!(relist(&generic, &mut fifo).await.is_empty());
        node.remove("p1-c1");
        node.put(create("p1", "c2", ReportedState::Exited));
        node.put(create("p1", "c3", ReportedState::Running));
        node.remove("p2-c1");
        let second = [
            "p1 Died p1-c2",
            "p1 Removed p1-c1",
            "p1 Started p1-c3",
            "p2 Died p2-c1",
            "p2 Removed p2-c1",
        ];
        assert_eq!(relist(&generic, &mut fifo).await, second);
        assert_eq!(generic.state(&pod("p2"), &"p2-c1".into()), None);
    }
}

/// Upstream's TestRelistWithCache and TestReinspect: no event while the inspection of a pod fails; the next relist
/// inspects this pod and no other. NotFound is no failure (TestGetPodStatusWithNotFoundError).
#[tokio::test(start_paused = true)]
async fn only_pod_with_failed_inspection_is_inspected_again() {
    let node = FakeRuntime::new();
    let (generic, mut fifo) = Port::without_timer(node.clone());
    node.run_pod("p0");
    node.run_pod("p1");
    node.fail(Op::pod("p1"), CallErrorKind::Unavailable);
    let started = ["p0 Started p0-c", "p0 Started p0-s"];
    assert_eq!(relist(&generic, &mut fifo).await, started);
    assert_eq!(generic.state(&pod("p1"), &"p1-c".into()), None);
    node.succeed(&Op::pod("p1"));
    let removed = "p1-c";
    node.delay(Op::status("p1-s"), SECOND);
    let removal = async {
        sleep(&generic, 500 * MS).await;
        node.remove(removed);
    };
    tokio::join!(generic.relist(), removal);
    let started = ["p1 Started p1-c", "p1 Started p1-s"];
    assert_eq!(drain(&mut fifo), started);
    assert_eq!(generic.state(&pod("p1"), &removed.into()), None);
    assert_eq!(node.count(&Op::status("p0-c")), 1);
}

/// Upstream's TestWorkerLoop: a relist of one pod answers only waiters of this pod. If a relist of the node began after
/// a request to relist a pod, the port drops the request.
#[tokio::test(start_paused = true)]
async fn relist_of_one_pod_answers_only_waiters_of_this_pod() {
    let node = FakeRuntime::new();
    node.run_pod("p1");
    node.run_pod("p2");
    let (generic, mut fifo) = Port::generic(node.clone());
    sleep(&generic, SECOND / 2).await;
    assert!(generic.is_healthy());
    drain(&mut fifo);
    let now = generic.clock().now();
    generic.request_relist(&pod("p1"));
    let (first, second) = tokio::join!(waited(&generic, "p1", now), waited(&generic, "p2", now));
    assert!(first <= 3 * MS, "{first:?}");
    assert!((400 * MS..=510 * MS).contains(&second), "{second:?}");
    assert_eq!(node.count(&Op::pod("p1")), 1);
    assert!(drain(&mut fifo).is_empty());
    // The relist of the node becomes due while this pod is relisted, so the node is relisted before the next request.
    node.delay(Op::pod("p1"), 3 * SECOND);
    generic.request_relist(&pod("p1"));
    sleep(&generic, 100 * MS).await;
    let before = generic.clock().now();
    generic.request_relist(&pod("p2"));
    waited(&generic, "p2", before).await;
    sleep(&generic, SECOND / 2).await;
    assert_eq!(node.count(&Op::pod("p2")), 0);
    generic.shutdown().await;
}

/// Upstream's TestGetNewerThan, for a pod that does not exist.
#[tokio::test(start_paused = true)]
async fn newer_than_ignores_relists_begun_before_its_instant() {
    let node = FakeRuntime::new();
    let (generic, _fifo) = Port::without_timer(node.clone());
    generic.relist().await;
    let listed = generic.clock().now();
    sleep(&generic, SECOND).await;
    let now = generic.clock().now();
    let later = now.after(MS);
    let (early, late, ()) = tokio::join!(
        waited(&generic, "missing", now),
        waited(&generic, "missing", later),
        async {
            generic.relist().await;
            sleep(&generic, 10 * MS).await;
            generic.relist().await;
        }
    );
    assert!(early < MS && late >= 10 * MS, "{early:?} {late:?}");
    assert!(waited(&generic, "missing", listed).await < MS);
}

/// Upstream's TestProcessCRIEventsRequestsRelistOnlyForStoppedEvents.
#[tokio::test(start_paused = true)]
async fn port_of_1_37_relists_pod_only_for_stopped_event() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let (hint, _fifo) = Port::hint(node.clone());
    sleep(&hint, 10 * MS).await;
    node.put(exited("p", "c", 2));
    for (event, relists) in [
        (EventType::Started, 0),
        (EventType::Deleted, 0),
        (EventType::Stopped, 1),
    ] {
        node.emit(event, "p-c");
        sleep(&hint, MS).await;
        assert_eq!(node.count(&Op::pod("p")), relists, "{event:?}");
    }
    let shown = hint.state(&pod("p"), &"p-c".into());
    assert_eq!(shown, Some(ReportedState::Exited));
    hint.shutdown().await;
}

/// Returns how long the generator takes to announce the exit of a container if the runtime sends STOPPED. Checks that
/// no task is left after the shutdown.
async fn exit_announced_after<S: Subject>(
    start: impl FnOnce(FakeRuntime) -> (S, Fifo),
) -> Duration {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let (subject, mut fifo) = start(node.clone());
    sleep(&subject, 500 * MS).await;
    drain(&mut fifo);
    node.put_and_emit(exited("p", "c", 1), EventType::Stopped);
    let began = subject.clock().now();
    while drain(&mut fifo) != ["p Died p-c"] {
        sleep(&subject, MS).await;
    }
    let took = subject.clock().now().since(began);
    subject.shutdown().await;
    drop(subject);
    assert!(node.is_released());
    took
}

#[tokio::test(start_paused = true)]
async fn only_generic_port_waits_for_next_list_to_announce_exit() {
    let ours = |node| Ours::start(Pleg::builder(node)).unwrap();
    assert!(exit_announced_after(Port::hint).await <= 3 * MS);
    assert!(exit_announced_after(ours).await <= 3 * MS);
    let polled = exit_announced_after(Port::generic).await;
    assert!((400 * MS..SECOND).contains(&polled), "{polled:?}");
}
