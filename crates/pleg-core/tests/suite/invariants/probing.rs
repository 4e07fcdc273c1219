//! The probe of the runtime (invariant 12).

use std::time::Duration;

use pleg_core::{CallErrorKind, Cause, Degraded, EventType, ReportedState, Settings};

use crate::script::{Script, exited, ready, s, sandbox, status};

/// Pods `p` and `q` with a sandbox each and a container in `p`, all inspected.
fn probed() -> Script {
    probed_with(Settings::default())
}

fn probed_with(mut settings: Settings) -> Script {
    // Not the default period, which the scripts disable.
    settings.probe_period = Duration::from_secs(16);
    let mut t = Script::confirmed_with(settings);
    let rows = [
        ready(),
        status("c", "p", ReportedState::Running),
        sandbox("z", "q", ReportedState::Running),
    ];
    t.node = rows.to_vec();
    t.relist();
    t.settle();
    t
}

/// In as many probes as there are ids, each id is attempted once, and none twice in a row. Ids that
/// were attempted at the same instant are in order.
#[test]
fn probe_reads_the_status_attempted_least_recently() {
    let mut t = probed();
    let mut read = Vec::new();
    for _ in 0..6 {
        read.push(t.next_probe());
        t.probe_answers();
    }
    assert_eq!(read[..3], ["c", "s", "z"]);
    assert_eq!(read[3..], read[..3]);
}

/// The bound of the reads of exit reasons does not count the probe.
#[test]
fn hanging_probe_does_not_delay_the_read_of_an_exit_reason() {
    let mut settings = Settings::default();
    settings.inspections = 1;
    let mut t = probed_with(settings);
    while t.next_probe() == "c" {
        t.probe_answers();
    }
    let ended = [exited("c", "p", 137, "Error")];
    t.event(EventType::Stopped, "c", s(), &ended);
    t.pass(2_000);
    assert_eq!(t.reads_wanted(), 2, "the probe and the exit");
}

/// A container has failed, and the read of its late reason is in flight.
fn reading_an_exit_reason() -> Script {
    let mut t = probed();
    let ended = [exited("c", "p", 1, "Error")];
    t.event(EventType::Stopped, "c", s(), &ended);
    t.pass(2_000);
    assert_eq!(t.read_wanted_of(), Some("c".into()));
    t
}

/// Without this the pod of a status call that hangs was named only after its deadline, and by the probe.
#[test]
fn hanging_read_of_an_exit_reason_is_named_within_three_seconds() {
    let mut t = reading_an_exit_reason();
    t.pass(1_000);
    t.version_answers();
    assert_eq!(t.inspection_wanted(), Some(&"p".into()));
    t.pass(2_000);
    let degraded = t.health().degraded(t.now());
    let names_it = |reason: &Degraded| match reason {
        Degraded::PodsHung { pods, .. } => pods.iter().any(|pod| pod.uid == "p".into()),
        _ => false,
    };
    assert!(degraded.iter().any(names_it), "{degraded:?}");
}

#[test]
fn hanging_read_of_an_exit_reason_is_not_blamed_on_the_pod_if_the_runtime_is_silent() {
    let mut t = reading_an_exit_reason();
    t.pass(1_000);
    t.version_fails(CallErrorKind::DeadlineExceeded);
    assert!(t.health().silent_since.is_some());
    assert_eq!(t.inspection_wanted(), None);
}

#[test]
fn pod_is_inspected_after_a_failed_read_of_an_exit_reason_unless_the_container_is_gone() {
    for (kind, inspected) in [
        (CallErrorKind::Failed, true),
        (CallErrorKind::NotFound, false),
    ] {
        let mut t = reading_an_exit_reason();
        t.probe_fails(kind);
        assert_eq!(t.inspection_wanted().is_some(), inspected, "{kind:?}");
    }
}

