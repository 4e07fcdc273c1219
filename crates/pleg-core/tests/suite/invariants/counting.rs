//! Counters, and the reads that each kind of event causes.

use pleg_core::{
    CallErrorKind, Cause, EventType, LifecycleType, ReportedState, Settings, StreamEnd,
};

use crate::script::{
    Script, container, exited, nameless, ready, rows, s, sandbox, status, statuses,
};
use EventType::{Created, Deleted, Other, Started, Stopped};
use LifecycleType::{ContainerDied, ContainerRemoved};

/// A pod with one running container, reported by events.
fn told() -> Script {
    let mut t = Script::confirmed();
    t.event(Created, "s", s(), &[]);
    let running = [status("c", "p", ReportedState::Running)];
    t.event(Started, "c", s(), &running);
    t
}

#[test]
fn events_are_counted_by_type() {
    let mut t = told();
    let running = [status("c", "p", ReportedState::Running)];
    t.event(Stopped, "c", None, &[exited("c", "p", 1, "Error")]);
    t.event(Deleted, "c", None, &[]);
    t.event(Deleted, "x", s(), &[]);
    t.event(Other(9), "c", s(), &running);
    t.stamped(-60_000, Other(9), "c", s(), &running);
    let counters = t.machine.counters();
    let e = counters.events;
    let events = [e.created, e.started, e.stopped, e.deleted, e.other];
    assert_eq!(events, [1, 1, 1, 2, 2]);
    assert_eq!(counters.events_without_sandbox, 2);
    assert_eq!(counters.events_implausible, 1);
    assert_eq!(counters.events_incomplete, 1, "a nil sandbox");
    assert_eq!(counters.tombstones, 2);
}

/// A complete event causes no read; an incomplete one causes one inspection.
#[test]
fn only_incomplete_events_cause_an_inspection() {
    let own = |shown| status("c", "p", shown);
    let cases: [(EventType, &str, bool, Vec<pleg_core::Report>, bool); 11] = [
        (Created, "s", true, vec![], false),
        (Stopped, "s", true, vec![], false),
        (Started, "c", true, vec![own(ReportedState::Running)], false),
        (Started, "c", true, vec![], true),
        (Started, "c", false, vec![own(ReportedState::Running)], true),
        (
            Stopped,
            "c",
            true,
            vec![exited("c", "p", 1, "Error")],
            false,
        ),
        (Stopped, "c", true, vec![own(ReportedState::Running)], true),
        (Stopped, "c", true, vec![], true),
        (
            Stopped,
            "c",
            false,
            vec![exited("c", "p", 1, "Error")],
            true,
        ),
        (Deleted, "c", true, vec![], false),
        (Deleted, "c", false, vec![], false),
    ];
    for (event, id, with_sandbox, containers, asks) in cases {
        let mut t = told();
        let sandbox = s().filter(|_| with_sandbox);
        t.event(event, id, sandbox, &containers);
        let counters = t.machine.counters();
        let incomplete = counters.inspections_by_cause[Cause::Incomplete];
        let case = format!("{event:?} {id} {with_sandbox} {containers:?}");
        assert_eq!(counters.events_incomplete, u64::from(asks), "{case}");
        assert_eq!(incomplete, u64::from(asks), "{case}");
        assert_eq!(t.inspections_wanted(), usize::from(asks), "{case}");
    }
}

/// It is a hint, whatever it lacks.
#[test]
fn event_of_unknown_type_is_not_incomplete() {
    let mut t = told();
    t.event(Other(7), "c", None, &[]);
    let counters = t.machine.counters();
    assert_eq!(counters.events_incomplete, 0);
    assert_eq!(counters.inspections_by_cause[Cause::Hint], 1);
}

