//! The effects of one observation on an id and its pod, and the counters.

use pleg_core::{CallErrorKind, EventType, Id, LifecycleType, Report, ReportedState};

use crate::script::{
    Script, container, exited, nameless, ready, rows, s, sandbox, status, statuses,
};
use EventType::{Created, Deleted, Started, Stopped};

/// A pod with one running container, read by a list and an inspection.
fn read() -> Script {
    let mut t = Script::confirmed();
    let running = container("c", "p", ReportedState::Running);
    t.node = vec![ready(), running];
    t.relist();
    t.run(6_000);
    t
}

fn ids(t: &Script, pod: &str) -> Vec<Id> {
    let status = t.get(pod).status;
    let sandboxes = status.sandboxes.iter().map(|s| s.id.clone());
    let containers = status.containers.iter().map(|c| c.id.clone());
    let mut ids: Vec<Id> = sandboxes.chain(containers).collect();
    ids.sort();
    ids
}

/// Invariant 10: the event of an orphan is no miss when an inspection shows the id.
#[test]
fn event_of_an_orphan_is_no_miss_when_an_inspection_shows_its_id() {
    let mut t = read();
    t.event(Started, "d", None, &[]);
    t.request_relist("p");
    let all = [
        ready(),
        status("c", "p", ReportedState::Running),
        container("d", "p", ReportedState::Running),
    ];
    t.inspect(&all, &[]);
    let missed = t.missed();
    for _ in 0..9 {
        while t.lists_wanted() > 0 {
            t.list_fails(CallErrorKind::Failed);
        }
        t.pass(1_000);
    }
    assert_eq!(t.missed(), missed);
}

/// Invariant 6: an event confirms its own subject, not the sandbox whose status it carries.
#[test]
fn event_confirms_only_its_subject() {
    for (event, id, looked_at) in [(Created, "s", false), (Started, "c", true)] {
        let mut t = Script::confirmed();
        let own = [status("c", "p", ReportedState::Running)];
        t.event(event, id, s(), if id == "c" { &own } else { &[] });
        assert_eq!(t.inspections_wanted(), 0, "{event:?}");
        t.pass(1_100);
        assert_eq!(t.inspections_wanted() > 0, looked_at, "{event:?}");
    }
}

/// CRI-O reports the removal of containers and not of sandboxes: only a sandbox's DELETED shows
/// that this stream reports sandbox removals.
#[test]
fn only_a_sandbox_deleted_proves_that_the_stream_reports_sandbox_removals() {
    for (told, looked_for) in [
        ((Deleted, "x"), false),
        ((Deleted, "c"), true),
        ((Stopped, "s"), true),
    ] {
        let mut t = read();
        let gone = sandbox("x", "q", ReportedState::Exited);
        let ended = sandbox("s", "p", ReportedState::Exited);
        let sandbox = if told.1 == "x" { gone } else { ended };
        t.event(Stopped, "c", s(), &[exited("c", "p", 0, "Completed")]);
        t.event(told.0, told.1, Some(sandbox), &[]);
        t.event(
            Stopped,
            "s",
            Some(self::sandbox("s", "p", ReportedState::Exited)),
            &[],
        );
        t.event(Deleted, "c", None, &[]);
        while t.inspection_wanted().is_some() {
            t.inspect(&[self::sandbox("s", "p", ReportedState::Exited)], &["c"]);
        }
        t.pass(1_100);
        assert_eq!(t.inspections_wanted() > 0, looked_for, "{told:?}");
    }
}

/// An implausible event records no state, but causes an inspection, whatever statuses it carries.
#[test]
fn implausible_event_of_an_unknown_container_causes_an_inspection() {
    let mut t = read();
    let own = [
        status("d", "p", ReportedState::Running),
        status("c", "p", ReportedState::Running),
    ];
    t.stamped(-60_000, Started, "d", s(), &own);
    assert_eq!(t.inspections_wanted(), 1);
}

