//! Invariant 9: a terminal record is kept until every consumer that was registered when the end was
//! announced has acknowledged it.

use pleg_core::{ConsumerId, EventType, LifecycleType, ReportedState};

use crate::script::{Script, exited, ready, s, status};
use EventType::{Created, Deleted, Started, Stopped};

const WORKER: ConsumerId = ConsumerId::new(1);
const PROBER: ConsumerId = ConsumerId::new(2);

/// A container runs, and those consumers are registered.
fn running(consumers: &[ConsumerId]) -> Script {
    let mut t = Script::confirmed();
    for consumer in consumers {
        t.machine.register(*consumer, &"worker".into());
    }
    t.event(Created, "s", s(), &[]);
    let running = status("c", "p", ReportedState::Running);
    t.event(Started, "c", s(), &[running]);
    t
}

fn stop(t: &mut Script) {
    t.event(Stopped, "c", s(), &[exited("c", "p", 1, "Error")]);
}

fn acknowledge(t: &mut Script, consumer: ConsumerId) {
    t.machine.acknowledge(consumer, &"c".into(), 0);
    t.drain();
}

fn is_acknowledged(t: &Script) -> bool {
    t.machine.is_acknowledged(&"c".into())
}

#[test]
fn record_is_kept_until_every_registered_consumer_has_acknowledged_it() {
    let mut t = running(&[WORKER, PROBER]);
    stop(&mut t);
    acknowledge(&mut t, WORKER);
    acknowledge(&mut t, WORKER);
    assert_eq!(t.ends.len(), 1);
    assert!(!is_acknowledged(&t));
    acknowledge(&mut t, PROBER);
    assert!(t.ends.is_empty());
    assert!(is_acknowledged(&t));
}

/// An acknowledged terminal record does not return with the removal.
#[test]
fn acknowledged_record_does_not_return_with_the_removal() {
    let mut t = running(&[WORKER]);
    stop(&mut t);
    acknowledge(&mut t, WORKER);
    t.event(Deleted, "c", s(), &[]);
    assert_eq!(t.said(LifecycleType::ContainerRemoved, "c"), 1);
    assert!(t.ends.is_empty() && is_acknowledged(&t));
}

/// A removal adds to a record that is still awaited. It does not await its consumers again.
#[test]
fn removal_does_not_await_a_consumer_twice() {
    let mut t = running(&[WORKER, PROBER]);
    stop(&mut t);
    acknowledge(&mut t, WORKER);
    t.event(Deleted, "c", s(), &[]);
    assert!(t.ends[0].removed);
    acknowledge(&mut t, PROBER);
    assert!(t.ends.is_empty());
}

#[test]
fn container_that_has_not_ended_is_not_acknowledged() {
    let mut t = running(&[]);
    assert!(!is_acknowledged(&t) && !t.machine.is_acknowledged(&"nobody".into()));
    stop(&mut t);
    assert!(is_acknowledged(&t), "no consumer is registered");
    assert_eq!(t.ends.len(), 1, "kept within the bounds");
}

/// A list shows the exit. Until the status was read there is no Died, so nothing is acknowledged.
#[test]
fn end_that_is_not_announced_yet_is_not_acknowledged() {
    let mut t = running(&[]);
    t.relist_shows(&[ready(), exited("c", "p", 1, "Error")]);
    assert_eq!(t.said(LifecycleType::ContainerDied, "c"), 0);
    assert!(!is_acknowledged(&t));
}

#[test]
fn dropped_consumer_is_not_awaited() {
    let mut t = running(&[WORKER, PROBER]);
    stop(&mut t);
    acknowledge(&mut t, WORKER);
    t.machine.unregister(PROBER);
    assert!(is_acknowledged(&t));
}

/// A generator starts while three containers of a name have ended and one runs, which then ends before the
/// status of the others is read: their ends are detected later than its own.
#[test]
fn end_is_kept_beside_older_ends_that_are_detected_later() {
    let mut t = Script::new();
    t.machine.register(WORKER, &"worker".into());
    let rows = |c| {
        let old = ["a", "b", "d"].map(|id| exited(id, "p", 1, "Error"));
        let mut rows = [&[s().unwrap(), c][..], &old].concat();
        let containers = rows[1..].iter_mut();
        containers.for_each(|row| row.identity.name = Some("app".into()));
        rows
    };
    t.list(&rows(status("c", "p", ReportedState::Running)));
    t.subscribe();
    stop(&mut t);
    assert_eq!(t.said(LifecycleType::ContainerDied, "c"), 1);
    assert_eq!(t.said(LifecycleType::ContainerDied, "a"), 0, "not read yet");
    t.inspect(&rows(exited("c", "p", 1, "Error")), &[]);
    assert_eq!(t.said(LifecycleType::ContainerDied, "a"), 1);
    assert_eq!(t.ends.len(), 4);
    assert!(!is_acknowledged(&t), "it must not be removed yet");
}

/// The pod is gone for ten minutes, whoever has not acknowledged.
#[test]
fn unacknowledged_record_expires_ten_minutes_after_the_pod() {
    let mut t = running(&[WORKER]);
    stop(&mut t);
    t.event(Deleted, "c", s(), &[]);
    t.event(Deleted, "s", None, &[]);
    t.pass(599_000);
    assert!(!t.ends.is_empty());
    t.pass(1_000);
    assert!(t.ends.is_empty());
    assert!(is_acknowledged(&t), "nothing is kept for the consumer");
}

#[test]
fn attempt_is_in_the_announcement_and_in_the_record() {
    let mut t = Script::confirmed();
    t.event(Created, "s", s(), &[]);
    let mut ended = exited("c", "p", 1, "Error");
    ended.identity.attempt = 4;
    t.event(Stopped, "c", s(), &[ended]);
    let died = t.events.last().and_then(|e| e.subject.as_ref());
    assert_eq!(died.map(|s| s.attempt), Some(4));
    assert_eq!(t.ends[0].attempt, 4);
}
