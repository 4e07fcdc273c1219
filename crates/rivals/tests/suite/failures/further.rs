//! Further entries that the ports show: what a lost, bare or early event costs, what events leave
//! out, and what one bad pod does to the node.

use std::time::Duration;

use pleg_core::{ContainerDetails, Details, EventType, Resources, RuntimeEvent, Shown};
use rivals::{Fifo, Subject};

use crate::support::{
    MINUTE, MS, Node, Op, SECOND, attempt, cached, container, drain, evented_1_35, evented_1_36,
    exited, forget, generic, hint, ours, pass, pod, sandbox, settled, soon, until,
};

/// After how long a container's end is announced, given what the runtime tells of it.
async fn end_announced<S: Subject>(
    start: impl FnOnce(&Node) -> (S, Fifo),
    told: impl FnOnce(RuntimeEvent) -> Option<RuntimeEvent>,
) -> Option<Duration> {
    let node = Node::new();
    node.run_pod("p");
    let (subject, mut fifo) = start(&node);
    settled(&subject, &node, "p").await;
    forget(&mut fifo);
    node.put(exited("p", "c", 1));
    if let Some(event) = told(node.event(EventType::Stopped, "p-c", subject.wall())) {
        node.tell(&event);
    }
    let announced = || drain(&mut fifo).iter().any(|e| e == "p Died p-c");
    let took = until(&subject, announced).await;
    soon(subject.shutdown()).await;
    took
}

/// A11 (k#114371). Upstream: an event without a sandbox's status is passed over; five minutes.
/// Ours: the id is known, so the event is as good as any.
#[tokio::test(start_paused = true)]
async fn a11_an_event_without_its_sandbox() {
    let bare = |event: RuntimeEvent| {
        Some(RuntimeEvent {
            sandbox: None,
            ..event
        })
    };
    let upstream = end_announced(evented_1_36, bare).await.unwrap();
    assert!(upstream >= 290 * SECOND, "{upstream:?}");
    let ours = end_announced(ours, bare).await.unwrap();
    assert!(ours <= MS, "{ours:?}");
}

/// A12 (containerd#8892, cri-o#7210). Upstream: a lost event costs five minutes. Ours: it is found
/// by the next list, and the lists come often again.
#[tokio::test(start_paused = true)]
async fn a12_a_lost_event() {
    let upstream = end_announced(evented_1_36, |_| None).await.unwrap();
    assert!(upstream >= 290 * SECOND, "{upstream:?}");
    let ours = end_announced(ours, |_| None).await.unwrap();
    assert!(ours <= 11 * SECOND, "{ours:?}");
}

/// A container ends at once; its STARTED comes after its STOPPED, with what was read before. What
/// the cache shows ten minutes later.
async fn started_after_stopped<S: Subject>(
    start: impl FnOnce(&Node) -> (S, Fifo),
) -> Option<Shown> {
    let node = Node::new();
    node.run_sandbox("p");
    let (subject, _fifo) = start(&node);
    settled(&subject, &node, "p").await;
    node.put(container("p", "c", Shown::Running));
    let mut started = node.event(EventType::Started, "p-c", subject.wall());
    node.put(exited("p", "c", 1));
    node.tell(&node.event(EventType::Stopped, "p-c", subject.wall()));
    pass(&subject, MS).await;
    started.created_at = subject.wall().as_nanos();
    node.tell(&started);
    pass(&subject, 10 * MINUTE).await;
    let shown = cached(&subject, "p", "c");
    soon(subject.shutdown()).await;
    shown
}

/// A15 (containerd#7111 and its like). Upstream: the last event wins, so it runs for ever. Ours:
/// what has ended stays ended, whatever the order.
#[tokio::test(start_paused = true)]
async fn a15_started_after_stopped() {
    assert_eq!(
        started_after_stopped(evented_1_36).await,
        Some(Shown::Running)
    );
    assert_eq!(started_after_stopped(ours).await, Some(Shown::Exited));
}

