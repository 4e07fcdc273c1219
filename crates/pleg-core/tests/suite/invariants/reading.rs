//! Invariants 3, 4, 10 and 11: which reads are made, when, and which waiters they answer.

use pleg_core::{
    CallErrorKind, EventType, HeldId, Instant, Kind, LifecycleType, PodRead, PodUid, Report,
    ReportedState, Settings, StreamEnd,
};

use crate::script::{Script, container, exited, list_deadline, ready, rows, s, sandbox, status};
use EventType::{Created, Deleted, Started, Stopped};

/// An event that reports a removal satisfies no waiter, not even one for an earlier instant.
#[test]
fn event_with_a_removal_answers_no_waiter() {
    let mut t = Script::confirmed();
    let before = t.now();
    t.pass(5);
    t.event(Created, "s", s(), &[]);
    t.relist_shows(&[ready()]);
    t.event(Deleted, "s", None, &[]);
    t.wait("p", before);
    assert!(t.answers.is_empty());
    t.inspect(&[], &["s"]);
    assert!(t.answers[0].1.as_ref().is_ok_and(|v| v.status.is_nothing()));
}

/// An event of an earlier state than the recorded one does not resolve a contradiction: a list
/// shows an id that is recorded as removed, so it does not confirm the end of its pod, although an
/// earlier STARTED of that id was kept as orphan (found by seed 10221874).
#[test]
fn orphan_event_does_not_resolve_a_contradiction_by_a_list() {
    let mut t = Script::confirmed();
    t.relist_shows(&[]);
    // The list for the orphan runs a second after the first list.
    t.event(Started, "s", None, &[]);
    t.event(Deleted, "s", None, &[]);
    let before = t.now();
    t.pass(1000);
    t.list(&[sandbox("s", "p", ReportedState::Unknown)]);
    t.wait("p", before);
    assert!(t.answers.is_empty(), "{:?}", t.answers);
}

/// A waiter that asks while a read is in flight that began too early gets the next read.
#[test]
fn read_begun_earlier_does_not_answer_a_later_waiter() {
    let mut t = Script::confirmed();
    t.event(Created, "s", s(), &[]);
    t.wait("p", t.now());
    t.pass(10);
    let late = t.now();
    t.wait("p", late);
    let found = [ready()];
    t.inspect(&found, &[]);
    assert_eq!(t.answers.len(), 1);
    t.inspect(&found, &[]);
    assert_eq!(t.answers.len(), 2);
    assert!(t.answers[1].1.as_ref().is_ok_and(|v| v.as_of > Some(late)));
}

/// Lists fail at once while events arrive: one list at once, then one a second.
#[test]
fn failing_lists_run_once_a_second_however_many_events_arrive() {
    let mut t = Script::confirmed();
    t.pass(60_000);
    let mut lists = 0;
    for n in 0..3_000 {
        while t.lists_wanted() > 0 {
            t.list_fails(CallErrorKind::TooLarge);
            lists += 1;
        }
        t.event(
            Created,
            &format!("s{n}"),
            Some(sandbox(&format!("s{n}"), "p", ReportedState::Running)),
            &[],
        );
    }
    assert!((3..=9).contains(&lists), "{lists} lists in three seconds");
}

/// Orphan events cause one list a second, however many they are. If lists fail, each scheduled one
/// is followed by one that runs at once.
#[test]
fn orphan_events_cause_one_list_a_second() {
    for (fails, most) in [(false, 4), (true, 9)] {
        let mut t = Script::confirmed();
        t.pass(60_000);
        let mut lists = 0;
        for n in 0..3_000 {
            while t.lists_wanted() > 0 {
                lists += 1;
                if fails {
                    t.list_fails(CallErrorKind::TooLarge);
                } else {
                    t.list(&[]);
                }
            }
            t.event(Stopped, &format!("s{n}"), None, &[]);
        }
        assert!(
            (3..=most).contains(&lists),
            "{lists} lists in three seconds"
        );
    }
}

/// A cancelled inspection does not show that the runtime answers.
#[test]
fn cancelled_inspection_does_not_end_an_outage() {
    let mut settings = Settings::default();
    settings.overdue_max = 1;
    let mut t = Script::confirmed_with(settings);
    t.relist();
    t.list_fails(CallErrorKind::Unavailable);
    t.wait("p", t.now());
    t.wait("q", t.now());
    t.pass(300);
    assert_eq!(t.cancelled.len(), 1);
    assert_eq!(t.lists_wanted(), 0);
}

