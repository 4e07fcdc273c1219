//! What existed at the start is marked as `initial`, and `Synced` follows it.

use pleg_core::{CallErrorKind, EventType, LifecycleType, Report, ReportedState};

use crate::script::{Script, container, exited, ready, rows, sandbox, status};

use LifecycleType::{ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted};

/// The announcements of one id, and whether each was marked.
fn marks(t: &Script, id: &str) -> Vec<(LifecycleType, bool)> {
    let of_id = t.events.iter().filter(|event| {
        let subject = event.subject.as_ref();
        subject.is_some_and(|subject| subject.id.as_str() == id)
    });
    of_id.map(|event| (event.event, event.initial)).collect()
}

fn node() -> Vec<Report> {
    vec![
        ready(),
        status("runs", "p", ReportedState::Running),
        status("waits", "p", ReportedState::Created),
        exited("ended", "p", 3, "Error"),
    ]
}

/// A generator that was just started on that node.
fn started_on(node: Vec<Report>) -> Script {
    let mut t = Script::new();
    t.node = node;
    t.settle();
    t
}

#[test]
fn ids_in_the_first_list_are_initial() {
    let t = started_on(node());
    assert_eq!(marks(&t, "s"), [(ContainerStarted, true)]);
    assert_eq!(marks(&t, "runs"), [(ContainerStarted, true)]);
    assert_eq!(marks(&t, "waits"), [(ContainerChanged, true)]);
    assert_eq!(marks(&t, "ended"), [(ContainerDied, true)]);
    let died = t.events.iter().find(|event| event.event == ContainerDied);
    let died = died.expect("announced");
    assert!(died.happened_at.is_some(), "with its own finished_at");
}

#[test]
fn change_after_the_first_list_is_not_initial() {
    let mut t = started_on(node());
    t.node[1] = exited("runs", "p", 1, "Error");
    t.node[2] = status("waits", "p", ReportedState::Running);
    t.node.remove(3);
    t.relist();
    t.settle();
    assert_eq!(marks(&t, "runs")[1..], [(ContainerDied, false)]);
    assert_eq!(marks(&t, "waits")[1..], [(ContainerStarted, false)]);
    assert_eq!(marks(&t, "ended")[1..], [(ContainerRemoved, false)]);
}

/// The container ran at the start and has exited since: only Started is initial.
#[test]
fn death_before_the_first_inspection_is_not_initial() {
    let mut t = Script::new();
    t.list(&rows(ReportedState::Running));
    t.inspect(&[ready(), exited("c", "p", 1, "Error")], &[]);
    let expected = [(ContainerStarted, true), (ContainerDied, false)];
    assert_eq!(marks(&t, "c"), expected);
}

/// UNKNOWN is no state: the first inspection shows the state at the start.
#[test]
fn unknown_at_the_start_is_initial_when_it_is_known() {
    let mut t = Script::new();
    t.list(&[container("c", "p", ReportedState::Unknown)]);
    t.inspect(&[exited("c", "p", 1, "Error")], &[]);
    assert_eq!(marks(&t, "c"), [(ContainerDied, true)]);
}

/// What an event showed before the first list happened after the start.
#[test]
fn event_before_the_first_list_is_not_initial() {
    let mut t = Script::new();
    t.subscribe();
    let s = ready();
    let c = status("c", "p", ReportedState::Running);
    t.event(
        EventType::Started,
        "c",
        Some(s.clone()),
        std::slice::from_ref(&c),
    );
    t.node = vec![s, c];
    t.settle();
    assert_eq!(marks(&t, "c"), [(ContainerStarted, false)]);
}

/// An event also has the statuses of containers that ran or had ended long before.
#[test]
fn sibling_of_the_subject_before_the_first_list_is_initial() {
    let mut t = Script::new();
    t.subscribe();
    let mut node = node();
    node.push(status("c", "p", ReportedState::Running));
    t.event(EventType::Started, "c", Some(ready()), &node[1..]);
    assert_eq!(marks(&t, "ended"), [(ContainerDied, true)]);
    t.node = node;
    t.settle();
    assert_eq!(marks(&t, "s"), [(ContainerStarted, true)]);
    assert_eq!(marks(&t, "runs"), [(ContainerStarted, true)]);
    assert_eq!(marks(&t, "ended"), [(ContainerDied, true)]);
    assert_eq!(marks(&t, "c"), [(ContainerStarted, false)]);
}

/// After the first list, nothing that an event shows existed at the start.
#[test]
fn sibling_of_the_subject_after_the_first_list_is_not_initial() {
    let mut t = started_on(Vec::new());
    t.subscribe();
    let siblings = [
        status("c", "p", ReportedState::Running),
        exited("ended", "p", 3, "Error"),
    ];
    t.event(EventType::Started, "c", Some(ready()), &siblings);
    assert_eq!(marks(&t, "ended"), [(ContainerDied, false)]);
}

/// The reason of an initial exit is final: it is not read again 2 s later.
#[test]
fn initial_exit_is_not_read_again_for_its_reason() {
    let mut t = started_on(node());
    t.run(10_000);
    assert_eq!(t.machine.counters().exit_reads, 0);
}

#[test]
fn synced_follows_the_last_initial_event() {
    let mut t = Script::new();
    t.list(&[ready(), sandbox("z", "q", ReportedState::Running)]);
    t.inspect(&[ready()], &[]);
    assert_eq!(t.synced_after, None, "q was not inspected");
    t.inspect(&[sandbox("z", "q", ReportedState::Running)], &[]);
    assert_eq!(t.synced_after, Some(t.events.len()));
    assert_eq!(t.events.len(), 2);
    t.relist();
    t.settle();
    assert_eq!(t.synced_after, Some(2), "once");
}

/// A pod that cannot be inspected does not delay `Synced`; its later announcements are initial.
#[test]
fn pod_that_fails_does_not_delay_synced() {
    let mut t = Script::new();
    t.list(&[container("c", "p", ReportedState::Exited)]);
    t.inspection_fails(&[]);
    assert!(t.synced_after.is_some());
    t.pass(1_500);
    t.inspect(&[exited("c", "p", 3, "Error")], &[]);
    assert_eq!(marks(&t, "c")[0], (ContainerDied, true));
}

/// Before the first complete list the generator is not synced.
#[test]
fn failed_list_does_not_sync() {
    let mut t = Script::new();
    t.list_fails(CallErrorKind::Unavailable);
    t.pass(100);
    assert_eq!(t.synced_after, None);
    t.node = node();
    t.pass(1_000);
    t.settle();
    assert!(t.synced_after.is_some());
    assert_eq!(marks(&t, "ended"), [(ContainerDied, true)]);
}

/// An empty node is synced after its first list.
#[test]
fn empty_node_is_synced_by_its_first_list() {
    let t = started_on(Vec::new());
    assert_eq!(t.synced_after, Some(0));
}

#[test]
fn id_in_a_later_list_is_not_initial() {
    let mut t = started_on(node());
    t.node.push(status("new", "p", ReportedState::Running));
    t.relist();
    t.settle();
    assert_eq!(marks(&t, "new"), [(ContainerStarted, false)]);
}
