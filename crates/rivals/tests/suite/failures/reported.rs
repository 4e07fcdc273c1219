//! Failures that were reported against the classic evented PLEG (A).

use std::time::Duration;

use pleg_core::{EventType, Kind, ReportedState};
use rivals::{Fifo, Subject};

use crate::support::{
    Action, DOWN, FakeRuntime, MINUTE, MS, Op, PodWorker, SECOND, event_at, evented_1_28,
    evented_1_35, evented_1_36, exited, hint, ours, sandbox, sleep, wait_until, wait_until_ready,
    with_timeout,
};

/// The first of two syncs creates the container, and no event of it arrives. Returns the number of
/// containers afterwards, and how long the second sync waited for its status.
async fn two_quick_syncs<S: Subject>(
    start: impl FnOnce(&FakeRuntime) -> (S, Fifo),
) -> (usize, Duration) {
    let node = FakeRuntime::new();
    node.put(sandbox("p", "s", ReportedState::Running));
    let (subject, _fifo) = start(&node);
    wait_until_ready(&subject, &node, "p").await;
    let mut worker = PodWorker::new(&subject, &node, "p", &[]);
    assert_eq!(worker.sync().await, [Action::CreatedContainer]);
    let began = subject.clock().now();
    worker.sync().await;
    let waited = subject.clock().now().since(began) - 50 * MS;
    with_timeout(subject.shutdown()).await;
    (node.ids(Kind::Container).len(), waited)
}

/// A1 (k#120941). Upstream: with events, a sync did not require a status newer than the last sync,
/// so the second sync got the status from before the first. Ours: a read that began after the first
/// sync answers it.
#[tokio::test(start_paused = true)]
async fn a1_duplicate_containers() {
    let (containers, waited) = two_quick_syncs(evented_1_28).await;
    assert!(containers == 2 && waited <= MS, "{containers}, {waited:?}");
    let (containers, waited) = two_quick_syncs(ours).await;
    assert!(containers == 1 && waited <= MS, "{containers}, {waited:?}");
}

/// The result of a sync whose STARTED event is late.
#[derive(Debug, PartialEq, Eq)]
struct LateStarted {
    containers: usize,
    /// How long the second sync waited for its status.
    waited: Duration,
    /// How often the second sync caused a read of the pod.
    reads: usize,
}

/// A sync creates and starts the container. The CREATED event arrives at once and the STARTED event
/// does not arrive. Then the pod is synced again.
async fn started_is_late<S: Subject>(start: impl FnOnce(&FakeRuntime) -> (S, Fifo)) -> LateStarted {
    let node = FakeRuntime::new();
    node.put(sandbox("p", "s", ReportedState::Running));
    let (subject, _fifo) = start(&node);
    wait_until_ready(&subject, &node, "p").await;
    let mut worker = PodWorker::new(&subject, &node, "p", &[EventType::Created]);
    let reads = node.count(&Op::pod("p"));
    assert_eq!(worker.sync().await, [Action::CreatedContainer]);
    let began = subject.clock().now();
    worker.sync().await;
    let waited = subject.clock().now().since(began) - 50 * MS;
    with_timeout(subject.shutdown()).await;
    LateStarted {
        containers: node.ids(Kind::Container).len(),
        waited,
        reads: node.count(&Op::pod("p")) - reads,
    }
}

/// A2 (k#121349). Upstream: a timer releases the second sync with the statuses of the CREATED event,
/// and the kubelet replaces a container in the state Created. Ours: neither a timer nor an event
/// answers the waiter; a read does, and shows the container running.
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

/// A2 in 1.36. Upstream: the relist of the pod on demand shows the container running, but statuses of
/// containerd have no timestamp, so the cache rejects it (B8) and marks the statuses of the CREATED
/// event as observed. Ours: as in `a2_static_pods_run_twice`.
#[tokio::test(start_paused = true)]
async fn a2_static_pods_run_twice_on_demand() {
    let upstream = started_is_late(evented_1_36).await;
    assert_eq!(upstream.containers, 2);
    assert!(upstream.waited <= 2 * MS, "{upstream:?}");
    assert!(upstream.reads >= 1, "{upstream:?}");
}

