//! UNKNOWN is outside of the order of states (invariant 2): what sets it, and what clears it.

use pleg_core::{ContainerState, EventType, LifecycleType, PodUid, ReportedState, SandboxState};

use crate::script::{Script, exited, rows, s, sandbox, status, statuses};
use EventType::{Created, Deleted, Stopped};
use LifecycleType::{ContainerChanged, ContainerDied, PodSync};

/// UNKNOWN is no position, but it shows that the id exists: the answer must contain it.
#[test]
fn removed_id_inspected_as_unknown_is_in_the_answer() {
    let mut t = Script::running();
    t.event(Deleted, "c", s(), &[]);
    t.wait("p", t.now());
    t.inspect(&statuses(ReportedState::Unknown), &[]);
    let (_, answer) = t.answers.pop().expect("an answer");
    assert_eq!(answer.expect("a view").status.containers.len(), 1);
    assert_ne!(t.view().as_of, Some(t.now()));
}

/// A list from before an inspection that returned UNKNOWN does not clear UNKNOWN.
#[test]
fn older_list_does_not_clear_unknown() {
    let mut t = Script::running();
    t.relist();
    t.pass(5);
    t.wait("p", t.now());
    t.inspect(
        &[
            sandbox("s", "p", ReportedState::Unknown),
            status("c", "p", ReportedState::Running),
        ],
        &[],
    );
    t.list(&rows(ReportedState::Running));
    let unknown = SandboxState::Unknown {
        last_ready: Some(true),
    };
    assert_eq!(t.view().status.sandboxes[0].state, unknown);
    assert_eq!(t.said(ContainerChanged, "s"), 1);
}

/// UNKNOWN from a single status is published, so the pod must be inspected again.
#[test]
fn unknown_from_a_status_read_is_inspected_again() {
    let mut t = Script::running();
    t.event(Stopped, "c", s(), &[exited("c", "p", 1, "Error")]);
    t.pass(2_000);
    assert!(t.read_wanted());
    t.read(status("c", "p", ReportedState::Unknown));
    t.pass(1_100);
    assert_eq!(t.inspection_wanted(), Some(&PodUid::from("p")));
}

/// An event may be older than the inspection that returned UNKNOWN, whenever it arrives: the answer
/// would show Created as of a time at which the container runs (found by seed 140796).
#[test]
fn late_event_does_not_clear_unknown_unless_it_reports_an_end() {
    let mut t = Script::confirmed();
    t.wait("p", t.now());
    t.inspect(&statuses(ReportedState::Unknown), &[]);
    t.event(
        Created,
        "c",
        s(),
        &[status("c", "p", ReportedState::Created)],
    );
    let state = |t: &Script| t.view().status.containers[0].state;
    assert!(matches!(state(&t), ContainerState::Unknown { .. }));
    t.event(Stopped, "c", s(), &[exited("c", "p", 3, "Error")]);
    assert_eq!(state(&t), ContainerState::Exited);
}

/// The status is of another id than the event's subject, so the event is complete.
#[test]
fn unknown_in_a_status_of_an_event_causes_an_inspection() {
    let mut t = Script::running();
    t.take_requested();
    let unknown = [status("c", "p", ReportedState::Unknown)];
    t.event(EventType::Started, "s", s(), &unknown);
    assert_eq!(t.take_requested_of_pods(), ["p (unknown)"]);
}

/// Died was announced without an exit code, so nothing waits for the code that a late STOPPED lacks, too.
#[test]
fn sandbox_that_is_known_again_is_announced_beside_an_end_without_exit_code() {
    let mut t = Script::running();
    let unknown = [
        sandbox("s", "p", ReportedState::Unknown),
        status("c", "p", ReportedState::Unknown),
    ];
    t.relist_shows(&rows(ReportedState::Exited));
    t.inspect(&unknown, &[]);
    assert_eq!(t.said(ContainerDied, "c"), 1);
    t.event(Stopped, "c", s(), &unknown[1..]);
    let syncs = |t: &Script| {
        let events = t.events.iter();
        events.filter(|event| event.event == PodSync).count()
    };
    let before = syncs(&t);
    t.relist_shows(&rows(ReportedState::Exited));
    assert_eq!(t.get("p").status.sandboxes[0].state, SandboxState::Ready);
    assert!(syncs(&t) > before);
}
