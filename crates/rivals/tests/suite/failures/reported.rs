//! What was reported against the classic evented PLEG (A).

use std::time::Duration;

use pleg_core::{EventType, Kind, Shown};
use rivals::{Fifo, Subject};

use crate::support::{
    Deed, MINUTE, MS, Node, Op, PodWorker, SECOND, evented_1_28, evented_1_35, evented_1_36,
    exited, hint, ours, pass, pod, settled, soon, until,
};

/// Two triggers in a row sync a pod of which the first one has created the container; no event of
/// that has come yet. How many containers there are then, and how long the second sync waited for
/// its status.
async fn two_quick_syncs<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> (usize, Duration) {
    let node = Node::new();
    node.run_sandbox("p");
    let (subject, _fifo) = start(&node);
    settled(&subject, &node, "p").await;
    let mut worker = PodWorker::new(&subject, &node, "p", &[]);
    assert_eq!(worker.sync().await, [Deed::CreatedContainer]);
    let asked = subject.clock().now();
    worker.sync().await;
    let waited = subject.clock().now().since(asked) - 50 * MS;
    soon(subject.shutdown()).await;
    (node.ids(Kind::Container).len(), waited)
}

/// A1 (k#120941). Upstream: with events in use a sync asked for nothing newer than the last one,
/// so the second saw the status from before the first. Ours: it is answered by a read begun after
/// the first sync.
#[tokio::test(start_paused = true)]
async fn a1_duplicate_containers() {
    let (containers, waited) = two_quick_syncs(evented_1_28).await;
    assert!(containers == 2 && waited <= MS, "{containers}, {waited:?}");
    let (containers, waited) = two_quick_syncs(ours).await;
    assert!(containers == 1 && waited <= MS, "{containers}, {waited:?}");
}

/// What came of a sync whose STARTED is late.
#[derive(Debug, PartialEq, Eq)]
struct LateStarted {
    containers: usize,
    /// How long the second sync waited for its status.
    waited: Duration,
    /// How often the pod was read for it.
    reads: usize,
}

/// A sync creates and starts the container; of that the CREATED event comes at once and the
/// STARTED event does not. Then the pod is synced again.
async fn started_is_late<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> LateStarted {
    let node = Node::new();
    node.run_sandbox("p");
    let (subject, _fifo) = start(&node);
    settled(&subject, &node, "p").await;
    let mut worker = PodWorker::new(&subject, &node, "p", &[EventType::Created]);
    let reads = node.asked(&pod("p"));
    assert_eq!(worker.sync().await, [Deed::CreatedContainer]);
    let asked = subject.clock().now();
    worker.sync().await;
    let waited = subject.clock().now().since(asked) - 50 * MS;
    soon(subject.shutdown()).await;
    LateStarted {
        containers: node.ids(Kind::Container).len(),
        waited,
        reads: node.asked(&pod("p")) - reads,
    }
}

/// A2 (k#121349). Upstream: a timer releases the second sync with the CREATED event's snapshot,
/// and a container that was created is one to be started anew. Ours: no timer and no event
/// answers; the read that does shows it running.
#[tokio::test(start_paused = true)]
async fn a2_static_pods_run_twice() {
    let upstream = started_is_late(evented_1_35).await;
    assert_eq!((upstream.containers, upstream.reads), (2, 0));
    assert!(
        (4 * SECOND..5 * SECOND).contains(&upstream.waited),
        "{upstream:?}"
    );
    let ours = started_is_late(ours).await;
    assert_eq!(ours.containers, 1);
    assert!(ours.reads >= 1 && ours.waited <= 2 * MS, "{ours:?}");
}

/// A2 again, in 1.36. Upstream: the relist of the pod on demand sees it running, but containerd
/// stamps no status, so the cache rejects it (B8) and then calls the CREATED event's snapshot
/// observed. Ours: as above.
#[tokio::test(start_paused = true)]
async fn a2_static_pods_run_twice_on_demand() {
    let upstream = started_is_late(evented_1_36).await;
    assert_eq!(upstream.containers, 2);
    assert!(upstream.waited <= 2 * MS, "{upstream:?}");
    assert!(upstream.reads >= 1, "{upstream:?}");
}