/// A container ends while the stream is opened for the first time. After how long the cache shows
/// it.
async fn gap_at_the_start<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> Option<Duration> {
    let node = Node::new();
    node.run_pod("p");
    node.take(Op::Subscribe, 100 * MS);
    let (subject, _fifo) = start(&node);
    pass(&subject, 50 * MS).await;
    assert_eq!(cached(&subject, "p", "c"), Some(Shown::Running));
    node.put(exited("p", "c", 1));
    let ended = || cached(&subject, "p", "c") == Some(Shown::Exited);
    let took = until(&subject, ended).await;
    soon(subject.shutdown()).await;
    took
}

/// A17 (the review of k#111384). Upstream: lists, then subscribes. Ours: the stream is not trusted
/// until a list was begun after it.
#[tokio::test(start_paused = true)]
async fn a17_the_gap_at_the_start() {
    let upstream = gap_at_the_start(evented_1_36).await.unwrap();
    assert!(upstream >= 290 * SECOND, "{upstream:?}");
    let ours = gap_at_the_start(ours).await.unwrap();
    assert!(ours <= 2 * SECOND, "{ours:?}");
}

/// A container is resized, and its worker wants to see that. After how long the cache shows it.
async fn resized<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> Option<Duration> {
    let node = Node::new();
    node.run_pod("p");
    let (subject, _fifo) = start(&node);
    settled(&subject, &node, "p").await;
    let mut larger = container("p", "c", Shown::Running);
    larger.details = Details::from(ContainerDetails {
        resources: Some(
            Resources {
                memory_limit: 1 << 30,
                ..Resources::default()
            }
            .into(),
        ),
        ..ContainerDetails::default()
    });
    node.put(larger.clone());
    subject.request_reinspect(&"p".into());
    let seen = || {
        let status = subject.get(&"p".into()).status;
        status.container("c").map(|c| &c.details) == Some(&larger.details)
    };
    let took = until(&subject, seen).await;
    soon(subject.shutdown()).await;
    took
}

/// A8 (k#129829). Upstream: no event tells of it, so the wish is served by the list five minutes
/// later. Ours: at once.
#[tokio::test(start_paused = true)]
async fn a8_a_resize_waits_for_the_list() {
    let upstream = resized(evented_1_35).await.unwrap();
    assert!(upstream >= 290 * SECOND, "{upstream:?}");
    let ours = resized(ours).await.unwrap();
    assert!(ours <= MS, "{ours:?}");
}

/// A container is removed and told so. Whether the cache still shows it when that is announced.
async fn container_deleted<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> bool {
    let node = Node::new();
    node.run_sandbox("p");
    node.put(exited("p", "c", 0));
    let (subject, mut fifo) = start(&node);
    settled(&subject, &node, "p").await;
    forget(&mut fifo);
    let mut deleted = node.event(EventType::Deleted, "p-c", subject.wall());
    node.remove("p-c");
    deleted.containers.clear();
    node.tell(&deleted);
    let announced = || drain(&mut fifo).iter().any(|e| e == "p Removed p-c");
    assert!(until(&subject, announced).await.unwrap() <= MS);
    let shown = cached(&subject, "p", "c").is_some();
    soon(subject.shutdown()).await;
    shown
}

/// B5. Upstream: announces the removal and keeps the container in the cache, for whoever then
/// looks. Ours: the cache is written first.
#[tokio::test(start_paused = true)]
async fn b5_removed_and_still_cached() {
    assert!(container_deleted(evented_1_36).await);
    assert!(!container_deleted(ours).await);
}

/// A pod has an old sandbox with a container that has ended; an event tells of the new one. How
/// many sandboxes, containers and active containers the cache shows.
async fn two_sandboxes<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> [usize; 3] {
    let node = Node::new();
    node.put(sandbox("p", "s", Shown::Exited));
    node.put(exited("p", "old", 0));
    node.put(attempt(sandbox("p", "s1", Shown::Running), 1));
    let mut running = container("p", "c", Shown::Running);
    running.identity.sandbox = Some("p-s1".into());
    node.put(running);
    let (subject, _fifo) = start(&node);
    settled(&subject, &node, "p").await;
    node.tell(&node.event(EventType::Started, "p-c", subject.wall()));
    pass(&subject, MS).await;
    let status = subject.get(&"p".into()).status;
    soon(subject.shutdown()).await;
    [
        status.sandboxes.len(),
        status.containers.len(),
        status.active.len(),
    ]
}

