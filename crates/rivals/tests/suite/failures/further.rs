//! Further entries that the ports show: lost, incomplete and out-of-order events, changes without an
//! event, and the effect of one bad pod on the node.

use std::time::Duration;

use pleg_core::{EventType, ReportedState, RuntimeEvent};
use rivals::{Fifo, Subject};

use crate::support::{
    DOWN, FakeRuntime, MINUTE, MS, Op, SECOND, attempt, cached, container, discard, drain,
    event_at, evented_1_35, evented_1_36, exited, generic, hint, ours, sandbox, sleep, wait_until,
    wait_until_ready, with_memory_limit, with_timeout, without_sandbox,
};

/// Returns the time until the exit of a container is announced. `alter` changes or drops its event.
async fn exit_announced_after<S: Subject>(
    start: impl FnOnce(&FakeRuntime) -> (S, Fifo),
    alter: impl FnOnce(RuntimeEvent) -> Option<RuntimeEvent>,
) -> Option<Duration> {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let (subject, mut fifo) = start(&node);
    wait_until_ready(&subject, &node, "p").await;
    discard(&mut fifo);
    node.put(exited("p", "c", 1));
    if let Some(event) = alter(event_at(&node, EventType::Stopped, "p-c", subject.wall())) {
        node.send(&event);
    }
    let announced = || drain(&mut fifo).iter().any(|e| e == "p Died p-c");
    let took = wait_until(&subject, announced).await;
    with_timeout(subject.shutdown()).await;
    took
}

/// A11 (k#114371). Upstream: an event without a sandbox status is ignored, so it takes five minutes.
/// Ours: the id is known, so the sandbox status is not needed.
#[tokio::test(start_paused = true)]
async fn a11_an_event_without_its_sandbox() {
    let without_sandbox = |event| Some(without_sandbox(event));
    let upstream = exit_announced_after(evented_1_36, without_sandbox)
        .await
        .unwrap();
    assert!(upstream >= 290 * SECOND, "{upstream:?}");
    let ours = exit_announced_after(ours, without_sandbox).await.unwrap();
    assert!(ours <= MS, "{ours:?}");
}

/// A12 (containerd#8892, cri-o#7210). Upstream: a lost event delays the change by five minutes. Ours:
/// the next list finds the change, and the relist period becomes short again.
#[tokio::test(start_paused = true)]
async fn a12_a_lost_event() {
    let upstream = exit_announced_after(evented_1_36, |_| None).await.unwrap();
    assert!(upstream >= 290 * SECOND, "{upstream:?}");
    let ours = exit_announced_after(ours, |_| None).await.unwrap();
    assert!(ours <= 11 * SECOND, "{ours:?}");
}

/// A container exits immediately. Its STARTED event arrives after its STOPPED event, with older
/// statuses. Returns the cached state ten minutes later.
async fn started_after_stopped<S: Subject>(
    start: impl FnOnce(&FakeRuntime) -> (S, Fifo),
) -> Option<ReportedState> {
    let node = FakeRuntime::new();
    node.put(sandbox("p", "s", ReportedState::Running));
    let (subject, _fifo) = start(&node);
    wait_until_ready(&subject, &node, "p").await;
    node.put(container("p", "c", ReportedState::Running));
    let mut started = event_at(&node, EventType::Started, "p-c", subject.wall());
    node.put(exited("p", "c", 1));
    node.send(&event_at(&node, EventType::Stopped, "p-c", subject.wall()));
    sleep(&subject, MS).await;
    started.created_at = subject.wall().as_nanos();
    node.send(&started);
    sleep(&subject, 10 * MINUTE).await;
    let shown = cached(&subject, "p", "c");
    with_timeout(subject.shutdown()).await;
    shown
}

/// A15 (containerd#7111 and similar). Upstream: the last event wins, so the container stays Running.
/// Ours: an exited container stays exited, with any order of events.
#[tokio::test(start_paused = true)]
async fn a15_started_after_stopped() {
    assert_eq!(
        started_after_stopped(evented_1_36).await,
        Some(ReportedState::Running)
    );
    assert_eq!(
        started_after_stopped(ours).await,
        Some(ReportedState::Exited)
    );
}