/// An event about a removed id is not incomplete.
#[test]
fn event_of_a_removed_id_causes_no_inspection() {
    let mut t = told();
    t.event(Deleted, "c", s(), &[]);
    t.event(Stopped, "c", None, &[]);
    assert_eq!(t.inspections_wanted(), 0);
    assert_eq!(t.machine.counters().events_incomplete, 0);
}

/// A DELETED that its own event contradicts is a hint: a ready sandbox, any container.
#[test]
fn deleted_that_contradicts_itself_is_a_hint() {
    for (id, shown, removed) in [
        ("s", ReportedState::Running, false),
        ("s", ReportedState::Exited, true),
        ("c", ReportedState::Exited, false),
    ] {
        let mut t = told();
        match id {
            "s" => t.event(Deleted, "s", Some(sandbox("s", "p", shown)), &[]),
            _ => t.event(Deleted, "c", s(), &[exited("c", "p", 1, "Error")]),
        }
        assert_eq!(t.said(ContainerRemoved, id) == 1, removed, "{id} {shown:?}");
        let hints = t.machine.counters().inspections_by_cause[Cause::Hint];
        assert_eq!(hints == 0, removed, "{id} {shown:?}");
    }
}

/// Died of a STOPPED without exit code is announced after the inspection that it causes.
#[test]
fn died_waits_for_its_exit_code() {
    let mut t = told();
    t.event(
        Stopped,
        "c",
        s(),
        &[status("c", "p", ReportedState::Running)],
    );
    assert_eq!(t.said(ContainerDied, "c"), 0);
    t.inspect(&[ready(), exited("c", "p", 5, "Error")], &[]);
    let died = t.announced.iter().find(|a| a.0 == ContainerDied);
    assert_eq!(died.map(|a| a.3), Some(Some(5)));
    // A sandbox has no exit code to wait for, and a known exit code needs no wait.
    for (id, sandbox, containers) in [
        ("s", Some(sandbox("s", "p", ReportedState::Exited)), vec![]),
        ("c", s(), vec![exited("c", "p", 5, "Error")]),
    ] {
        let mut t = told();
        t.event(Stopped, id, sandbox, &containers);
        assert_eq!(t.said(ContainerDied, id), 1, "{id}");
    }
}

/// Orphans are counted, and cause at most one list a second.
#[test]
fn ids_without_a_pod_cause_one_list_a_second() {
    let mut t = Script::confirmed();
    let lists = t.machine.counters().lists;
    for id in ["a", "b", "c"] {
        t.event(Stopped, id, None, &[]);
    }
    let counters = t.machine.counters();
    assert_eq!((counters.orphans, counters.orphans_dropped), (3, 0));
    t.pass(1_000);
    assert_eq!(t.machine.counters().lists, lists + 1);
    // The list shows one of them, and its event is joined.
    t.list(&[ready(), container("a", "p", ReportedState::Running)]);
    t.inspect(&[ready(), exited("a", "p", 2, "Error")], &[]);
    assert_eq!((t.said(ContainerDied, "a"), t.missed()), (1, 0));
    // An id whose status names no pod is an orphan, too.
    t.event(
        Created,
        "n",
        None,
        &[nameless(status("n", "p", ReportedState::Created))],
    );
    assert!(t.machine.counters().orphans > 3);
}

#[test]
fn reads_are_counted() {
    let mut t = Script::confirmed();
    let before = t.machine.counters();
    t.wait("p", t.now());
    t.inspection_fails(&[]);
    t.wait("q", t.now());
    t.inspect(&[], &[]);
    let counters = t.machine.counters();
    assert_eq!(counters.inspections_failed, 1);
    assert_eq!(counters.inspections_cancelled, 0);
    assert!(counters.inspections >= before.inspections + 2);
    assert!(counters.inspections_by_cause[Cause::Waiter] >= 2);
    t.pass_to_list();
    t.list_fails(CallErrorKind::Failed);
    t.pass(1_000);
    t.list_fails(CallErrorKind::Failed);
    let counters = t.machine.counters();
    assert_eq!(
        (counters.lists_failed, counters.lists),
        (2, before.lists + 2)
    );
    t.stream_ends(StreamEnd::Ended(None));
    t.subscribe();
    t.stream_ends(StreamEnd::Ended(None));
    assert_eq!(t.machine.counters().streams_lost, 2);
}