/// B7. Upstream: what the event does not mention is gone, and none of its containers is active.
/// Ours: what an event does not mention is untouched.
#[tokio::test(start_paused = true)]
async fn b7_what_an_event_leaves_out() {
    assert_eq!(two_sandboxes(evented_1_36).await, [1, 1, 0]);
    assert_eq!(two_sandboxes(ours).await, [2, 2, 1]);
}

/// The only container of each of 300 pods crashes, and every call takes 5 ms. After how long the
/// last end is announced.
async fn crash_of_many<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> Option<Duration> {
    let node = Node::new();
    let uids: Vec<String> = (0..300).map(|n| format!("p{n}")).collect();
    uids.iter().for_each(|uid| node.run_pod(uid));
    let (subject, mut fifo) = start(&node);
    settled(&subject, &node, "p299").await;
    pass(&subject, 200 * MS).await;
    forget(&mut fifo);
    for uid in &uids {
        node.take(pod(uid), 5 * MS);
        node.put(exited(uid, "c", 0));
        let id = format!("{uid}-c");
        node.tell(&node.event(EventType::Stopped, &id, subject.wall()));
    }
    let mut announced = 0;
    let all = || {
        announced += drain(&mut fifo).len();
        announced >= 300
    };
    let took = until(&subject, all).await;
    soon(subject.shutdown()).await;
    took
}

/// B15. Upstream (1.37): every event is a relist of its pod, one after the other, and what does
/// not fit into the queue waits for the list of the node. Ours: the event has said it all.
#[tokio::test(start_paused = true)]
async fn b15_a_crash_of_many() {
    let upstream = crash_of_many(hint).await.unwrap();
    assert!(upstream >= 3 * SECOND, "{upstream:?}");
    let ours = crash_of_many(ours).await.unwrap();
    assert!(ours <= MS, "{ours:?}");
}

/// What two pods whose statuses hang do to the others.
#[derive(Debug, PartialEq, Eq)]
struct Hung {
    /// The end of another pod's container is announced within two seconds.
    others_served: bool,
    /// Through ten minutes.
    always_healthy: bool,
}

async fn two_hung_pods<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> Hung {
    let node = Node::new();
    for uid in ["a", "b", "p"] {
        node.run_pod(uid);
    }
    let (subject, mut fifo) = start(&node);
    until(&subject, || subject.healthy().is_ok()).await;
    pass(&subject, 100 * MS).await;
    forget(&mut fifo);
    for uid in ["a", "b"] {
        node.take(pod(uid), 60 * MINUTE);
        node.put(exited(uid, "c", 1));
    }
    pass(&subject, 15 * SECOND).await;
    node.put(exited("p", "c", 1));
    if node.streams() > 0 {
        node.tell(&node.event(EventType::Stopped, "p-c", subject.wall()));
    }
    pass(&subject, 2 * SECOND).await;
    let others_served = drain(&mut fifo).iter().any(|e| e == "p Died p-c");
    let mut always_healthy = true;
    for _ in 0..600 {
        pass(&subject, SECOND).await;
        always_healthy &= subject.healthy().is_ok();
    }
    soon(subject.shutdown()).await;
    Hung {
        others_served,
        always_healthy,
    }
}

/// C2 (k#93886, k#94829). Upstream: one status call after the other, two minutes each: nobody else
/// is looked at, and two such pods make the node unready. Ours: two bad pods are two bad pods.
#[tokio::test(start_paused = true)]
async fn c2_hung_pods_take_the_node_with_them() {
    let upstream = Hung {
        others_served: false,
        always_healthy: false,
    };
    assert_eq!(two_hung_pods(generic).await, upstream);
    let ours_is = Hung {
        others_served: true,
        always_healthy: true,
    };
    assert_eq!(two_hung_pods(ours).await, ours_is);
}

/// The status of a pod cannot be read for a while, after one that could. Whether the cache still
/// shows that one.
async fn failed_inspection<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> bool {
    let node = Node::new();
    node.run_pod("p");
    let (subject, _fifo) = start(&node);
    pass(&subject, 100 * MS).await;
    node.fail(pod("p"));
    node.put(exited("p", "c", 1));
    pass(&subject, 15 * SECOND).await;
    let answer = subject.get(&"p".into());
    assert!(answer.error.is_some(), "the error is told");
    soon(subject.shutdown()).await;
    !answer.status.is_nothing()
}

