//! The consequences of an observation: which waiters a read answers, which reads are repeated and
//! when, what a list confirms, how long a terminal record is kept.

use pleg_core::{
    Arrival, CallErrorKind, ConsumerId, EventType, Instant, LifecycleType, List, Output, Report,
    ReportedState, RuntimeEvent, WaiterId, WallTime,
};

use crate::script::{Script, container, exited, ready, rows, s, sandbox, status, statuses};
use EventType::{Created, Deleted, Started, Stopped};
use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted, PodSync};

/// An event arrives at the very instant at which the reads begin that were just requested.
fn event_at_begin(t: &mut Script, event: EventType, id: &str, containers: &[Report]) {
    let at = Instant::from_nanos(t.now().as_nanos() + 1_000);
    let wall = 1_700_000_000_000_000_000 + at.as_nanos() as i64;
    let mut event = RuntimeEvent::new(id, event);
    event.created_at = wall;
    event.sandbox = s();
    event.containers = containers.to_vec();
    let arrival = Arrival {
        event,
        arrived: at,
        wall: WallTime::from_nanos(wall),
    };
    t.machine.handle_event(at, arrival);
    t.drain();
}

/// In which tenths of a second since `start` inspections are requested. Each returns `found`, and
/// no list is answered.
fn inspections(t: &mut Script, start: Instant, seconds: u64, found: &[Report]) -> Vec<u64> {
    let mut asked = Vec::new();
    for _ in 0..seconds * 1_000 {
        t.pass(1);
        while t.inspection_wanted().is_some() {
            asked.push((t.now().as_nanos() - start.as_nanos()) / 100_000_000);
            t.inspect(found, &[]);
        }
    }
    asked
}

/// "Newer" is strict, for a pod that exists and for one that does not. A waiter whose status is
/// newer already is answered without a read.
#[test]
fn status_as_of_an_instant_is_not_newer_than_it() {
    let mut t = Script::running();
    t.wait("p", t.now());
    t.inspect(&statuses(ReportedState::Running), &[]);
    for pod in ["p", "nobody"] {
        let as_of = t.get(pod).as_of.expect("some read has shown it");
        let before = Instant::from_nanos(as_of.as_nanos() - 1);
        let early = t.wait(pod, before);
        assert_eq!(t.view_for(early).as_of, Some(as_of), "{pod}");
        assert_eq!(t.inspections_wanted(), 0, "{pod}");
        let same = t.wait(pod, as_of);
        assert!(t.answer_of(same).is_none(), "{pod}");
        assert_eq!(t.inspections_wanted(), 1, "{pod}");
        t.inspect(
            &statuses(ReportedState::Running)[..usize::from(pod == "p") * 2],
            &[],
        );
        assert!(t.view_for(same).as_of > Some(as_of), "{pod}");
    }
}

/// A list that began after a waiter's instant answers it, whether or not its pod exists, also if
/// the list ends before the timer of that instant has run.
#[test]
fn list_answers_waiters_of_pods_that_it_confirms() {
    for pod in ["p", "nobody"] {
        let mut t = Script::running();
        let (asked, waiter) = (t.now(), WaiterId::new(1));
        let later = |nanos| Instant::from_nanos(asked.as_nanos() + nanos);
        t.machine.wait(asked, waiter, &pod.into(), later(1));
        t.machine.relist_now(asked, WaiterId::new(2));
        let outputs: Vec<_> = std::iter::from_fn(|| t.machine.poll_output()).collect();
        let [Output::List { ticket, .. }] = outputs[..] else {
            panic!("a list alone is wanted: {outputs:?}");
        };
        let list = List {
            ticket,
            began: later(2),
            ended: later(3),
            rows: Ok(rows(ReportedState::Running).into_iter().collect()),
        };
        t.machine.handle_list(later(3), list);
        t.pass(1);
        assert_eq!(t.view_for(waiter).as_of, Some(later(2)), "{pod}");
        assert_eq!(t.inspections_wanted(), 0, "{pod}");
    }
}

/// The read in flight would serve a waiter, and fails: the pod is read again at once, not after its
/// backoff.
#[test]
fn failed_shared_read_is_repeated_at_once_for_the_other_waiter() {
    let mut t = Script::running();
    let before = t.now();
    t.pass(5);
    let first = t.wait("p", t.now());
    let second = t.wait("p", before);
    t.inspection_fails(&[]);
    assert!(t.answer_of(first).is_some_and(Result::is_err));
    assert!(t.answer_of(second).is_none());
    t.inspect(&statuses(ReportedState::Running), &[]);
    assert!(t.view_for(second).as_of > Some(before));
}

