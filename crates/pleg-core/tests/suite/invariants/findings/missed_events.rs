//! Which observations settle a pending event, and when it is missed (invariant 10).

use std::sync::Arc;

use pleg_core::{Details, EventProfile, EventType, Report, ReportedState, Settings, StreamEnd};

use super::{containerd, ended, in_s, listed, on_containerd, period};
use crate::script::{Script, container, exited, failure, ready, s, status};
use EventType::{Created, Deleted, Started, Stopped};

/// The container exits, its STOPPED is lost, a list finds it, and the kubelet starts another one,
/// whose events carry the status of the dead container.
fn restart_after_lost_stop(t: &mut Script) {
    t.node[1] = ended("c", 3, "Error");
    t.relist();
    t.settle();
    let dead = exited("c", "p", 3, "Error");
    t.node.push(container("d", "p", ReportedState::Created));
    let created = [dead.clone(), status("d", "p", ReportedState::Created)];
    t.event(Created, "d", s(), &created);
    t.node[2] = container("d", "p", ReportedState::Running);
    let started = [dead, status("d", "p", ReportedState::Running)];
    t.event(Started, "d", s(), &started);
}

#[test]
fn a2_restart_does_not_settle_pending_event() {
    let mut t = on_containerd(&["c"]);
    restart_after_lost_stop(&mut t);
    t.run(6_000);
    assert_eq!(t.missed(), 1);
    assert!(period(&t) <= 2, "it was cut, and one list was clean since");
}

#[test]
fn a2_removal_does_not_settle_pending_event() {
    for (profile, missed) in [(containerd(), 1), (EventProfile::UNKNOWN, 0)] {
        let mut t = on_containerd(&["c"]);
        t.machine.handle_profile(t.now(), profile);
        restart_after_lost_stop(&mut t);
        t.node.remove(1);
        t.event(
            Deleted,
            "c",
            s(),
            &[status("d", "p", ReportedState::Running)],
        );
        t.run(6_000);
        assert_eq!(t.missed(), missed, "{profile:?}");
    }
}

/// Statuses inside an event that arrived while a list was in flight do not settle the event about
/// the dead container either.
#[test]
fn a2_event_of_sibling_during_a_list_does_not_settle_pending_event() {
    let mut t = on_containerd(&["c"]);
    t.node[1] = ended("c", 3, "Error");
    t.relist();
    t.pass(5);
    let statuses = [
        exited("c", "p", 3, "Error"),
        status("d", "p", ReportedState::Created),
    ];
    t.event(Created, "d", s(), &statuses);
    t.node.push(container("d", "p", ReportedState::Created));
    t.settle();
    t.run(6_000);
    assert_eq!(t.missed(), 1);
}

#[test]
fn a2_own_event_settles_pending_event() {
    let mut t = on_containerd(&["c"]);
    restart_after_lost_stop(&mut t);
    t.pass(4_000);
    t.event(Stopped, "c", s(), &[exited("c", "p", 3, "Error")]);
    t.run(6_000);
    assert_eq!(t.missed(), 0);
}

#[test]
fn a2_late_event_withdraws_miss() {
    let mut t = on_containerd(&["c"]);
    restart_after_lost_stop(&mut t);
    t.run(8_000);
    assert_eq!((t.missed(), t.machine.counters().missed_withdrawn), (1, 0));
    t.event(Stopped, "c", s(), &[exited("c", "p", 3, "Error")]);
    assert_eq!((t.missed(), t.machine.counters().missed_withdrawn), (1, 1));
    assert_eq!(t.health().loss.missed, 0);
}

/// The same report with a start time.
fn with_start_time(mut report: Report) -> Report {
    if let Details::Container(details) = &mut report.details {
        Arc::make_mut(details).started_at = report.identity.created_at;
    }
    report
}

/// A STOPPED of an unknown container, with a start time: its STARTED was lost.
#[test]
fn a2_stopped_without_started_is_a_miss_unless_started_follows() {
    for late in [None, Some(Started)] {
        let mut t = on_containerd(&[]);
        let own = with_start_time(exited("c", "p", 0, "Completed"));
        t.event(Stopped, "c", s(), std::slice::from_ref(&own));
        t.node.push(in_s(own.clone()));
        let lists = t.machine.counters().lists;
        t.pass(900);
        if let Some(late) = late {
            t.event(late, "c", s(), &[own]);
        }
        t.run(200);
        let relisted = t.machine.counters().lists > lists;
        t.run(6_000);
        assert_eq!(t.missed(), u64::from(late.is_none()));
        assert_eq!(relisted, late.is_none(), "a relist after a second");
    }
}