/// C6 (k#24819). Upstream: the error overwrites the status. Ours: it stands beside the last good
/// one.
#[tokio::test(start_paused = true)]
async fn c6_an_error_overwrites_the_status() {
    assert!(!failed_inspection(generic).await);
    assert!(failed_inspection(ours).await);
}

/// A container lives and goes between two lists; the runtime tells of all of it. What is announced.
async fn between_two_lists<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> Vec<String> {
    let node = Node::new();
    node.run_sandbox("p");
    let (subject, mut fifo) = start(&node);
    pass(&subject, 100 * MS).await;
    forget(&mut fifo);
    for (report, event) in [
        (container("p", "c", Shown::Created), EventType::Created),
        (container("p", "c", Shown::Running), EventType::Started),
        (exited("p", "c", 3), EventType::Stopped),
    ] {
        node.put(report);
        node.tell(&node.event(event, "p-c", subject.wall()));
        pass(&subject, 10 * MS).await;
    }
    let mut deleted = node.event(EventType::Deleted, "p-c", subject.wall());
    deleted.containers.clear();
    node.remove("p-c");
    node.tell(&deleted);
    pass(&subject, MINUTE).await;
    soon(subject.shutdown()).await;
    drain(&mut fifo)
}

/// C4 (k#67923). Upstream: what no list shows never was. Ours: all of it is told.
#[tokio::test(start_paused = true)]
async fn c4_a_life_between_two_lists() {
    assert!(between_two_lists(generic).await.is_empty());
    let whole = ["p Started p-c", "p Died p-c", "p Removed p-c"];
    assert_eq!(between_two_lists(ours).await, whole);
}

/// A step of a pod's end: the kubelet has stopped the container, and half a second after the last
/// list asks for what came of it. How long that takes.
async fn step_of_an_end<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> Duration {
    let node = Node::new();
    node.run_pod("p");
    let (subject, _fifo) = start(&node);
    pass(&subject, 500 * MS).await;
    node.put(exited("p", "c", 0));
    let asked = subject.clock().now();
    let answer = soon(subject.newer_than(&"p".into(), asked)).await;
    let container = answer.status.container("c").map(|c| c.shown);
    assert_eq!(container, Some(Shown::Exited));
    let took = subject.clock().now().since(asked);
    soon(subject.shutdown()).await;
    took
}

/// C13 (k#137362). Upstream: waits for the next list; only a sync that succeeded asks for one of
/// its own. Ours: a read, at once.
#[tokio::test(start_paused = true)]
async fn c13_a_step_waits_for_the_list() {
    let upstream = step_of_an_end(generic).await;
    assert!((400 * MS..=SECOND).contains(&upstream), "{upstream:?}");
    let ours = step_of_an_end(ours).await;
    assert!(ours <= MS, "{ours:?}");
}

/// A pod is gone, and its relist is asked for. After how long the cache says so.
async fn relist_of_the_gone<S: Subject>(
    start: impl FnOnce(&Node) -> (S, Fifo),
) -> Option<Duration> {
    let node = Node::new();
    node.run_pod("p");
    let (subject, _fifo) = start(&node);
    pass(&subject, 500 * MS).await;
    node.remove("p-c");
    node.remove("p-s");
    subject.request_relist(&"p".into());
    let gone = || subject.get(&"p".into()).status.is_nothing();
    let took = until(&subject, gone).await;
    soon(subject.shutdown()).await;
    took
}

/// C16. Upstream: a relist of a pod that finds nothing does nothing. Ours: it has found that there
/// is nothing.
#[tokio::test(start_paused = true)]
async fn c16_a_relist_does_not_see_an_end() {
    let upstream = relist_of_the_gone(generic).await.unwrap();
    assert!((400 * MS..=SECOND).contains(&upstream), "{upstream:?}");
    let ours = relist_of_the_gone(ours).await.unwrap();
    assert!(ours <= MS, "{ours:?}");
}