/// A deadline that has grown with slow lists doubles from there.
#[test]
fn list_deadline_doubles_after_each_timeout() {
    let mut settings = Settings::default();
    settings.probe_period = std::time::Duration::from_secs(24 * 3600);
    let origin = Instant::from_nanos(1);
    let mut machine = pleg_core::Reconciler::new(settings, origin).expect("valid");
    let (mut now, mut ticket, mut deadlines) = (1, 0, Vec::new());
    for n in 0..4 {
        ticket += 1;
        deadlines.extend(list_deadline(&mut machine).map(|d| d.as_secs()));
        let began = Instant::from_nanos(now);
        now += 20_000_000_000;
        let ended = Instant::from_nanos(now);
        let rows = if n == 0 {
            Ok(pleg_core::Rows::default())
        } else {
            Err(pleg_core::CallError::new(
                "List",
                CallErrorKind::DeadlineExceeded,
                "",
            ))
        };
        machine.handle_list(
            ended,
            pleg_core::List {
                ticket: ticket.into(),
                began,
                ended,
                rows,
            },
        );
        now += 1_000_000_000;
        machine.handle_timeout(Instant::from_nanos(now));
    }
    assert_eq!(deadlines, [10, 60, 120, 120]);
}

/// A subscribe to a disabled stream is not a lost stream.
#[test]
fn disabled_stream_is_not_counted_as_lost() {
    let mut t = Script::new();
    t.list(&[]);
    t.subscribe();
    t.stream_ends(StreamEnd::Disabled);
    assert_eq!(t.machine.counters().streams_lost, 0);
}

/// While the stream is complete, the only reads are rare lists and the inspections for a removal
/// that this stream may not report.
#[test]
fn complete_events_cause_no_inspection_and_no_miss() {
    let mut t = Script::confirmed();
    let before = t.machine.counters();
    t.event(Created, "s", s(), &[]);
    t.event(Started, "s", s(), &[]);
    for n in 0..20 {
        let c = format!("c{n}");
        t.event(Created, &c, s(), &[status(&c, "p", ReportedState::Created)]);
        t.event(Started, &c, s(), &[status(&c, "p", ReportedState::Running)]);
        t.event(Stopped, &c, s(), &[exited(&c, "p", 0, "Completed")]);
        t.event(Deleted, &c, s(), &[]);
    }
    t.pass_reading(400_000, &[ready()], &[]);
    let after = t.machine.counters();
    assert_eq!(after.inspections - before.inspections, 0);
    assert_eq!(after.exit_reads, 0);
    assert_eq!(t.missed(), 0);
    // 2, 4, 8, 16, 32, 60, 60, …
    assert!(
        (10..=13).contains(&(after.lists - before.lists)),
        "{}",
        after.lists - before.lists
    );
}

/// One lost event is one miss, five seconds later, and the period is short again.
#[test]
fn one_lost_event_is_one_miss() {
    let mut t = Script::confirmed();
    t.event(Created, "s", s(), &[]);
    t.event(
        Created,
        "c",
        s(),
        &[status("c", "p", ReportedState::Created)],
    );
    t.event(
        Started,
        "c",
        s(),
        &[status("c", "p", ReportedState::Running)],
    );
    let running = rows(ReportedState::Running);
    let ended = rows(ReportedState::Exited);
    let found = [ready(), exited("c", "p", 1, "Error")];
    t.pass_reading(130_000, &running, &running);
    assert_eq!(t.health().period.as_secs(), 60);
    t.pass_reading(62_000, &ended, &found);
    t.pass_reading(4_000, &ended, &found);
    assert_eq!(t.missed(), 1);
    assert_eq!(t.said(LifecycleType::ContainerDied, "c"), 1);
    t.pass_reading(60_000, &ended, &found);
    assert_eq!(t.missed(), 1);
}

/// An exit found by a list is judged when its status was read: a container that failed to start
/// sends no event, any other exit was missed (found by seed 2288336: the read was cancelled and
/// came late).
#[test]
fn exit_found_by_a_list_is_judged_after_its_status_was_read() {
    let rows = rows(ReportedState::Exited);
    for (code, reason, missed) in [(128, "StartError", 0), (128, "Error", 1)] {
        let mut t = Script::confirmed();
        t.event(Created, "s", s(), &[]);
        t.relist_shows(&rows);
        for _ in 0..20 {
            t.pass(1_000);
            if t.inspection_wanted().is_some() {
                t.inspection_fails(&[]);
            }
        }
        assert_eq!(t.missed(), 0, "{reason}: nobody has read it yet");
        while t.inspection_wanted().is_none() {
            t.pass(1_000);
        }
        let end = exited("c", "p", code, reason);
        t.inspect(&[ready(), end], &[]);
        t.pass(1_001);
        assert_eq!(t.missed(), missed, "{reason}");
    }
}