/// The kubelet stops a container, gets the event before its sync ends, and syncs again. Returns how
/// long the second sync waits for a status newer than the first, and how often it reads the pod.
async fn event_during_sync<S: Subject>(
    start: impl FnOnce(&FakeRuntime) -> (S, Fifo),
) -> (Duration, usize) {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let (subject, _fifo) = start(&node);
    wait_until_ready(&subject, &node, "p").await;
    sleep(&subject, SECOND).await;
    node.put(exited("p", "c", 0));
    node.send(&event_at(&node, EventType::Stopped, "p-c", subject.wall()));
    sleep(&subject, 50 * MS).await;
    let (sync_ended, reads) = (subject.clock().now(), node.count(&Op::pod("p")));
    let answer = with_timeout(subject.newer_than(&"p".into(), sync_ended)).await;
    let waited = subject.clock().now().since(sync_ended);
    let container = answer.status.container("c").map(|c| c.shown);
    assert_eq!(container, Some(ReportedState::Exited));
    with_timeout(subject.shutdown()).await;
    (waited, node.count(&Op::pod("p")) - reads)
}

/// A6 (k#124704). Upstream: the event is older than the end of the sync, so every step of a deletion
/// waits for the 5 s timer. Ours: one read, at once.
#[tokio::test(start_paused = true)]
async fn a6_every_step_waits_for_the_timer() {
    let (waited, reads) = event_during_sync(evented_1_35).await;
    assert!((3 * SECOND..5 * SECOND).contains(&waited), "{waited:?}");
    assert_eq!(reads, 0);
    let (waited, reads) = event_during_sync(ours).await;
    assert!(waited <= MS, "{waited:?}");
    assert_eq!(reads, 1);
}

/// The result of a restart of the runtime.
#[derive(Debug)]
struct Restarted {
    /// The time until the generator subscribed again; `None` if it did not within 20 minutes.
    resubscribed_after: Option<Duration>,
    /// How often the node was listed in the ten minutes afterwards.
    lists: usize,
}

/// The runtime restarts: subscribes fail for 0.4 s.
async fn short_restart<S: Subject>(start: impl FnOnce(&FakeRuntime) -> (S, Fifo)) -> Restarted {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let (subject, _fifo) = start(&node);
    wait_until_ready(&subject, &node, "p").await;
    node.send(&event_at(&node, EventType::Started, "p-c", subject.wall()));
    sleep(&subject, MINUTE).await;
    node.fail(Op::Subscribe, DOWN);
    node.break_streams();
    sleep(&subject, 400 * MS).await;
    node.succeed(&Op::Subscribe);
    let resubscribed_after = wait_until(&subject, || node.streams() == 1).await;
    // Shows subscribers that the stream delivers events.
    node.send(&event_at(&node, EventType::Started, "p-c", subject.wall()));
    let lists = node.count(&Op::List);
    sleep(&subject, 10 * MINUTE).await;
    assert_eq!(subject.healthy(), Ok(()));
    with_timeout(subject.shutdown()).await;
    Restarted {
        resubscribed_after,
        lists: node.count(&Op::List) - lists,
    }
}

/// A7 (k#129827). Upstream: five retries without pauses, then no events until the kubelet restarts;
/// the same in the hint design (1.37). Ours: the stream is used again as soon as the runtime is back,
/// and the relist period grows.
#[tokio::test(start_paused = true)]
async fn a7_one_restart_turns_events_off() {
    let classic = short_restart(evented_1_36).await;
    assert_eq!(classic.resubscribed_after, None);
    assert!(classic.lists >= 590, "{classic:?}");
    let hint = short_restart(hint).await;
    assert_eq!(hint.resubscribed_after, None);
    let ours = short_restart(ours).await;
    assert!(ours.resubscribed_after.unwrap() <= 100 * MS, "{ours:?}");
    assert!(ours.lists <= 20, "{ours:?}");
}
