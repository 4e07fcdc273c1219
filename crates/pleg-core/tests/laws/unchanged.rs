//! Rows that are handed over as unchanged: what they count for, and when they count for nothing.

use pleg_core::{Details, EventType, Fingerprint, FullRow, Report, Rows, Shown, Unchanged};

use crate::script::{Script, container, exited, sandbox};

fn full(report: Report, fingerprint: u64) -> FullRow {
    FullRow {
        report,
        fingerprint: Some(Fingerprint::from(fingerprint)),
    }
}

fn unchanged(report: Report, fingerprint: u64) -> Unchanged {
    Unchanged {
        id: report.id,
        kind: report.identity.kind,
        shown: report.shown,
        fingerprint: Fingerprint::from(fingerprint),
    }
}

fn in_full(rows: Vec<FullRow>) -> Rows {
    Rows {
        full: rows,
        ..Rows::default()
    }
}

fn all_unchanged(rows: Vec<Unchanged>) -> Rows {
    Rows {
        unchanged: rows.into(),
        ..Rows::default()
    }
}

fn node() -> [Report; 2] {
    [
        container("c", "p", Shown::Running),
        sandbox("s", "p", Shown::Running),
    ]
}

/// A node that was listed with these fingerprints, and inspected.
fn listed() -> Script {
    let mut t = Script::confirmed();
    let [c, s] = node();
    t.relist_hands(in_full(vec![full(s.clone(), 1), full(c.clone(), 2)]));
    t.inspect(&[s, c], &[]);
    t.pass(10);
    t
}

fn resolved(t: &Script) -> bool {
    t.machine.counters().lists_unresolved == 0
}

#[test]
fn an_unchanged_row_confirms_what_is_believed() {
    let mut t = listed();
    let before = t.get("p").as_of;
    let [c, s] = node();
    t.relist_hands(all_unchanged(vec![unchanged(c, 2), unchanged(s, 1)]));
    assert!(resolved(&t));
    assert!(t.get("p").as_of > before);
    assert_eq!(t.inspections_wanted(), 0);
}

#[test]
fn an_unchanged_row_in_another_state_is_news() {
    let mut t = listed();
    let [_, s] = node();
    let ended = container("c", "p", Shown::Exited);
    t.relist_hands(all_unchanged(vec![unchanged(ended, 2), unchanged(s, 1)]));
    assert!(resolved(&t));
    assert_eq!(t.inspections_wanted(), 1);
}

#[test]
fn what_an_otherwise_unchanged_list_lacks_is_removed() {
    let mut t = listed();
    let [_, s] = node();
    t.relist_hands(all_unchanged(vec![unchanged(s, 1)]));
    assert!(resolved(&t));
    assert!(t.get("p").status.containers.is_empty());
}

/// Not believed, nor taken for absence: the list says nothing, and is asked for at once, in full.
#[test]
fn a_row_of_which_it_is_not_known_what_it_says_is_asked_for_in_full() {
    let [c, s] = node();
    let unknown = container("x", "q", Shown::Running);
    for rows in [
        vec![unchanged(c.clone(), 3), unchanged(s.clone(), 1)],
        vec![
            unchanged(c.clone(), 2),
            unchanged(s.clone(), 1),
            unchanged(unknown, 4),
        ],
        // Out of order, so that it is not found.
        vec![unchanged(s.clone(), 1), unchanged(c.clone(), 2)],
    ] {
        let mut t = listed();
        let (swept, before) = (t.swept_as_of, t.get("p"));
        t.relist_hands(all_unchanged(rows));
        assert_eq!(t.machine.counters().lists_unresolved, 1);
        assert_eq!((t.swept_as_of, t.get("p")), (swept, before.clone()));
        assert_eq!(t.lists_wanted(), 1);
        assert!(t.full, "the next one is to be full");
        t.list_hands(in_full(vec![full(s.clone(), 1), full(c.clone(), 2)]));
        assert!(t.get("p").as_of > before.as_of);
        assert_eq!(t.lists_wanted(), 0);
        t.relist();
        t.drain();
        assert!(!t.full);
    }
}

/// containerd 2 lists for a while what it has removed. What its row says was let go of; only if
/// the row brings it back that is wanted.
#[test]
fn what_is_removed_and_listed_asks_for_no_full_list_until_it_is_brought_back() {
    let mut t = listed();
    let [c, mut s] = node();
    if let Details::Sandbox(details) = &mut s.details {
        std::sync::Arc::make_mut(details).runtime_handler = "kata".into();
    }
    t.relist_hands(Rows {
        full: vec![full(s.clone(), 5)],
        unchanged: [unchanged(c.clone(), 2)].into(),
    });
    t.event(EventType::Deleted, "s", None, &[]);
    let rows = || all_unchanged(vec![unchanged(c.clone(), 2), unchanged(s.clone(), 5)]);
    t.pass(10);
    t.relist_hands(rows());
    t.pass(100);
    t.relist_hands(rows());
    assert!(resolved(&t));
    assert_eq!(t.machine.counters().overruled, 0);
    t.pass(12_000);
    while t.lists_wanted() > 0 && resolved(&t) {
        t.list_hands(rows());
    }
    assert!(!resolved(&t) && t.full);
    assert_eq!(t.machine.counters().overruled, 0);
    t.list_hands(in_full(vec![full(s.clone(), 5), full(c.clone(), 2)]));
    assert_eq!(t.machine.counters().overruled, 1);
    let view = t.get("p");
    assert_eq!(&*view.status.sandboxes[0].details.runtime_handler, "kata");
}

/// The very same rows as before need not be looked at where nothing has happened since; here
/// something has.
#[test]
fn the_same_list_once_more_contradicts_what_an_event_told_since() {
    let mut t = listed();
    let [c, s] = node();
    let rows = all_unchanged(vec![unchanged(c, 2), unchanged(s.clone(), 1)]);
    for _ in 0..2 {
        let before = t.get("p").as_of;
        t.relist_hands(rows.clone());
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
    t.relist_hands(rows);
    assert_eq!(t.get("p").as_of, before, "one of them is wrong");
}