/// The number of orphans is bounded, and dropped ones are counted.
#[test]
fn orphans_are_counted_and_bounded() {
    let mut t = Script::confirmed();
    for n in 0..10_002 {
        t.event(Started, &format!("c{n}"), None, &[]);
    }
    let counters = t.machine.counters();
    assert_eq!((counters.orphans, counters.orphans_dropped), (10_002, 2));
}

/// A DELETED needs no statuses, and one that its own status contradicts is not incomplete either. A
/// STOPPED with UNKNOWN lacks the exit code.
#[test]
fn deleted_without_statuses_is_not_counted_as_incomplete() {
    let mut t = read();
    t.event(
        Deleted,
        "c",
        None,
        &[status("c", "p", ReportedState::Running)],
    );
    assert_eq!(t.machine.counters().events_incomplete, 0);
    assert_eq!(t.inspections_wanted(), 1);
    t.event(
        Stopped,
        "c",
        s(),
        &[status("c", "p", ReportedState::Unknown)],
    );
    assert_eq!(t.machine.counters().events_incomplete, 1);
}

/// Invariant 7: a container that names its pod moves there alone; a sandbox moves with its
/// containers. A pod that still has an id is not removed.
#[test]
fn pod_name_moves_only_ids_that_it_names() {
    let anonymous = |id| {
        let sandbox = Some("s".into());
        let mut report = nameless(container(id, "p", ReportedState::Running));
        report.identity.sandbox = sandbox;
        report
    };
    let s = nameless(ready());
    let mut t = Script::confirmed();
    let c = container("c", "p", ReportedState::Running);
    for rows in [
        [s.clone(), anonymous("c"), anonymous("d")],
        [s, c.clone(), anonymous("d")],
    ] {
        t.node = rows.to_vec();
        t.relist();
        t.settle();
        t.relist();
        t.settle();
    }
    assert_eq!(ids(&t, "p"), ["c".into()]);
    assert_eq!(ids(&t, "s"), ["d".into(), "s".into()]);
    assert!(t.swept.is_empty(), "{:?}", t.swept);
    t.node = vec![ready(), c, anonymous("d")];
    t.relist();
    t.settle();
    assert_eq!(ids(&t, "p"), ["c".into(), "d".into(), "s".into()]);
}

/// A name that only a status read returns is published.
#[test]
fn name_from_a_status_read_is_published() {
    let mut t = read();
    let mut ended = exited("d", "p", 1, "Error");
    ended.identity.name = None;
    t.event(Stopped, "d", s(), std::slice::from_ref(&ended));
    while t.inspection_wanted().is_some() {
        t.inspect(
            &[
                ready(),
                status("c", "p", ReportedState::Running),
                ended.clone(),
            ],
            &[],
        );
    }
    t.pass(2_100);
    while t.inspection_wanted().is_some() {
        t.inspect(
            &[
                ready(),
                status("c", "p", ReportedState::Running),
                ended.clone(),
            ],
            &[],
        );
    }
    t.read(exited("d", "p", 1, "Error"));
    let status = t.get("p").status;
    let d = status.containers.iter().find(|c| c.id == "d".into());
    assert_eq!(d.map(|c| &*c.name), Some("d"));
}

/// A contradiction is counted, and the same kind of call is repeated: a list for a list, an
/// inspection for an inspection.
#[test]
fn contradiction_is_repeated_by_the_same_kind_of_call() {
    for listed in [true, false] {
        let mut t = read();
        t.relist_shows(&rows(ReportedState::Running));
        t.event(Stopped, "c", s(), &[exited("c", "p", 0, "Completed")]);
        let lists = t.machine.counters().lists;
        if listed {
            t.relist_shows(&rows(ReportedState::Running));
        } else {
            t.request_relist("p");
            t.inspect(&statuses(ReportedState::Running), &[]);
        }
        let counters = t.machine.counters();
        assert_eq!(counters.contradictions, 1);
        t.pass(200);
        let more = t.machine.counters().lists - lists;
        assert_eq!(more, if listed { 2 } else { 0 });
    }
}