/// The kubelet stops a container, hears of it before its sync is over, and syncs again. How long
/// that waits for a status newer than the first sync, and how often the pod is read for it.
async fn event_within_the_sync<S: Subject>(
    start: impl FnOnce(&Node) -> (S, Fifo),
) -> (Duration, usize) {
    let node = Node::new();
    node.run_pod("p");
    let (subject, _fifo) = start(&node);
    settled(&subject, &node, "p").await;
    pass(&subject, SECOND).await;
    node.put(exited("p", "c", 0));
    node.tell(&node.event(EventType::Stopped, "p-c", subject.wall()));
    pass(&subject, 50 * MS).await;
    let (sync_ended, reads) = (subject.clock().now(), node.asked(&pod("p")));
    let answer = soon(subject.newer_than(&"p".into(), sync_ended)).await;
    let waited = subject.clock().now().since(sync_ended);
    let container = answer.status.container("c").map(|c| c.shown);
    assert_eq!(container, Some(Shown::Exited));
    soon(subject.shutdown()).await;
    (waited, node.asked(&pod("p")) - reads)
}

/// A6 (k#124704). Upstream: the event is older than the sync, so every further step of a deletion
/// waits for the 5 s timer. Ours: one read, at once.
#[tokio::test(start_paused = true)]
async fn a6_every_step_waits_for_the_timer() {
    let (waited, reads) = event_within_the_sync(evented_1_35).await;
    assert!((3 * SECOND..5 * SECOND).contains(&waited), "{waited:?}");
    assert_eq!(reads, 0);
    let (waited, reads) = event_within_the_sync(ours).await;
    assert!(waited <= MS, "{waited:?}");
    assert_eq!(reads, 1);
}

/// What came of a restart of the runtime.
#[derive(Debug)]
struct Restarted {
    /// After how long the stream was used again; never within 20 minutes.
    back_after: Option<Duration>,
    /// How often the node was listed in the ten minutes thereafter.
    lists: usize,
}

/// The runtime restarts: for 0.4 s it refuses.
async fn short_restart<S: Subject>(start: impl FnOnce(&Node) -> (S, Fifo)) -> Restarted {
    let node = Node::new();
    node.run_pod("p");
    let (subject, _fifo) = start(&node);
    settled(&subject, &node, "p").await;
    node.tell(&node.event(EventType::Started, "p-c", subject.wall()));
    pass(&subject, MINUTE).await;
    node.fail(Op::Subscribe);
    node.cut();
    pass(&subject, 400 * MS).await;
    node.succeed(&Op::Subscribe);
    let back_after = until(&subject, || node.streams() == 1).await;
    // Whoever listens is shown that the stream delivers.
    node.tell(&node.event(EventType::Started, "p-c", subject.wall()));
    let lists = node.asked(&Op::List);
    pass(&subject, 10 * MINUTE).await;
    assert_eq!(subject.healthy(), Ok(()));
    soon(subject.shutdown()).await;
    Restarted {
        back_after,
        lists: node.asked(&Op::List) - lists,
    }
}

/// A7 (k#129827). Upstream: five retries in no time, then no events until the kubelet restarts,
/// in the hint design (1.37) too. Ours: used again as soon as it is back, and the lists grow rare.
#[tokio::test(start_paused = true)]
async fn a7_one_restart_turns_events_off() {
    let classic = short_restart(evented_1_36).await;
    assert_eq!(classic.back_after, None);
    assert!(classic.lists >= 590, "{classic:?}");
    let hint = short_restart(hint).await;
    assert_eq!(hint.back_after, None);
    let ours = short_restart(ours).await;
    assert!(ours.back_after.unwrap() <= 100 * MS, "{ours:?}");
    assert!(ours.lists <= 20, "{ours:?}");
}
