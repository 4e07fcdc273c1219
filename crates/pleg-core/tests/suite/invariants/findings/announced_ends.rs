//! How ends of containers are announced: with their exit code, and to a subscriber that lags (invariants 9
//! and 11).

use pleg_core::{EventType, Inbox, LifecycleType, ReportedState};

use super::{ended, listed};
use crate::script::{container, exited, ready, rows, s, status};
use EventType::Stopped;
use LifecycleType::ContainerDied;

/// A list showed the exit; its inspection is in flight; an event without statuses arrives; the
/// inspection reads the exit code, or fails.
#[test]
fn a10_first_status_releases_died() {
    for reads in [true, false] {
        let mut t = listed(&["c"]);
        t.relist_shows(&rows(ReportedState::Exited));
        t.event(Stopped, "c", None, &[]);
        assert_eq!(t.said(ContainerDied, "c"), 0);
        match reads {
            true => t.inspect(&[ready(), ended("c", 3, "Error")], &[]),
            false => t.inspection_fails(&[]),
        }
        assert_eq!(t.said(ContainerDied, "c"), 1);
    }
}

/// An inspection is in flight when an event without statuses arrives. It reads the status of the
/// exited container.
#[test]
fn a10_inspection_in_flight_releases_died() {
    let mut t = listed(&["c"]);
    t.request_relist("p");
    t.pass(5);
    t.event(Stopped, "c", None, &[]);
    assert_eq!(t.said(ContainerDied, "c"), 0);
    t.inspect(&[ready(), ended("c", 3, "Error")], &[]);
    let died = t.announced.iter().find(|a| a.0 == ContainerDied);
    assert_eq!(died.map(|a| a.3), Some(Some(3)));
}

/// A partial inspection that returned the id's own status releases it, too.
#[test]
fn a10_partial_inspection_releases_what_it_read() {
    let mut t = listed(&["c", "d"]);
    t.relist_shows(&[
        ready(),
        container("c", "p", ReportedState::Exited),
        container("d", "p", ReportedState::Exited),
    ]);
    t.inspection_fails(&[ended("c", 3, "Error")]);
    let codes = |id: &str| {
        let died = t
            .announced
            .iter()
            .find(|a| a.0 == ContainerDied && a.1 == id);
        died.map(|a| a.3)
    };
    assert_eq!((codes("c"), codes("d")), (Some(Some(3)), Some(None)));
}

#[test]
fn a10_stopped_with_unknown_status_waits_for_the_exit_code() {
    let mut t = listed(&["c"]);
    t.node[1] = ended("c", 3, "Error");
    t.event(
        Stopped,
        "c",
        s(),
        &[status("c", "p", ReportedState::Unknown)],
    );
    t.run(3_000);
    let died = t.announced.iter().find(|a| a.0 == ContainerDied);
    assert_eq!(died.map(|a| a.3), Some(Some(3)));
}

/// Events are wrong repeatedly, and reads overrule them: an unbounded number of incarnations.
#[test]
fn a11_inbox_is_bounded_whatever_ends_an_incarnation() {
    let mut t = listed(&["c"]);
    let from = t.events.len();
    for _ in 0..2_000 {
        t.event(Stopped, "c", s(), &[exited("c", "p", 0, "")]);
        for _ in 0..2 {
            t.relist();
            t.settle();
            t.run(200);
        }
    }
    let mut inbox = Inbox::new(64);
    t.events.drain(from..).for_each(|event| inbox.push(event));
    assert!(inbox.len() <= 130, "{}", inbox.len());
    assert!(inbox.take_missed().is_some());
}