/// A container exits during the first subscribe. Returns the time until the cache shows it.
async fn exit_during_first_subscribe<S: Subject>(
    start: impl FnOnce(&FakeRuntime) -> (S, Fifo),
) -> Option<Duration> {
    let node = FakeRuntime::new();
    node.run_pod("p");
    node.delay(Op::Subscribe, 100 * MS);
    let (subject, _fifo) = start(&node);
    sleep(&subject, 50 * MS).await;
    assert_eq!(cached(&subject, "p", "c"), Some(ReportedState::Running));
    node.put(exited("p", "c", 1));
    let ended = || cached(&subject, "p", "c") == Some(ReportedState::Exited);
    let took = wait_until(&subject, ended).await;
    with_timeout(subject.shutdown()).await;
    took
}

/// A17 (the review of k#111384). Upstream: lists, then subscribes. Ours: the stream is not trusted
/// before a list that began after the subscribe.
#[tokio::test(start_paused = true)]
async fn a17_the_gap_at_the_start() {
    let upstream = exit_during_first_subscribe(evented_1_36).await.unwrap();
    assert!(upstream >= 290 * SECOND, "{upstream:?}");
    let ours = exit_during_first_subscribe(ours).await.unwrap();
    assert!(ours <= 2 * SECOND, "{ours:?}");
}

/// A container is resized, and its worker requests a reinspection. Returns the time until the cache
/// shows it.
async fn resized<S: Subject>(start: impl FnOnce(&FakeRuntime) -> (S, Fifo)) -> Option<Duration> {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let (subject, _fifo) = start(&node);
    wait_until_ready(&subject, &node, "p").await;
    let larger = with_memory_limit(container("p", "c", ReportedState::Running), 1 << 30);
    node.put(larger.clone());
    subject.request_reinspect(&"p".into());
    let seen = || {
        let status = subject.get(&"p".into()).status;
        status.container("c").map(|c| &c.details) == Some(&larger.details)
    };
    let took = wait_until(&subject, seen).await;
    with_timeout(subject.shutdown()).await;
    took
}

/// A8 (k#129829). Upstream: there is no event, so the list five minutes later serves the request.
/// Ours: at once.
#[tokio::test(start_paused = true)]
async fn a8_a_resize_waits_for_the_list() {
    let upstream = resized(evented_1_35).await.unwrap();
    assert!(upstream >= 290 * SECOND, "{upstream:?}");
    let ours = resized(ours).await.unwrap();
    assert!(ours <= MS, "{ours:?}");
}

/// A container is removed, with an event. Returns whether the cache still shows it when the removal
/// is announced.
async fn container_deleted<S: Subject>(start: impl FnOnce(&FakeRuntime) -> (S, Fifo)) -> bool {
    let node = FakeRuntime::new();
    node.put(sandbox("p", "s", ReportedState::Running));
    node.put(exited("p", "c", 0));
    let (subject, mut fifo) = start(&node);
    wait_until_ready(&subject, &node, "p").await;
    discard(&mut fifo);
    let mut deleted = event_at(&node, EventType::Deleted, "p-c", subject.wall());
    node.remove("p-c");
    deleted.containers.clear();
    node.send(&deleted);
    let announced = || drain(&mut fifo).iter().any(|e| e == "p Removed p-c");
    assert!(wait_until(&subject, announced).await.unwrap() <= MS);
    let shown = cached(&subject, "p", "c").is_some();
    with_timeout(subject.shutdown()).await;
    shown
}

/// B5. Upstream: announces the removal and keeps the container in the cache. Ours: the cache is
/// written first.
#[tokio::test(start_paused = true)]
async fn b5_removed_and_still_cached() {
    assert!(container_deleted(evented_1_36).await);
    assert!(!container_deleted(ours).await);
}

/// A pod has an old sandbox with an exited container, and an event of the new sandbox arrives.
/// Returns the number of cached sandboxes, containers and active containers.
async fn two_sandboxes<S: Subject>(start: impl FnOnce(&FakeRuntime) -> (S, Fifo)) -> [usize; 3] {
    let node = FakeRuntime::new();
    node.put(sandbox("p", "s", ReportedState::Exited));
    node.put(exited("p", "old", 0));
    node.put(attempt(sandbox("p", "s1", ReportedState::Running), 1));
    let mut running = container("p", "c", ReportedState::Running);
    running.identity.sandbox = Some("p-s1".into());
    node.put(running);
    let (subject, _fifo) = start(&node);
    wait_until_ready(&subject, &node, "p").await;
    node.send(&event_at(&node, EventType::Started, "p-c", subject.wall()));
    sleep(&subject, MS).await;
    let status = subject.get(&"p".into()).status;
    with_timeout(subject.shutdown()).await;
    [
        status.sandboxes.len(),
        status.containers.len(),
        status.active.len(),
    ]
}

