//! Announcements that wait for a status: which reads release them (invariant 3).

use pleg_core::{CallErrorKind, FailedStatus, Inspection, LifecycleType, ReportedState};

use crate::script::{Script, container, failure, ready, rows, status, statuses};

const EXITED: ReportedState = ReportedState::Exited;

/// A list has shown that "c" has exited. Its Died waits for the requested inspection, which begins that
/// many nanoseconds later.
fn waiting(begins_after: u64) -> Script {
    let mut t = Script::confirmed();
    t.node = statuses(ReportedState::Running).to_vec();
    t.relist();
    t.settle();
    t.pass(10);
    t.begins_after = begins_after;
    t.relist_shows(&rows(EXITED));
    assert_eq!(t.inspections_wanted(), 1);
    assert_eq!(t.said(LifecycleType::ContainerDied, "c"), 0);
    t
}

/// The status of "s" was read, and the status call of "c" failed.
fn status_of_c_fails(t: &mut Script) {
    t.inspected(Inspection {
        found: vec![ready()],
        failed: vec![FailedStatus {
            id: "c".into(),
            row: Some(container("c", "p", EXITED)),
            error: failure("broken"),
        }],
        ..Inspection::new(None)
    });
}

#[test]
fn died_is_released_by_a_failed_status_of_its_container() {
    let mut t = waiting(1);
    status_of_c_fails(&mut t);
    assert_eq!(t.said(LifecycleType::ContainerDied, "c"), 1);
}

/// The runtime as a whole fails, so the code is still to be read. The status of the sandbox releases
/// nothing of the container.
#[test]
fn died_is_not_released_by_a_failed_status_in_an_outage() {
    let mut t = waiting(1);
    t.relist();
    t.list_fails(CallErrorKind::Unavailable);
    status_of_c_fails(&mut t);
    assert_eq!(t.said(LifecycleType::ContainerDied, "c"), 0);
}

#[test]
fn died_is_released_by_not_found_of_its_listed_container() {
    let mut t = waiting(1);
    t.inspect_unsettled(&[ready()], &[], &[container("c", "p", EXITED)]);
    assert_eq!(t.said(LifecycleType::ContainerDied, "c"), 1);
}

/// Such a status may be from before the exit.
#[test]
fn died_is_not_released_by_a_status_begun_when_the_exit_was_recorded() {
    for (begins_after, said) in [(0, 0), (1, 1)] {
        let mut t = waiting(begins_after);
        let running = status("c", "p", ReportedState::Running);
        t.inspect(&[ready(), running], &[]);
        assert_eq!(t.said(LifecycleType::ContainerDied, "c"), said);
    }
}