/// The probe asked before the container ended: its answer may lack the reason.
#[test]
fn exit_reason_is_read_after_a_probe_of_the_same_container_has_ended() {
    let mut t = probed();
    while t.next_probe() != "c" {
        t.probe_answers();
    }
    let ended = exited("c", "p", 137, "Error");
    t.event(EventType::Stopped, "c", s(), std::slice::from_ref(&ended));
    t.pass(2_000);
    assert_eq!(t.reads_wanted(), 1);
    t.read(ended);
    t.pass(2_000);
    assert_eq!(t.reads_wanted(), 1);
}

#[test]
fn version_without_an_answer_means_that_the_runtime_is_silent() {
    let mut t = probed();
    t.next_probe();
    let asked = t.now();
    t.pass(999);
    assert_eq!(t.versions_wanted(), 0, "not within a second");
    t.pass(1);
    assert_eq!(t.versions_wanted(), 1);
    t.pass(2_000);
    t.version_fails(CallErrorKind::DeadlineExceeded);
    let health = t.health();
    assert_eq!(health.silent_since, Some(asked));
    assert!(
        health
            .degraded(t.now())
            .contains(&Degraded::RuntimeSilent { since: asked })
    );
    assert_eq!(t.inspection_wanted(), None, "the pod is not to blame");
    t.probe_answers();
    assert_eq!(t.health().silent_since, None);
}

/// A runtime that refuses a call answers.
#[test]
fn error_of_the_runtime_ends_its_silence() {
    let mut t = probed();
    t.next_probe();
    t.probe_answers();
    t.pass(15_000);
    let ended = [exited("c", "p", 1, "Error")];
    t.event(EventType::Stopped, "c", s(), &ended);
    t.pass(1_000);
    t.probe_fails(CallErrorKind::DeadlineExceeded);
    t.version_fails(CallErrorKind::DeadlineExceeded);
    assert!(t.health().silent_since.is_some());
    t.pass(1_000);
    assert_eq!(t.read_wanted_of(), Some("c".into()));
    t.probe_fails(CallErrorKind::NotFound);
    assert_eq!(t.health().silent_since, None);
}

#[test]
fn answered_version_means_that_the_pod_hangs() {
    let mut t = probed();
    let id = t.next_probe();
    t.pass(1_000);
    t.version_answers();
    let uid = if id == "z" { "q" } else { "p" };
    assert_eq!(t.inspection_wanted(), Some(&uid.into()));
    let counters = t.machine.counters();
    assert_eq!(counters.inspections_by_cause[Cause::Probe], 1);
    assert_eq!(t.health().silent_since, None);
}

/// A runtime that refuses a call works.
#[test]
fn refused_status_or_version_is_no_silence() {
    for kind in [CallErrorKind::NotFound, CallErrorKind::Failed] {
        let mut t = probed();
        t.next_probe();
        t.probe_fails(kind);
        assert_eq!(t.versions_wanted(), 0, "{kind:?}");
        assert!(t.inspection_wanted().is_some(), "{kind:?}");
    }
    let mut t = probed();
    t.next_probe();
    t.probe_fails(CallErrorKind::Unavailable);
    assert_eq!(t.versions_wanted(), 1);
    t.version_fails(CallErrorKind::Unimplemented);
    assert_eq!(t.health().silent_since, None);
}

/// So is an answer to another call that ended after the probe began.
#[test]
fn any_answer_since_the_probe_ends_the_silence() {
    let mut t = probed();
    t.next_probe();
    t.pass(1_000);
    t.relist();
    let rows = t.node.clone();
    t.list(&rows);
    t.version_fails(CallErrorKind::DeadlineExceeded);
    assert_eq!(t.health().silent_since, None);
}

/// The probe finds details that change without an event, within one round.
#[test]
fn probe_finds_details_that_changed_without_an_event() {
    let mut t = probed();
    let mut changed = status("c", "p", ReportedState::Running);
    let mut details = pleg_core::ContainerDetails::default();
    details.message = "resized".into();
    changed.details = details.into();
    t.node[1] = changed;
    for _ in 0..3 {
        t.next_probe();
        t.probe_answers();
    }
    assert_eq!(&*t.get("p").status.containers[0].details.message, "resized");
}

