//! Invariant 6 at the start: a runtime replays what it held while nobody listened, to whoever
//! subscribes first. What exists then is told by the list.

use pleg_core::{EventType, LifecycleType, ReportedState, Source};

use crate::script::{Script, exited, sandbox, status};
use EventType::{Started, Stopped};
use LifecycleType::{ContainerDied, ContainerStarted};

/// A minute old: from long before the subscribe.
const OLD: i64 = -60_000;

fn s() -> Option<pleg_core::Report> {
    Some(sandbox("s", "p", ReportedState::Running))
}

/// Until the node was listed once, an old event causes no read of its own: the list shows its pod.
#[test]
fn replay_before_the_first_list_waits_for_it() {
    let mut t = Script::new();
    t.subscribe();
    t.stamped(OLD, Stopped, "c", s(), &[exited("c", "p", 3, "Error")]);
    assert_eq!(t.inspections_wanted(), 0);
    assert!(t.announced.is_empty());
    let node = [
        sandbox("s", "p", ReportedState::Running),
        exited("c", "p", 3, "Error"),
    ];
    t.list(&node);
    t.inspect(&node, &[]);
    assert_eq!(t.said(ContainerStarted, "s"), 1);
    assert_eq!(t.said(ContainerDied, "c"), 1);
    assert!(t.events.iter().all(|e| e.source == Source::Relist));
}

/// After the first list, the same event is a hint to inspect.
#[test]
fn replay_after_the_first_list_is_a_hint() {
    let mut t = Script::confirmed();
    t.stamped(OLD, Stopped, "c", s(), &[exited("c", "p", 3, "Error")]);
    assert_eq!(t.inspections_wanted(), 1);
}

/// What had ended before we listened has not started now: old news of a state that is over is
/// not announced.
#[test]
fn replayed_started_of_an_exited_container_is_not_announced() {
    let mut t = Script::new();
    t.subscribe();
    let node = [
        sandbox("s", "p", ReportedState::Running),
        exited("c", "p", 3, "Error"),
    ];
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
