//! Invariant 6 at the start: a runtime replays the events that it held to the first subscriber. The
//! list shows what exists then.

use pleg_core::{EventType, LifecycleType, ReportedState, Source};

use crate::script::{Script, exited, ready, s, status};
use EventType::{Started, Stopped};
use LifecycleType::{ContainerDied, ContainerStarted};

/// A minute old, from long before the subscribe.
const OLD: i64 = -60_000;

/// Before the first complete list, an old event causes no inspection: the list shows its pod.
#[test]
fn replay_before_the_first_list_waits_for_it() {
    let mut t = Script::new();
    t.subscribe();
    t.stamped(OLD, Stopped, "c", s(), &[exited("c", "p", 3, "Error")]);
    assert_eq!(t.inspections_wanted(), 0);
    assert!(t.announced.is_empty());
    let node = [ready(), exited("c", "p", 3, "Error")];
    t.list(&node);
    t.inspect(&node, &[]);
    assert_eq!(t.said(ContainerStarted, "s"), 1);
    assert_eq!(t.said(ContainerDied, "c"), 1);
    assert!(t.events.iter().all(|e| e.source == Source::Relist));
}

/// After the first list, the same event is a hint and causes an inspection.
#[test]
fn replay_after_the_first_list_is_a_hint() {
    let mut t = Script::confirmed();
    t.stamped(OLD, Stopped, "c", s(), &[exited("c", "p", 3, "Error")]);
    assert_eq!(t.inspections_wanted(), 1);
}

/// A container that had exited before the subscribe is not announced as started by an old event.
#[test]
fn replayed_started_of_an_exited_container_is_not_announced() {
    let mut t = Script::new();
    t.subscribe();
    let node = [ready(), exited("c", "p", 3, "Error")];
    t.list(&node);
    t.stamped(
        OLD,
        Started,
        "c",
        s(),
        &[status("c", "p", ReportedState::Running)],
    );
    t.inspect(&node, &[]);
    assert_eq!(t.said(ContainerDied, "c"), 1);
    assert_eq!(t.said(ContainerStarted, "c"), 0);
}