/// An implausible event has arrived all the same: what it reported is no miss.
#[test]
fn implausible_event_settles_pending_event() {
    let mut t = Script::confirmed();
    t.stamped(5_000, Created, "s", s(), &[]);
    t.inspect(&[ready()], &[]);
    t.pass(6_000);
    assert_eq!(t.missed(), 0);
}

/// Reads that waiters cause while a pod fails do not multiply its retries.
#[test]
fn waiters_do_not_multiply_retries_of_a_failing_pod() {
    let mut t = Script::confirmed();
    t.event(Created, "s", s(), &[]);
    for _ in 0..10 {
        t.wait("p", t.now());
        t.inspection_fails(&[]);
        t.pass(50);
    }
    let before = t.machine.counters().inspections;
    for _ in 0..60_000 {
        t.pass(1);
        while t.inspection_wanted().is_some() {
            t.inspection_fails(&[]);
        }
        while t.lists_wanted() > 0 {
            t.list(&[ready()]);
        }
    }
    let reads = t.machine.counters().inspections - before;
    assert!(
        reads <= 6,
        "{reads} reads in a minute: after 1, 2, 4, 8, 16 and 32 s"
    );
}

/// When the pod can be read again, health no longer reports it (invariant 12).
#[test]
fn successful_inspection_clears_the_error() {
    let mut t = Script::confirmed();
    t.event(Created, "s", s(), &[]);
    t.wait("p", t.now());
    t.inspection_fails(&[]);
    assert!(t.view().status.error.is_some());
    t.pass(1_100);
    t.inspect(&[ready()], &[]);
    assert!(t.view().status.error.is_none());
    assert_eq!(t.health().failing, 0);
}

/// CRI-O does not report the removal of a sandbox: ended pods are inspected, also those that ended
/// while the stream was down.
#[test]
fn pod_that_ended_during_an_outage_is_inspected_for_removal() {
    let mut t = Script::confirmed();
    t.event(Created, "s", s(), &[]);
    t.event(
        Stopped,
        "s",
        Some(sandbox("s", "p", ReportedState::Exited)),
        &[],
    );
    t.stream_ends(StreamEnd::Ended(None));
    t.pass_reading(2_000, &[sandbox("s", "p", ReportedState::Exited)], &[]);
    t.subscribe();
    t.list(&[sandbox("s", "p", ReportedState::Exited)]);
    t.pass(1_100);
    assert_eq!(t.inspection_wanted(), Some(&PodUid::from("p")));
}

/// A failed list shortens the period; the verdict on an older list made it longer again.
#[test]
fn verdict_on_a_list_before_a_failed_list_does_not_lengthen_the_period() {
    let mut t = Script::confirmed();
    let rows = [ready()];
    t.event(
        Created,
        "x",
        Some(sandbox("x", "q", ReportedState::Running)),
        &[],
    );
    // The list shows a sandbox that events report only later, so its verdict waits.
    t.pass_to_list();
    t.list(&rows);
    t.relist();
    t.list_fails(CallErrorKind::Unavailable);
    // The first successful call starts a list at once, which fails as well.
    t.event(
        Started,
        "x",
        Some(sandbox("x", "q", ReportedState::Running)),
        &[],
    );
    t.list_fails(CallErrorKind::Unavailable);
    t.event(Started, "s", s(), &[]);
    let waited = t.pass_to_list();
    assert!(waited <= 1_000, "{waited} ms after a list that failed");
}

/// A miss shortens the period; a list that was in flight made it longer again.
#[test]
fn list_in_flight_at_a_miss_does_not_lengthen_the_period() {
    let mut t = Script::confirmed();
    let rows = [ready()];
    t.pass_to_list();
    t.list(&rows);
    t.inspect(&rows, &[]);
    // No event reports the sandbox: 5 s later that is a miss, while a list is in flight.
    t.pass(4_500);
    while t.lists_wanted() > 1 {
        t.list(&rows);
    }
    if t.lists_wanted() == 0 {
        t.relist();
    }
    t.pass(1_000);
    assert_eq!(t.missed(), 1);
    t.list(&rows);
    let waited = t.pass_to_list();
    assert!(waited <= 1_000, "{waited} ms after a miss");
}