/// B7. Upstream: sandboxes and containers that are not in the event are dropped, and no container is
/// active. Ours: they are not changed.
#[tokio::test(start_paused = true)]
async fn b7_what_an_event_leaves_out() {
    assert_eq!(two_sandboxes(evented_1_36).await, [1, 1, 0]);
    assert_eq!(two_sandboxes(ours).await, [2, 2, 1]);
}

/// The only container of each of 300 pods exits, and every call takes 5 ms. Returns the time until
/// the last exit is announced.
async fn crash_of_many<S: Subject>(
    start: impl FnOnce(&FakeRuntime) -> (S, Fifo),
) -> Option<Duration> {
    let node = FakeRuntime::new();
    let uids: Vec<String> = (0..300).map(|n| format!("p{n}")).collect();
    uids.iter().for_each(|uid| node.run_pod(uid));
    let (subject, mut fifo) = start(&node);
    wait_until_ready(&subject, &node, "p299").await;
    sleep(&subject, 200 * MS).await;
    discard(&mut fifo);
    for uid in &uids {
        node.delay(Op::pod(uid), 5 * MS);
        node.put(exited(uid, "c", 0));
        let id = format!("{uid}-c");
        node.send(&event_at(&node, EventType::Stopped, &id, subject.wall()));
    }
    let mut announced = 0;
    let all = || {
        announced += drain(&mut fifo).len();
        announced >= 300
    };
    let took = wait_until(&subject, all).await;
    with_timeout(subject.shutdown()).await;
    took
}

/// B15. Upstream (1.37): every event causes a relist of its pod, one after the other, and requests
/// that do not fit into the queue wait for the list of the node. Ours: the events are sufficient.
#[tokio::test(start_paused = true)]
async fn b15_a_crash_of_many() {
    let upstream = crash_of_many(hint).await.unwrap();
    assert!(upstream >= 3 * SECOND, "{upstream:?}");
    let ours = crash_of_many(ours).await.unwrap();
    assert!(ours <= MS, "{ours:?}");
}

/// The effect of two pods whose status calls hang.
#[derive(Debug, PartialEq, Eq)]
struct HungPods {
    /// The exit of another pod's container is announced within two seconds.
    others_served: bool,
    /// The generator stays healthy for ten minutes.
    always_healthy: bool,
}

async fn two_hung_pods<S: Subject>(start: impl FnOnce(&FakeRuntime) -> (S, Fifo)) -> HungPods {
    let node = FakeRuntime::new();
    for uid in ["a", "b", "p"] {
        node.run_pod(uid);
    }
    let (subject, mut fifo) = start(&node);
    wait_until(&subject, || subject.healthy().is_ok()).await;
    sleep(&subject, 100 * MS).await;
    discard(&mut fifo);
    for uid in ["a", "b"] {
        node.delay(Op::pod(uid), 60 * MINUTE);
        node.put(exited(uid, "c", 1));
    }
    sleep(&subject, 15 * SECOND).await;
    node.put(exited("p", "c", 1));
    if node.streams() > 0 {
        node.send(&event_at(&node, EventType::Stopped, "p-c", subject.wall()));
    }
    sleep(&subject, 2 * SECOND).await;
    let others_served = drain(&mut fifo).iter().any(|e| e == "p Died p-c");
    let mut always_healthy = true;
    for _ in 0..600 {
        sleep(&subject, SECOND).await;
        always_healthy &= subject.healthy().is_ok();
    }
    with_timeout(subject.shutdown()).await;
    HungPods {
        others_served,
        always_healthy,
    }
}

/// C2 (k#93886, k#94829). Upstream: one status call after the other, two minutes each: other pods are
/// not inspected, and two such pods make the node unready. Ours: only these two pods are affected.
#[tokio::test(start_paused = true)]
async fn c2_hung_pods_take_the_node_with_them() {
    let upstream = HungPods {
        others_served: false,
        always_healthy: false,
    };
    assert_eq!(two_hung_pods(generic).await, upstream);
    let expected = HungPods {
        others_served: true,
        always_healthy: true,
    };
    assert_eq!(two_hung_pods(ours).await, expected);
}

/// The inspection of a pod fails after an earlier one succeeded. Returns whether the cache still has
/// the earlier status.
async fn failed_inspection<S: Subject>(start: impl FnOnce(&FakeRuntime) -> (S, Fifo)) -> bool {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let (subject, _fifo) = start(&node);
    sleep(&subject, 100 * MS).await;
    node.fail(Op::pod("p"), DOWN);
    node.put(exited("p", "c", 1));
    sleep(&subject, 15 * SECOND).await;
    let answer = subject.get(&"p".into());
    assert!(answer.error.is_some(), "the error is cached");
    with_timeout(subject.shutdown()).await;
    !answer.status.is_empty()
}