/// A detail that a status read changed is announced as PodSync.
#[test]
fn changed_detail_is_announced_as_pod_sync() {
    let mut t = read();
    t.event(Stopped, "c", s(), &[exited("c", "p", 1, "Error")]);
    t.pass(3_000);
    let before = t.said(LifecycleType::PodSync, "p");
    t.read(exited("c", "p", 1, "OOMKilled"));
    assert_eq!(t.said(LifecycleType::PodSync, "p"), before + 1);
}

/// Invariant 10: a container that a list finds exited is a miss; for a sandbox that was never seen
/// ready no event was expected.
#[test]
fn container_found_exited_is_missed_and_sandbox_first_seen_not_ready_is_not() {
    let mut t = read();
    t.node.push(sandbox("x", "q", ReportedState::Exited));
    t.node.push(exited("d", "p", 1, "Error"));
    let mut expected = t.machine.counters().missed;
    t.relist();
    t.run(8_000);
    expected.container_stopped += 1;
    assert_eq!(t.machine.counters().missed, expected);
}

/// Invariant 6: a STOPPED does not confirm an id that was unknown.
#[test]
fn stopped_of_an_unknown_container_is_provisional() {
    let mut t = read();
    let own = [exited("d", "p", 0, "Completed")];
    t.event(Stopped, "d", s(), &own);
    assert_eq!(t.inspections_wanted(), 0);
    t.pass(1_100);
    assert_eq!(t.inspections_wanted(), 1);
}

/// UNKNOWN in list rows causes one inspection, not one per list.
#[test]
fn unknown_row_causes_one_inspection() {
    let mut t = read();
    let rows = rows(ReportedState::Unknown);
    t.relist_shows(&rows);
    t.inspect(&statuses(ReportedState::Unknown), &[]);
    t.relist_shows(&rows);
    assert_eq!(t.inspections_wanted(), 0);
}

/// A container "d" that an event without its name reported as exited and an inspection as UNKNOWN,
/// and its status with UNKNOWN.
fn unknown_since_its_end() -> (Script, Report) {
    let mut t = read();
    let mut d = exited("d", "p", 1, "Error");
    d.identity.name = None;
    t.event(Stopped, "d", s(), std::slice::from_ref(&d));
    d.shown = ReportedState::Unknown;
    t.request_relist("p");
    let alive = status("c", "p", ReportedState::Running);
    t.inspect(&[ready(), alive, d.clone()], &[]);
    (t, d)
}

/// A changed detail in a repeated UNKNOWN is announced.
#[test]
fn changed_detail_of_an_unknown_container_is_announced() {
    let (mut t, mut d) = unknown_since_its_end();
    let before = t.said(LifecycleType::PodSync, "p");
    d.details = exited("d", "p", 1, "OOMKilled").details;
    t.request_relist("p");
    let alive = status("c", "p", ReportedState::Running);
    t.inspect(&[ready(), alive, d], &[]);
    assert_eq!(t.said(LifecycleType::PodSync, "p"), before + 1);
}

/// A name in a repeated UNKNOWN is published, also from a single status.
#[test]
fn name_of_an_unknown_container_is_published() {
    let (mut t, mut d) = unknown_since_its_end();
    t.pass(2_100);
    d.identity.name = Some("d".into());
    t.read(d);
    let status = t.get("p").status;
    let d = status.containers.iter().find(|c| c.id == "d".into());
    assert_eq!(d.map(|c| &*c.name), Some("d"));
}

/// Invariant 2: a read that began when a removal was recorded may have seen the id before it.
#[test]
fn row_without_status_contradicts_a_removal_only_if_its_read_began_later() {
    for (begins_after, contradictions) in [(0, 0), (1, 1)] {
        let mut t = read();
        t.begins_after = begins_after;
        t.request_relist("p");
        t.event(Deleted, "c", Some(ready()), &[]);
        let row = container("c", "p", ReportedState::Running);
        t.inspect_unsettled(&[ready()], &[], &[row]);
        assert_eq!(t.machine.counters().contradictions, contradictions);
    }
}