#[test]
fn a2_deleted_without_stopped_is_a_miss() {
    let mut t = on_containerd(&["c"]);
    t.node.pop();
    t.event(Deleted, "c", s(), &[]);
    t.run(6_000);
    assert_eq!(t.missed(), 1);
    let mut t = listed(&["c"]);
    t.node.pop();
    t.event(Deleted, "c", s(), &[]);
    t.run(6_000);
    assert_eq!(t.missed(), 0, "an unknown runtime promises nothing");
}

/// A STOPPED proves that STARTED was lost only if the runtime promises STARTED, the id was unknown,
/// and its own status has a start time.
#[test]
fn stopped_without_started_is_no_miss_if_started_was_not_due() {
    let ended = || exited("c", "p", 0, "Completed");
    let sibling = with_start_time(container("d", "p", ReportedState::Running));
    for (case, profile, known, own) in [
        (
            "not promised",
            EventProfile::UNKNOWN,
            false,
            with_start_time(ended()),
        ),
        ("known", containerd(), true, with_start_time(ended())),
        ("no start time", containerd(), false, ended()),
    ] {
        let mut t = listed(if known { &["d", "c"] } else { &["d"] });
        t.machine.handle_profile(t.now(), profile);
        t.event(Stopped, "c", s(), &[own.clone(), sibling.clone()]);
        t.node.truncate(2);
        t.node.push(in_s(own));
        t.run(8_000);
        assert_eq!(t.missed(), 0, "{case}");
    }
}

/// An event from before the subscribe, or before the end of the baseline, proves nothing about this stream.
#[test]
fn deleted_without_stopped_is_no_miss_if_implausible_or_before_the_baseline() {
    let mut t = on_containerd(&["c"]);
    t.node.pop();
    t.stamped(-600_000, Deleted, "c", s(), &[]);
    t.run(8_000);
    assert_eq!(t.missed(), 0, "implausible");
    let mut t = on_containerd(&["c"]);
    t.stream_ends(StreamEnd::Ended(None));
    t.subscribe();
    t.node.pop();
    t.event(Deleted, "c", s(), &[]);
    t.run(8_000);
    assert_eq!(t.missed(), 0, "before the baseline");
}

/// A list that shows the same state as an earlier read proves no miss: the event may have come before
/// the baseline.
#[test]
fn state_first_shown_by_a_read_begun_before_the_baseline_is_no_miss() {
    let mut t = on_containerd(&["c"]);
    t.stream_ends(StreamEnd::Ended(None));
    t.subscribe();
    t.request_relist("p");
    t.answer_list();
    t.pass(10);
    t.relist();
    t.node[1] = ended("c", 3, "Error");
    t.answer_inspection_of("p");
    t.run(8_000);
    assert_eq!(t.missed(), 0);
}

/// Whether a container failed to start, of which no event tells, is known only from its record (found by seed
/// 20043228).
#[test]
fn failed_start_whose_tombstone_is_dropped_is_not_missed() {
    for (reason, missed) in [("StartError", 0), ("Error", 1)] {
        let mut settings = Settings::default();
        settings.tombstones_max = 1;
        let mut t = Script::confirmed_with(settings);
        t.machine.handle_profile(t.now(), containerd());
        t.event(Created, "s", s(), &[]);
        t.request_reinspect("p");
        t.inspect(&[ready(), exited("c", "p", 128, reason)], &[]);
        t.event(Deleted, "c", s(), &[]);
        t.event(Deleted, "d", s(), &[]);
        assert_eq!(t.machine.counters().tombstones, 1);
        t.run(6_000);
        assert_eq!(t.missed(), missed, "{reason}");
    }
}

/// Only an exit waits for its status: the container may have failed to start.
#[test]
fn started_is_missed_also_if_the_pod_cannot_be_read() {
    let mut t = listed(&[]);
    t.failing.insert("p".into(), failure(""));
    t.node.push(container("c", "p", ReportedState::Running));
    t.relist();
    t.run(5_100);
    assert_eq!(t.missed(), 1);
}

/// It ran, whatever its exit code (found by seed 30020277).
#[test]
fn started_is_missed_also_if_the_exit_cannot_be_read() {
    let mut t = listed(&[]);
    t.node.push(container("c", "p", ReportedState::Running));
    t.relist();
    t.settle();
    t.event(Stopped, "c", s(), &[]);
    // The inspection hangs.
    t.pass(5_100);
    assert_eq!(t.missed(), 1);
}

/// A status in an event about the sandbox shows the exit, at the instant when a list begins that shows
/// it, too.
#[test]
fn event_is_missed_if_another_one_showed_the_exit_when_the_list_began() {
    let mut t = on_containerd(&["c"]);
    t.begins_after = 0;
    t.relist();
    t.node[1] = ended("c", 3, "Error");
    let exit = t.node[1].clone();
    t.event(Created, "s", s(), &[exit]);
    t.settle();
    t.run(6_000);
    assert_eq!(t.missed(), 1);
}