/// The announcement of a listed state waits for a read that was requested after it: one in flight
/// does not know the exit code.
#[test]
fn inspection_begun_before_a_list_does_not_release_its_died() {
    let mut t = Script::running();
    t.relist();
    t.wait("p", t.now());
    t.list(&rows(ReportedState::Exited));
    t.inspect(&statuses(ReportedState::Running), &[]);
    assert_eq!(t.said(ContainerDied, "c"), 0);
    t.inspect(&[ready(), exited("c", "p", 3, "Error")], &[]);
    let died = t.announced.iter().filter(|a| a.0 == ContainerDied);
    assert_eq!(died.map(|a| a.3).collect::<Vec<_>>(), [Some(3)]);
}

/// A row that clears UNKNOWN and moves the id: nothing is announced before the inspection that
/// follows.
#[test]
fn changes_beside_a_held_announcement_are_announced_with_it() {
    let mut t = Script::running();
    t.wait("p", t.now());
    t.inspect(&statuses(ReportedState::Unknown), &[]);
    let before = t.announced.len();
    t.relist_shows(&rows(ReportedState::Exited));
    assert_eq!(t.announced[before..], []);
    t.inspect(&[ready(), exited("c", "p", 3, "Error")], &[]);
    assert_eq!(t.announced.len(), before + 1);
    assert_eq!(t.announced[before].0, ContainerDied);
}

/// Every announcement has the name of its pod, also that of its removal.
#[test]
fn announcement_names_its_pod() {
    let mut named = ready();
    named.identity.namespace = Some("ns".into());
    named.identity.pod_name = Some("web".into());
    let mut t = Script::confirmed();
    t.event(Created, "s", Some(named.clone()), &[]);
    t.request_reinspect("p");
    t.inspect(&[named], &[]);
    t.event(Deleted, "s", None, &[]);
    let told: Vec<_> = t.events.iter().map(|e| e.event).collect();
    assert_eq!(
        told,
        [ContainerStarted, PodSync, ContainerDied, ContainerRemoved]
    );
    for event in &t.events {
        assert_eq!((&*event.namespace, &*event.pod_name), ("ns", "web"));
    }
}

/// The terminal record shows whether the container still exists.
#[test]
fn terminal_record_is_marked_when_its_container_is_removed() {
    let mut t = Script::running();
    t.event(Stopped, "c", s(), &[exited("c", "p", 1, "Error")]);
    assert!(!t.ends[0].removed);
    t.event(Deleted, "c", s(), &[]);
    assert_eq!(t.ends.len(), 1);
    assert!(t.ends[0].removed);
}

#[test]
fn terminal_records_are_kept_for_ten_minutes_after_their_pod() {
    let mut t = Script::confirmed();
    t.event(Created, "s", s(), &[]);
    t.pass(700_000);
    t.event(Deleted, "s", None, &[]);
    t.pass(599_000);
    assert_eq!(t.ends.len(), 1);
    t.pass(1_000);
    assert!(t.ends.is_empty());
}

/// The ten minutes after the first end of a pod are over. The pod has come back meanwhile, so they
/// start again at its second end.
#[test]
fn pod_that_returns_keeps_its_terminal_records() {
    let mut t = Script::confirmed();
    t.event(Created, "s", s(), &[]);
    t.event(Deleted, "s", None, &[]);
    t.pass(300_000);
    let again = || Some(sandbox("s2", "p", ReportedState::Running));
    t.event(Created, "s2", again(), &[]);
    t.pass(301_000);
    assert_eq!(t.ends.len(), 1);
    t.event(Deleted, "s2", None, &[]);
    t.pass(599_000);
    assert_eq!(t.ends.len(), 2);
    t.pass(1_000);
    assert!(t.ends.is_empty());
}

/// After an acknowledgement the pod comes back and ends again at once: the new record has its own
/// ten minutes.
#[test]
fn acknowledged_terminal_record_does_not_shorten_a_later_one() {
    for acknowledged in [false, true] {
        let mut t = Script::confirmed();
        let worker = ConsumerId::new(1);
        t.machine.register(worker, &"worker".into());
        t.event(Created, "s", s(), &[]);
        t.event(Deleted, "s", None, &[]);
        if acknowledged {
            t.machine.acknowledge(worker, &"s".into(), 0);
            t.drain();
        }
        t.pass(300_000);
        let again = || Some(sandbox("s2", "p", ReportedState::Running));
        t.event(Created, "s2", again(), &[]);
        t.event(Deleted, "s2", None, &[]);
        t.pass(599_000);
        assert_eq!(t.ends.len(), 2 - usize::from(acknowledged));
        t.pass(1_000);
        assert!(t.ends.is_empty());
    }
}