/// Something is always due: within the probe period, or at the deadline of a call.
#[test]
fn work_is_always_due() {
    let mut t = probed();
    let seconds = |n| Duration::from_secs(n);
    let due = |t: &Script| t.health().due.since(t.now());
    assert!(due(&t) <= seconds(16), "{:?}", due(&t));
    t.next_probe();
    assert!(due(&t) <= seconds(1), "Version is called");
    t.pass(1_000);
    assert!(due(&t) <= seconds(2), "the deadline of Version");
}

#[test]
fn runtime_is_silent_since_the_first_call_that_was_not_answered() {
    let mut t = probed();
    t.next_probe();
    let asked = t.now();
    t.pass(500);
    t.probe_fails(CallErrorKind::DeadlineExceeded);
    t.version_fails(CallErrorKind::DeadlineExceeded);
    assert_eq!(t.health().silent_since, Some(asked));
}

/// A runtime that refuses a probe answers, so the list that failed is repeated at once. A refused read
/// of an exit reason only ends the silence.
#[test]
fn refused_probe_repeats_a_failed_list_and_a_refused_exit_read_does_not() {
    for of_probe in [true, false] {
        let mut t = if of_probe {
            let mut t = probed();
            t.next_probe();
            t
        } else {
            reading_an_exit_reason()
        };
        while t.lists_wanted() > 0 {
            t.answer_list();
        }
        t.relist();
        t.list_fails(CallErrorKind::Unavailable);
        t.probe_fails(CallErrorKind::NotFound);
        assert_eq!(t.lists_wanted() == 1, of_probe);
    }
}

/// A relist joins a probe. If each probe were late by what its timer was late, the relist would join an
/// earlier one: every 48 s instead of every 60 s.
#[test]
fn relist_of_an_idle_node_keeps_its_period_although_timers_fire_late() {
    for late in [0, 1, 40] {
        let mut settings = Settings::default();
        settings.probe_period = Duration::from_secs(12);
        let mut t = Script::confirmed_with(settings);
        t.event(EventType::Created, "s", s(), &[]);
        t.node = vec![ready()];
        t.run_with_late_timers(600_000, late);
        t.take_requested();
        t.run_with_late_timers(600_000, late);
        assert_eq!(counted(&mut t), (10, 50), "{late} ms late");
    }
}

/// After the machine has slept, one probe runs, not all that were due.
#[test]
fn probe_that_is_late_by_more_than_its_period_runs_once() {
    let mut t = probed();
    t.run_with_late_timers(16_000, 100_000);
    t.take_requested();
    t.run_with_late_timers(15_000, 0);
    assert_eq!(counted(&mut t).1, 0, "the next one is due in 16 s");
    t.run_with_late_timers(1_000, 0);
    assert_eq!(counted(&mut t).1, 1);
}

/// The lists and the probes since this was asked.
fn counted(t: &mut Script) -> (usize, usize) {
    let requested = t.take_requested();
    let count = |is: fn(&String) -> bool| requested.iter().filter(|call| is(call)).count();
    (
        count(|call| call == "list"),
        count(|call| call.ends_with("(status)")),
    )
}

/// A status call may take longer than a probe period.
#[test]
fn no_second_probe_runs_while_one_is_unanswered() {
    let mut t = probed();
    t.next_probe();
    t.pass(1_000);
    t.version_answers();
    t.pass(16_000);
    assert_eq!(t.reads_wanted(), 1);
}

#[test]
fn each_probe_of_a_status_is_counted() {
    let mut t = probed();
    for probes in 1..=2 {
        t.next_probe();
        t.probe_answers();
        assert_eq!(t.machine.counters().probes, probes);
    }
}

/// Such a pod is inspected again anyway, with a backoff.
#[test]
fn probe_leaves_out_a_pod_whose_lists_fail() {
    let mut t = probed();
    t.request_relist("p");
    t.inspection_fails(&[]);
    for _ in 0..3 {
        assert_eq!(t.next_probe(), "z");
        t.probe_answers();
    }
}

#[test]
fn probe_leaves_out_a_removed_container() {
    let mut t = probed();
    t.node.remove(1);
    t.relist();
    t.settle();
    for _ in 0..4 {
        assert_ne!(t.next_probe(), "c");
        t.probe_answers();
    }
}
