//! Lists with only the state of known ids: their effects.

use pleg_core::{EventType, Report, ReportedState};

use crate::script::{Script, container, exited, ready};

fn node() -> [Report; 2] {
    [container("c", "p", ReportedState::Running), ready()]
}

/// A node that was listed and inspected.
fn listed() -> Script {
    let mut t = Script::confirmed();
    let [c, s] = node();
    t.relist_shows(&[s.clone(), c.clone()]);
    t.inspect(&[s, c], &[]);
    t.pass(10);
    t
}

#[test]
fn request_names_ids_with_complete_identity() {
    let mut t = listed();
    t.relist();
    assert_eq!(t.known_ids(), Some(2));
}

#[test]
fn request_does_not_name_removed_id() {
    let mut t = listed();
    t.event(EventType::Deleted, "c", None, &[]);
    t.relist();
    assert_eq!(t.known_ids(), Some(1));
}

#[test]
fn request_does_not_name_id_without_pod_name() {
    let mut t = Script::confirmed();
    let [mut c, mut s] = node();
    c.identity.pod_name = None;
    s.identity.created_at = None;
    t.relist_shows(&[s, c]);
    t.relist();
    assert_eq!(t.known_ids(), Some(0));
}

#[test]
fn known_id_in_recorded_state_confirms_its_pod() {
    let mut t = listed();
    let before = t.get("p").as_of;
    t.relist_shows(&node());
    assert!(t.get("p").as_of > before);
    assert_eq!(t.inspections_wanted(), 0);
}

#[test]
fn known_id_in_another_state_is_inspected() {
    let mut t = listed();
    let [_, s] = node();
    t.relist_shows(&[s, container("c", "p", ReportedState::Exited)]);
    assert_eq!(t.inspections_wanted(), 1);
}

#[test]
fn known_id_that_is_not_listed_is_removed() {
    let mut t = listed();
    let [_, s] = node();
    t.relist_shows(&[s]);
    assert!(t.get("p").status.containers.is_empty());
}

/// A runtime may list an id twice, in two states, although it should not.
#[test]
fn known_id_that_is_listed_twice_is_in_the_later_state() {
    let mut t = listed();
    let [c, s] = node();
    t.relist_shows(&[c, s, container("c", "p", ReportedState::Exited)]);
    assert_eq!(t.inspections_wanted(), 1);
}

/// Otherwise each list would contradict itself, and be repeated at once.
#[test]
fn list_with_an_id_in_two_states_does_not_contradict_itself() {
    let [running, s] = node();
    let exited = exited("c", "p", 0, "Completed");
    for rows in [[&running, &exited], [&exited, &running]] {
        let mut t = listed();
        t.relist_shows(&[rows[0].clone(), rows[1].clone(), s.clone()]);
        while t.inspections_wanted() > 0 {
            t.inspect(&[s.clone(), exited.clone()], &[]);
        }
        let before = t.get("p").as_of;
        t.pass(10);
        t.relist_shows(&[rows[0].clone(), rows[1].clone(), s.clone()]);
        assert!(t.get("p").as_of > before, "the list confirms the pod");
        assert_eq!(t.machine.counters().contradictions, 0);
    }
}

/// A list that equals the last one is skipped if nothing has happened since. Here something has.
#[test]
fn equal_list_contradicts_event_that_arrived_since() {
    let mut t = listed();
    let [c, s] = node();
    for _ in 0..2 {
        let before = t.get("p").as_of;
        t.relist_shows(&[c.clone(), s.clone()]);
        assert!(t.get("p").as_of > before);
    }
    let ended = exited("c", "p", 0, "Completed");
    t.event(
        EventType::Stopped,
        "c",
        Some(s.clone()),
        std::slice::from_ref(&ended),
    );
    t.pass(10);
    while t.inspections_wanted() > 0 {
        t.inspect(&[s.clone(), ended.clone()], &[]);
    }
    let before = t.get("p").as_of;
    t.pass(10);
    t.relist_shows(&[c, s]);
    assert_eq!(t.get("p").as_of, before, "one of them is wrong");
}