/// Synced means that the pods of the first list were inspected; a newer pod does not delay it.
#[test]
fn pod_new_in_a_later_list_does_not_delay_synced() {
    let pod = |uid: &str| container(&format!("c{uid}"), uid, ReportedState::Running);
    let mut t = Script::new();
    t.list(&[pod("p")]);
    t.relist_shows(&[pod("p"), pod("q")]);
    t.inspect(&[pod("p")], &[]);
    assert!(t.health().synced);
}

/// An id that was learned at the begin of the read was not known before it.
#[test]
fn absence_does_not_remove_an_id_learned_at_the_begin_of_the_read() {
    let mut t = Script::confirmed();
    t.relist();
    event_at_begin(&mut t, Created, "s", &[]);
    t.list(&[]);
    assert_eq!(t.get("p").status.sandboxes.len(), 1);

    let mut t = Script::running();
    t.wait("p", t.now());
    let new = status("d", "p", ReportedState::Running);
    event_at_begin(&mut t, Started, "d", &[new]);
    t.inspect(&statuses(ReportedState::Running), &["d"]);
    assert_eq!(t.get("p").status.containers.len(), 2);
}

/// Nor did the read leave out such an id: the pod is as of the read.
#[test]
fn id_learned_at_the_begin_of_a_read_is_not_left_out_of_it() {
    let mut t = Script::running();
    let asked = t.now();
    let waiter = t.wait("p", asked);
    let new = status("d", "p", ReportedState::Running);
    event_at_begin(&mut t, Started, "d", &[new]);
    t.inspect(&statuses(ReportedState::Running), &[]);
    assert!(t.get("p").as_of > Some(asked));
    assert_eq!(t.view_for(waiter).status.containers.len(), 2);
}

/// A list that began at the instant of a removal does not know of it, and does not support it
/// against inspections.
#[test]
fn list_begun_at_the_instant_of_a_removal_does_not_support_it() {
    let mut t = Script::running();
    t.relist();
    event_at_begin(&mut t, Deleted, "c", &[]);
    t.pass(1);
    t.wait("p", t.now());
    t.inspect(&statuses(ReportedState::Running), &[]);
    t.list(&[ready()]);
    assert_eq!(t.machine.counters().contradictions, 1);
    let start = t.now();
    inspections(&mut t, start, 11, &statuses(ReportedState::Running));
    assert_eq!(t.machine.counters().overruled, 1);
}

/// Nor does such an inspection support it against lists.
#[test]
fn inspection_begun_at_the_instant_of_a_removal_does_not_support_it() {
    let mut t = Script::running();
    t.wait("p", t.now());
    event_at_begin(&mut t, Deleted, "c", &[]);
    t.pass(1);
    t.relist_shows(&rows(ReportedState::Running));
    t.inspect(&[ready()], &["c"]);
    assert_eq!(t.machine.counters().contradictions, 1);
    for _ in 0..12 {
        t.pass(1_000);
        while t.lists_wanted() > 0 {
            t.list(&rows(ReportedState::Running));
        }
    }
    assert_eq!(t.machine.counters().overruled, 1);
}

/// Nor does such a list once a later list contradicts it.
#[test]
fn later_contradicting_list_does_not_make_the_first_list_support_a_removal() {
    let mut t = Script::running();
    t.relist();
    event_at_begin(&mut t, Deleted, "c", &[]);
    t.list(&[ready()]);
    t.relist_shows(&rows(ReportedState::Running));
    let start = t.now();
    t.wait("p", start);
    inspections(&mut t, start, 11, &statuses(ReportedState::Running));
    assert_eq!(t.machine.counters().overruled, 1);
}

/// An inspection that began at the instant of a removal does not contradict it, not even with
/// UNKNOWN.
#[test]
fn unknown_from_a_read_begun_at_a_removal_does_not_contradict_it() {
    let mut t = Script::running();
    t.wait("p", t.now());
    event_at_begin(&mut t, Deleted, "c", &[]);
    t.inspect(&statuses(ReportedState::Unknown), &[]);
    assert_eq!(t.machine.counters().contradictions, 0);
    t.wait("p", t.now());
    t.inspect(&statuses(ReportedState::Unknown), &[]);
    assert_eq!(t.machine.counters().contradictions, 1);
}