/// Too many hung inspections: the oldest is cancelled, and counted as failed and as cancelled.
#[test]
fn cancelled_inspection_is_counted_as_failed() {
    let mut settings = Settings::default();
    (settings.inspections, settings.overdue_max) = (1, 1);
    let mut t = Script::confirmed_with(settings);
    for pod in ["p", "q"] {
        t.wait(pod, t.now());
        t.pass(300);
    }
    let counters = t.machine.counters();
    assert_eq!(counters.inspections_cancelled, 1);
    assert_eq!(counters.inspections_failed, 1);
    assert_eq!((t.cancelled.len(), t.answers.len()), (1, 1));
    assert!(t.answers[0].1.is_err());
}

/// The status of a non-zero exit is read again once, and counted.
#[test]
fn exit_reason_is_read_again_once() {
    for (code, reason, reads) in [(1, "Error", 1), (0, "Completed", 0), (137, "OOMKilled", 0)] {
        let mut t = told();
        t.event(Stopped, "c", s(), &[exited("c", "p", code, reason)]);
        t.pass(5_000);
        assert_eq!(t.reads_wanted(), reads, "{code} {reason}");
        assert_eq!(t.machine.counters().exit_reads, reads as u64);
    }
}

/// The reconciler is idle when nothing is queued, in flight or owed.
#[test]
fn reconciler_is_idle_when_every_read_has_answered() {
    let mut t = told();
    assert!(t.machine.is_idle());
    t.wait("p", t.now());
    assert!(!t.machine.is_idle());
    t.inspect(&statuses(ReportedState::Running), &[]);
    assert!(t.machine.is_idle());
    t.pass_to_list();
    assert!(!t.machine.is_idle());
    t.list(&rows(ReportedState::Running));
    assert!(t.machine.is_idle());
    t.event(Stopped, "c", s(), &[exited("c", "p", 1, "Error")]);
    t.pass(2_100);
    assert!(t.read_wanted() && !t.machine.is_idle());
    t.read(exited("c", "p", 1, "OOMKilled"));
    assert!(t.machine.is_idle());
}

/// One read answers all waiters that asked before it was requested, and no more reads are made.
#[test]
fn waiters_during_a_read_share_the_next_read() {
    let mut t = told();
    let asked = t.now();
    t.wait("p", asked);
    t.pass(5);
    // The instant is before the request of the read in flight: that read serves the waiter.
    t.wait("p", asked);
    t.wait("p", asked);
    assert_eq!(t.inspections_wanted(), 1);
    let node = statuses(ReportedState::Running);
    t.inspect(&node, &[]);
    t.pass(5);
    // One more read for waiters whose instant is that of the first read.
    while t.inspections_wanted() > 0 {
        t.inspect(&node, &[]);
    }
    assert_eq!(t.answers.len(), 3);
    let reads = t.machine.counters().inspections_by_cause[Cause::Waiter];
    assert!(reads <= 2, "{reads} reads");
    // A waiter for a past instant is answered from the cache.
    t.wait("p", asked);
    assert_eq!((t.answers.len(), t.inspections_wanted()), (4, 0));
}

/// A lost stream shortens the relist period; a new one causes a list at once.
#[test]
fn lost_stream_shortens_the_period() {
    let period = |t: &Script| t.health().period.as_secs();
    let mut t = told();
    let rows = rows(ReportedState::Running);
    t.pass_reading(100_000, &rows, &rows);
    assert!(period(&t) > 10);
    assert_eq!(t.lists_wanted(), 0);
    t.stream_ends(StreamEnd::Ended(None));
    assert_eq!(period(&t), 1);
    t.pass_reading(5_000, &rows, &rows);
    let lists = t.machine.counters().lists;
    t.subscribe();
    t.pass(1);
    assert_eq!(t.machine.counters().lists, lists + 1);
}

