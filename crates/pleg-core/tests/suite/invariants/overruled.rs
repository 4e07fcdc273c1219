//! Invariants 2 and 6: what supports a removal against contradicting reads, what an overruling
//! announces and causes, and how long the tombstones of such ids stay.

use pleg_core::{EventType, Inspection, LifecycleType, Report, ReportedState};

use crate::script::{Script, exited, ready, rows, s, statuses};
use EventType::{Deleted, Started, Stopped};
use LifecycleType::{ContainerChanged, ContainerRemoved, ContainerStarted};

/// The same, and the container has exited.
fn ended() -> Script {
    let mut t = Script::running();
    let own = [exited("c", "p", 0, "Completed")];
    t.event(Stopped, "c", s(), &own);
    t
}

/// Time passes; every inspection returns `found`, and no list is answered.
fn pass_inspecting(t: &mut Script, ms: u64, found: &[Report]) {
    for _ in 0..ms {
        t.pass(1);
        while t.inspection_wanted().is_some() {
            t.inspect(found, &[]);
        }
    }
}

/// A list that did not show an id which an event reported as removed supports the removal: lists
/// must show the id twice before that is overruled, whatever the inspections show.
#[test]
fn list_that_supported_a_removal_must_contradict_it_twice() {
    let mut t = Script::running();
    t.event(Deleted, "c", s(), &[]);
    t.relist_shows(&[ready()]);
    t.relist_shows(&rows(ReportedState::Running));
    t.wait("p", t.now());
    pass_inspecting(&mut t, 25_000, &statuses(ReportedState::Running));
    assert_eq!(t.machine.counters().overruled, 0);
    // The one in flight began too soon after the first.
    t.list(&rows(ReportedState::Running));
    assert_eq!(t.machine.counters().overruled, 0);
    t.list(&rows(ReportedState::Running));
    assert_eq!(t.machine.counters().overruled, 1);
}

/// A new incarnation that runs is announced as Started, another one as ContainerChanged.
#[test]
fn overruling_is_announced_by_the_new_state() {
    for (shown, changed, started) in [
        (ReportedState::Running, 0, 1),
        (ReportedState::Created, 1, 0),
    ] {
        let mut t = ended();
        t.announced.clear();
        t.wait("p", t.now());
        pass_inspecting(&mut t, 300, &statuses(shown));
        assert_eq!(t.machine.counters().overruled, 1, "{shown:?}");
        assert_eq!(t.said(ContainerChanged, "c"), changed, "{shown:?}");
        assert_eq!(t.said(ContainerStarted, "c"), started, "{shown:?}");
    }
}

/// Rows have no details: after a list has overruled a state, the pod is inspected. An inspection
/// has read the details already.
#[test]
fn overruling_by_a_list_causes_an_inspection() {
    let mut by_list = ended();
    by_list.relist_shows(&rows(ReportedState::Running));
    by_list.pass(100);
    by_list.inspect(&statuses(ReportedState::Running), &[]);
    by_list.list(&rows(ReportedState::Running));
    assert_eq!(by_list.machine.counters().overruled, 1);
    assert_eq!(by_list.inspections_wanted(), 1);

    let mut by_inspection = ended();
    by_inspection.wait("p", by_inspection.now());
    by_inspection.inspect(&statuses(ReportedState::Running), &[]);
    by_inspection.pass(100);
    by_inspection.inspect(&statuses(ReportedState::Running), &[]);
    assert_eq!(by_inspection.machine.counters().overruled, 1);
    assert_eq!(by_inspection.inspections_wanted(), 0);
}

/// A new incarnation has no tombstone: it stays when the old tombstone would have expired, and when
/// it is removed again, it stays removed for ten minutes from then.
#[test]
fn overruled_removal_leaves_no_tombstone() {
    let mut t = Script::running();
    t.event(Deleted, "c", s(), &[]);
    t.wait("p", t.now());
    t.node = statuses(ReportedState::Running).to_vec();
    t.run(300_000);
    assert_eq!(t.machine.counters().overruled, 1);
    let mut removed = t.clone();

    t.run(400_000);
    assert_eq!(t.said(ContainerStarted, "c"), 2);
    assert_eq!(t.get("p").status.containers.len(), 1);

    removed.node.pop();
    removed.event(Deleted, "c", s(), &[]);
    removed.run(400_000);
    assert_eq!(removed.machine.counters().tombstones, 1);
    removed.event(Started, "c", s(), &statuses(ReportedState::Running)[1..]);
    assert_eq!(removed.said(ContainerStarted, "c"), 2);
}

/// Lists go on showing an id whose status call returns NotFound: it stays removed for as long as
/// they do.
#[test]
fn tombstone_lives_as_long_as_lists_show_the_id() {
    let mut t = Script::running();
    t.wait("p", t.now());
    t.inspect(&[ready()], &["c"]);
    for _ in 0..1_500 {
        t.pass(1_000);
        while t.lists_wanted() > 0 {
            t.list(&rows(ReportedState::Running));
        }
        while t.inspection_wanted().is_some() {
            t.inspect(&[ready()], &["c"]);
        }
    }
    assert_eq!(t.said(ContainerRemoved, "c"), 1);
    assert_eq!(t.said(ContainerStarted, "c"), 1);
}

/// An inspection shows the recorded state of "c" and "s" in its lists. Returns how often two statuses
/// that show "c" running overrule its end, which until then was known from an event.
fn overruled_after_unchanged(t: &mut Script) -> u64 {
    let mut read = Inspection::new(None);
    read.unchanged = vec![
        ("c".into(), ReportedState::Exited),
        ("s".into(), ReportedState::Running),
    ];
    t.inspected(read);
    for _ in 0..2 {
        t.request_relist("p");
        pass_inspecting(t, 150, &statuses(ReportedState::Running));
    }
    t.machine.counters().overruled
}

/// Then lists must show it running, too, before that is overruled.
#[test]
fn lists_of_an_inspection_that_show_an_end_support_it() {
    let mut t = ended();
    t.pass(10);
    t.wait("p", t.now());
    assert_eq!(overruled_after_unchanged(&mut t), 0);
}

/// They may show an end before it.
#[test]
fn lists_of_an_inspection_that_began_when_an_end_was_recorded_do_not_support_it() {
    let mut t = Script::running();
    t.pass(10);
    t.wait("p", t.now());
    t.begins_after = 5_000_000;
    t.pass(5);
    t.event(Stopped, "c", s(), &[exited("c", "p", 0, "Completed")]);
    assert_eq!(overruled_after_unchanged(&mut t), 1);
}

/// Reads that agree with the record end a contradiction, and the next list confirms the pod.
#[test]
fn list_confirms_a_pod_whose_contradiction_has_ended() {
    let mut t = ended();
    t.relist_shows(&rows(ReportedState::Running));
    t.node = vec![ready(), exited("c", "p", 0, "Completed")];
    t.run(5_000);
    let before = t.get("p").as_of;
    t.relist();
    t.answer_list();
    assert!(before.is_some() && t.get("p").as_of > before);
}