/// A list does not confirm a pod that it shows in an earlier state, or that an inspection
/// contradicts.
#[test]
fn list_does_not_confirm_a_contradicted_pod() {
    let ended = [exited("c", "p", 0, "Completed")];
    let mut late = Script::running();
    late.wait("p", late.now());
    late.inspect(&statuses(ReportedState::Running), &[]);
    late.relist();
    late.pass(1);
    late.event(Stopped, "c", s(), &ended);
    let as_of = late.get("p").as_of;
    late.list(&rows(ReportedState::Running));
    assert_eq!(late.inspections_wanted(), 0);
    assert_eq!(late.get("p").as_of, as_of);

    let mut disputed = Script::running();
    disputed.event(Stopped, "c", s(), &ended);
    disputed.wait("p", disputed.now());
    disputed.inspect(&statuses(ReportedState::Running), &[]);
    let as_of = disputed.get("p").as_of;
    disputed.relist_shows(&rows(ReportedState::Exited));
    assert_eq!(disputed.inspections_wanted(), 0);
    assert_eq!(disputed.get("p").as_of, as_of);
}

/// After an outage a list runs at once with the first successful call. An inspection shows that the
/// runtime answers, whatever it returns; so does one status of an inspection that fails. A failure
/// alone does not.
#[test]
fn any_status_of_an_inspection_ends_an_outage() {
    let out = || {
        let mut t = Script::confirmed();
        t.relist();
        t.list_fails(CallErrorKind::Unavailable);
        t.pass(100);
        assert_eq!(t.lists_wanted(), 0);
        t.wait("p", t.now());
        t
    };
    let mut empty = out();
    empty.inspect(&[], &[]);
    assert_eq!(empty.lists_wanted(), 1);
    let mut failed = out();
    failed.inspection_fails(&[]);
    assert_eq!(failed.lists_wanted(), 0);
    let mut partial = out();
    partial.inspection_fails(&[ready()]);
    assert_eq!(partial.lists_wanted(), 1);
}

#[test]
fn unknown_is_inspected_again_with_backoff() {
    let mut t = Script::running();
    t.wait("p", t.now());
    t.inspect(&statuses(ReportedState::Unknown), &[]);
    let start = t.now();
    let asked = inspections(&mut t, start, 70, &statuses(ReportedState::Unknown));
    assert_eq!(asked, [10, 30, 70, 150, 310, 630]);
}

/// A contradiction is repeated when it is due; the backoff of the unknown id continues, and there
/// is only one backoff.
#[test]
fn contradiction_beside_unknown_adds_no_second_backoff() {
    let mut t = Script::running();
    t.event(
        Started,
        "d",
        s(),
        &[status("d", "p", ReportedState::Running)],
    );
    t.event(Stopped, "d", s(), &[exited("d", "p", 0, "Completed")]);
    let [sandbox, unknown] = statuses(ReportedState::Unknown);
    let found = [sandbox, unknown, status("d", "p", ReportedState::Running)];
    t.wait("p", t.now());
    t.inspect(&found, &[]);
    let start = t.now();
    let asked = inspections(&mut t, start, 40, &found);
    assert_eq!(asked, [1, 10, 30, 70, 150, 310]);
}

/// An ended pod on a stream that may not report removals is inspected six times.
#[test]
fn ended_pod_is_inspected_six_times_for_removal() {
    let mut t = Script::confirmed();
    t.event(Created, "s", s(), &[]);
    let ended = sandbox("s", "p", ReportedState::Exited);
    let start = t.now();
    t.event(Stopped, "s", Some(ended.clone()), &[]);
    let asked = inspections(&mut t, start, 130, &[ended]);
    assert_eq!(asked, [10, 30, 70, 150, 310, 600]);
}

/// Not if the pod has started again, or if the stream reports a removal after all.
#[test]
fn restarted_pod_or_reported_removal_causes_no_inspection_for_removal() {
    let ended = sandbox("s", "p", ReportedState::Exited);
    for begins_anew in [true, false] {
        let mut t = Script::confirmed();
        t.event(Created, "s", s(), &[]);
        let other = || Some(sandbox("x", "q", ReportedState::Running));
        t.event(Created, "x", other(), &[]);
        t.event(Stopped, "s", Some(ended.clone()), &[]);
        if begins_anew {
            let again = sandbox("s2", "p", ReportedState::Running);
            t.event(Created, "s2", Some(again), &[]);
        } else {
            t.event(Deleted, "x", None, &[]);
        }
        let start = t.now();
        assert_eq!(inspections(&mut t, start, 70, &[]), [0; 0], "{begins_anew}");
    }
}