/// Before the first event the longest period is 10 s, but not more than `relist_period_max`: with a
/// short maximum, a quiet node became unready.
#[test]
fn period_of_an_unproven_stream_does_not_exceed_the_maximum() {
    let mut settings = Settings::default();
    settings.relist_period_max = std::time::Duration::from_secs(4);
    settings.unready_after = std::time::Duration::from_secs(6);
    let mut t = Script::confirmed_with(settings);
    for _ in 0..6 {
        let waited = t.pass_to_list();
        t.list(&[]);
        assert!(waited <= 4_000, "{waited} ms between two lists");
    }
}

/// What became known between the request of an inspection and its begin, the inspection does not
/// name: it neither answers nor makes the pod fresh, and the pod is read again.
#[test]
fn inspection_that_omits_a_known_id_does_not_answer() {
    let mut t = Script::confirmed();
    t.event(Created, "s", s(), &[]);
    let running = [status("c", "p", ReportedState::Running)];
    t.event(Started, "c", s(), &running);
    let asked = t.now();
    t.wait("p", asked);
    t.inspect(&[ready()], &[]);
    assert!(t.view().as_of <= Some(asked), "{:?}", t.view());
    assert!(t.answers.is_empty(), "{:?}", t.answers);
    assert_eq!(t.inspection_wanted(), Some(&PodUid::from("p")));
    t.inspect(&[ready()], &["c"]);
    let (_, answer) = t.answers.pop().expect("an answer");
    let view = answer.expect("a view");
    assert!(view.as_of > Some(asked) && view.status.containers.is_empty());
    assert!(t.view().as_of > Some(asked) && t.view().status.containers.is_empty());
}

/// Some runtimes ignore the filter of a list and return every row. Without this, each inspection would
/// read the status of every container of the node.
#[test]
fn row_of_another_pod_does_not_concern_an_inspection() {
    let concerns = |held: &[HeldId], row: &Report| PodRead::concerns(&"p".into(), held, row);
    let (own, other) = (
        container("c", "p", ReportedState::Running),
        container("x", "q", ReportedState::Running),
    );
    assert!(concerns(&[], &own));
    assert!(!concerns(&[], &other));
    let held = HeldId {
        id: "x".into(),
        kind: Kind::Container,
        shown: ReportedState::Running,
        owed: false,
    };
    assert!(concerns(&[held], &other), "it may have moved here");
    let mut unlabelled = other;
    unlabelled.identity.unlabelled = true;
    assert!(concerns(&[], &unlabelled), "its label does not say so");
}

/// The read in flight answers whoever needs nothing newer than its request.
#[test]
fn waiter_whose_instant_is_before_the_read_in_flight_causes_no_read() {
    let mut t = Script::running();
    let before = t.now();
    t.pass(5);
    let waiters = [t.wait("p", t.now()), t.wait("p", before)];
    t.inspect(&rows(ReportedState::Running), &[]);
    assert!(waiters.iter().all(|w| t.answer_of(*w).is_some()));
    assert_eq!(t.inspections_wanted(), 0);
}

#[test]
fn inspection_is_owed_until_it_ends_and_overdue_if_it_takes_long() {
    let mut t = Script::confirmed();
    let asked = t.now();
    t.wait("p", asked);
    let owes = |t: &Script, pod: &str| t.machine.owes_inspection(&pod.into());
    assert!(owes(&t, "p") && !owes(&t, "q"));
    assert_eq!(t.machine.overdue_inspections().len(), 0);
    t.pass(300);
    let overdue = t.machine.overdue_inspections();
    let overdue: Vec<_> = overdue
        .iter()
        .map(|(_, uid, since)| (uid.to_string(), *since))
        .collect();
    assert_eq!(overdue, [("p".to_owned(), asked)]);
    t.inspect(&[], &[]);
    assert!(!owes(&t, "p"));
    assert_eq!(t.machine.overdue_inspections().len(), 0);
}

/// A waiter whose instant lies ahead is read for when it comes, with all statuses if it needs details.
#[test]
fn later_waiter_for_details_has_every_status_read() {
    let mut t = Script::running();
    let after = Instant::from_nanos(t.now().as_nanos() + 100_000_000);
    t.wait_for_details("p", after);
    assert_eq!(t.inspections_wanted(), 0);
    t.take_requested();
    t.pass(101);
    assert_eq!(t.take_requested_of_pods(), ["p (details)"]);
}