/// Health shows since when events wait at the reader.
#[test]
fn health_shows_since_when_a_backlog_exists() {
    let mut t = told();
    let began = t.now();
    t.machine.handle_backlog(began, true);
    t.pass(50);
    t.machine.handle_backlog(t.now(), true);
    assert_eq!(t.health().behind_since, Some(began));
    t.machine.handle_backlog(t.now(), false);
    assert_eq!(t.health().behind_since, None);
}

/// The cache is synced when each pod of the first list was inspected or failed once.
#[test]
fn synced_after_every_listed_pod_was_inspected() {
    let mut t = Script::new();
    let synced = |t: &Script| t.health().synced;
    let running = |pod: &str| container(&format!("c{pod}"), pod, ReportedState::Running);
    assert!(!synced(&t));
    t.list(&[running("p"), running("q")]);
    assert!(!synced(&t));
    t.inspect(&[running("p")], &[]);
    assert!(!synced(&t));
    t.inspection_fails(&[]);
    assert!(synced(&t), "failed or not");
}

/// A status has the pod's names and the container's sandbox, whichever source reported them.
#[test]
fn status_has_the_names_of_event_and_list() {
    let mut named = ready();
    named.identity.namespace = Some("ns".into());
    named.identity.pod_name = Some("web".into());
    let mut t = Script::confirmed();
    t.event(Created, "s", Some(named.clone()), &[]);
    let own = [status("c", "p", ReportedState::Running)];
    t.event(Started, "c", Some(named.clone()), &own);
    let by_event = t.view().status.clone();
    let mut t = Script::confirmed();
    t.pass_reading(
        2_000,
        &[named.clone(), container("c", "p", ReportedState::Running)],
        &[named, status("c", "p", ReportedState::Running)],
    );
    for status in [by_event, t.view().status.clone()] {
        assert_eq!((&*status.namespace, &*status.name), ("ns", "web"));
        let container = &status.containers[0];
        assert_eq!(container.sandbox, Some("s".into()));
        assert!(container.active);
    }
}

/// A list row showed a container running and an event shows it exited: Started comes first, without
/// exit details.
#[test]
fn started_announced_after_the_exit_has_no_exit_code() {
    let mut t = Script::confirmed();
    t.pass_to_list();
    t.list(&rows(ReportedState::Running));
    assert!(t.announced.is_empty(), "held until it is inspected");
    t.event(Stopped, "c", s(), &[exited("c", "p", 3, "Error")]);
    let of_c = t.announced.iter().filter(|a| a.1 == "c");
    let of_c: Vec<_> = of_c.map(|a| (a.0, a.3)).collect();
    let started = (LifecycleType::ContainerStarted, None);
    assert_eq!(of_c, [started, (ContainerDied, Some(3))]);
    let reasons = t.events.iter().filter_map(|e| e.subject.as_ref());
    let reasons: Vec<_> = reasons.map(|s| s.reason.to_string()).collect();
    assert!(reasons.iter().any(String::is_empty), "{reasons:?}");
}

/// The loss of the stream is relative to the STARTED and STOPPED events with a plausible subject.
#[test]
fn only_plausible_started_and_stopped_count_as_expected() {
    let mut t = Script::confirmed();
    let mut expected = Vec::new();
    let old = -60_000;
    for (stamp, event) in [
        (0, Created),
        (0, Started),
        (old, Started),
        (0, Stopped),
        (0, Deleted),
    ] {
        t.stamped(stamp, event, "s", Some(ready()), &[]);
        expected.push(t.health().loss.expected);
    }
    assert_eq!(expected, [0, 1, 1, 2, 2]);
}