/// C6 (k#24819). Upstream: the error overwrites the status. Ours: the last good status is kept beside
/// the error.
#[tokio::test(start_paused = true)]
async fn c6_an_error_overwrites_the_status() {
    assert!(!failed_inspection(generic).await);
    assert!(failed_inspection(ours).await);
}

/// A container is created and removed between two lists, with all events. Returns the lifecycle
/// events.
async fn between_two_lists<S: Subject>(
    start: impl FnOnce(&FakeRuntime) -> (S, Fifo),
) -> Vec<String> {
    let node = FakeRuntime::new();
    node.put(sandbox("p", "s", ReportedState::Running));
    let (subject, mut fifo) = start(&node);
    sleep(&subject, 100 * MS).await;
    discard(&mut fifo);
    for (report, event) in [
        (
            container("p", "c", ReportedState::Created),
            EventType::Created,
        ),
        (
            container("p", "c", ReportedState::Running),
            EventType::Started,
        ),
        (exited("p", "c", 3), EventType::Stopped),
    ] {
        node.put(report);
        node.send(&event_at(&node, event, "p-c", subject.wall()));
        sleep(&subject, 10 * MS).await;
    }
    let mut deleted = event_at(&node, EventType::Deleted, "p-c", subject.wall());
    deleted.containers.clear();
    node.remove("p-c");
    node.send(&deleted);
    sleep(&subject, MINUTE).await;
    with_timeout(subject.shutdown()).await;
    drain(&mut fifo)
}

/// C4 (k#67923). Upstream: a container that no list shows is not announced. Ours: every change is
/// announced.
#[tokio::test(start_paused = true)]
async fn c4_a_life_between_two_lists() {
    assert!(between_two_lists(generic).await.is_empty());
    let expected = ["p Started p-c", "p Died p-c", "p Removed p-c"];
    assert_eq!(between_two_lists(ours).await, expected);
}

/// A step of a pod's termination: the kubelet has stopped the container and waits for a newer
/// status, half a second after the last list. Returns how long this takes.
async fn termination_step<S: Subject>(start: impl FnOnce(&FakeRuntime) -> (S, Fifo)) -> Duration {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let (subject, _fifo) = start(&node);
    sleep(&subject, 500 * MS).await;
    node.put(exited("p", "c", 0));
    let began = subject.clock().now();
    let answer = with_timeout(subject.newer_than(&"p".into(), began)).await;
    let container = answer.status.container("c").map(|c| c.shown);
    assert_eq!(container, Some(ReportedState::Exited));
    let took = subject.clock().now().since(began);
    with_timeout(subject.shutdown()).await;
    took
}

/// C13 (k#137362). Upstream: waits for the next list; only a successful sync requests a relist.
/// Ours: one read, at once.
#[tokio::test(start_paused = true)]
async fn c13_a_step_waits_for_the_list() {
    let upstream = termination_step(generic).await;
    assert!((400 * MS..=SECOND).contains(&upstream), "{upstream:?}");
    let ours = termination_step(ours).await;
    assert!(ours <= MS, "{ours:?}");
}

/// A pod is removed and its relist is requested. Returns the time until it is no longer cached.
async fn relist_of_removed_pod<S: Subject>(
    start: impl FnOnce(&FakeRuntime) -> (S, Fifo),
) -> Option<Duration> {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let (subject, _fifo) = start(&node);
    sleep(&subject, 500 * MS).await;
    node.remove("p-c");
    node.remove("p-s");
    subject.request_relist(&"p".into());
    let gone = || subject.get(&"p".into()).status.is_empty();
    let took = wait_until(&subject, gone).await;
    with_timeout(subject.shutdown()).await;
    took
}

/// C16. Upstream: a relist of a pod that does not exist has no effect. Ours: it shows that the pod is
/// removed.
#[tokio::test(start_paused = true)]
async fn c16_a_relist_does_not_see_an_end() {
    let upstream = relist_of_removed_pod(generic).await.unwrap();
    assert!((400 * MS..=SECOND).contains(&upstream), "{upstream:?}");
    let ours = relist_of_removed_pod(ours).await.unwrap();
    assert!(ours <= MS, "{ours:?}");
}
