//! State and details are fresh separately, and a read for waiters makes only calls that are owed
//! (invariant 3).

use pleg_core::{
    CallErrorKind, Degraded, EventType, FailedStatus, HeldId, Inspection, Instant, LifecycleType,
    Output, PodRead, Report, ReportedState, WaiterId,
};

use crate::script::{
    Script, container, exited, failure, nameless, ready, rows, s, sandbox, status, statuses,
};

/// The held ids in the last inspection request, and whether each is owed.
fn owed(t: &Script) -> Vec<(String, bool)> {
    let held: &[HeldId] = t.held.last().expect("an inspection was asked for");
    held.iter().map(|h| (h.id.to_string(), h.owed)).collect()
}

/// A pod that was listed and inspected.
fn inspected() -> Script {
    let mut t = Script::confirmed();
    t.node = statuses(ReportedState::Running).to_vec();
    t.relist();
    t.settle();
    t
}

fn failed(id: &str, row: Option<Report>) -> FailedStatus {
    FailedStatus {
        id: id.into(),
        row,
        error: failure("broken"),
    }
}

#[test]
fn waiter_of_an_unchanged_pod_owes_no_status() {
    let mut t = inspected();
    t.pass(10);
    let waiter = t.wait("p", t.now());
    assert_eq!(owed(&t), [("c".into(), false), ("s".into(), false)]);
    let before = t.get("p").inspected;
    let unchanged = vec![
        ("c".into(), ReportedState::Running),
        ("s".into(), ReportedState::Running),
    ];
    t.inspected(Inspection {
        unchanged,
        ..Inspection::new(None)
    });
    let view = t.view_for(waiter);
    assert!(view.as_of > before);
    assert_eq!(view.inspected, before, "the details are as old as before");
}

#[test]
fn waiter_for_details_owes_every_status() {
    let mut t = inspected();
    t.pass(10);
    let after = t.now();
    t.wait_for_details("p", after);
    assert_eq!(owed(&t), [("c".into(), true), ("s".into(), true)]);
    let waiter = t.wait_for_details("p", after);
    t.settle();
    assert!(t.view_for(waiter).inspected >= Some(after));
}

/// An exit code is owed until a status that was read after the exit was known has succeeded.
#[test]
fn unknown_exit_code_is_owed_until_a_status_succeeds() {
    let mut t = inspected();
    let ended = rows(ReportedState::Exited);
    t.relist_shows(&ended);
    t.inspected(Inspection {
        failed: vec![failed("c", Some(ended[1].clone()))],
        unchanged: vec![("s".into(), ReportedState::Running)],
        ..Inspection::new(None)
    });
    t.pass(2_000);
    t.node[1] = exited("c", "p", 3, "Error");
    t.settle();
    assert_eq!(t.get("p").status.containers[0].details.exit_code, Some(3));
    t.pass(10);
    t.wait("p", t.now());
    assert_eq!(owed(&t), [("c".into(), false), ("s".into(), false)]);
}

/// A status that fails does not withhold the answer: it carries the listed state and the error.
#[test]
fn failed_status_does_not_withhold_the_state() {
    let mut t = inspected();
    t.pass(10);
    let waiter = t.wait("p", t.now());
    let old = t.get("p").inspected;
    t.inspected(Inspection {
        failed: vec![failed(
            "c",
            Some(container("c", "p", ReportedState::Exited)),
        )],
        unchanged: vec![("s".into(), ReportedState::Running)],
        ..Inspection::new(None)
    });
    let view = t.view_for(waiter);
    let c = &view.status.containers[0];
    assert_eq!(c.state, pleg_core::ContainerState::Exited);
    assert_eq!(
        c.error.as_ref().map(|e| e.kind),
        Some(CallErrorKind::Failed)
    );
    assert!(view.status.sandboxes[0].error.is_none());
    assert_eq!(view.inspected, old, "the least of the pod's ids");
    let reasons = t.health().degraded(t.now());
    let named = reasons.iter().any(|reason| match reason {
        Degraded::PodsFailing { pods, .. } => pods[0].uid.as_str() == "p",
        _ => false,
    });
    assert!(named, "{reasons:?}");
}

/// A failed status is not read again for waiters until its retry is due.
#[test]
fn failed_status_is_repeated_when_its_retry_is_due() {
    let mut t = inspected();
    t.pass(10);
    t.wait("p", t.now());
    let row = container("c", "p", ReportedState::Exited);
    t.inspected(Inspection {
        failed: vec![failed("c", Some(row))],
        unchanged: vec![("s".into(), ReportedState::Running)],
        ..Inspection::new(None)
    });
    t.pass(100);
    let waiter = t.wait("p", t.now());
    assert_eq!(owed(&t), [("c".into(), false), ("s".into(), false)]);
    let unchanged = vec![
        ("c".into(), ReportedState::Exited),
        ("s".into(), ReportedState::Running),
    ];
    t.inspected(Inspection {
        unchanged,
        ..Inspection::new(None)
    });
    assert!(t.view_for(waiter).status.containers[0].error.is_some());
    t.pass(1_000);
    assert_eq!(
        owed(&t),
        [("c".into(), true), ("s".into(), true)],
        "the retry"
    );
}

/// A pod with two containers; the status calls of one fail.
fn pod_with_a_failing_status() -> Script {
    let mut t = Script::confirmed();
    t.node = vec![
        ready(),
        status("c", "p", ReportedState::Running),
        status("d", "p", ReportedState::Running),
    ];
    t.relist();
    t.settle();
    t.pass(10);
    t.wait_for_details("p", t.now());
    t.inspected(Inspection {
        found: vec![t.node[0].clone(), t.node[2].clone()],
        failed: vec![failed("c", Some(t.node[1].clone()))],
        ..Inspection::new(None)
    });
    t.pass(10);
    t
}

/// An event named a container without its status, and its status call failed before a list showed it. The backoff
/// of that call does not delay what tells its name: otherwise an answer would lack it, and a kubelet would start
/// another one (found by seed 20361420).
#[test]
fn answer_names_a_container_whose_status_fails() {
    let mut t = Script::confirmed();
    t.event(EventType::Created, "s", s(), &[]);
    t.event(EventType::Started, "c", s(), &[]);
    t.inspected(Inspection {
        found: vec![ready()],
        failed: vec![failed("c", None)],
        ..Inspection::new(None)
    });
    t.pass(10);
    let waiter = t.wait("p", t.now());
    assert_eq!(owed(&t)[0], ("c".into(), true));
    t.inspected(Inspection {
        failed: vec![failed(
            "c",
            Some(container("c", "p", ReportedState::Running)),
        )],
        unchanged: vec![("s".into(), ReportedState::Running)],
        ..Inspection::new(None)
    });
    let containers = &t.view_for(waiter).status.containers;
    assert_eq!(containers[0].name.as_str(), "c");
    t.pass(10);
    t.wait("p", t.now());
    assert_eq!(owed(&t)[0], ("c".into(), false), "it is in its backoff");
}

/// A failing status affects only its id: listed states of the others are announced at once
/// (invariant 11).
#[test]
fn listed_death_beside_a_failing_status_is_announced_at_once() {
    let mut t = pod_with_a_failing_status();
    t.relist();
    let mut rows = t.node.clone();
    rows[2] = container("d", "p", ReportedState::Exited);
    t.list(&rows);
    let owed = owed(&t);
    assert!(owed.contains(&("c".into(), false)), "its retry is not due");
    t.inspected(Inspection {
        found: vec![rows[0].clone(), exited("d", "p", 3, "Error")],
        unchanged: vec![("c".into(), ReportedState::Running)],
        ..Inspection::new(None)
    });
    assert_eq!(t.said(LifecycleType::ContainerDied, "d"), 1);
    let d = t
        .view()
        .status
        .containers
        .iter()
        .find(|c| c.id.as_str() == "d");
    assert_eq!(d.and_then(|d| d.details.exit_code), Some(3));
    assert!(t.view().status.error.is_some(), "c's status still fails");
}

/// NotFound of a listed id replaces the error of an earlier call: it is not repeated at once, again
/// and again (found by seed 87648).
#[test]
fn not_found_after_a_failing_status_is_read_once_more_after_100_ms() {
    let mut t = pod_with_a_failing_status();
    t.relist();
    t.list_fails(CallErrorKind::Unavailable);
    t.relist();
    let rows = t.node.clone();
    t.list(&rows);
    t.inspect_unsettled(&[rows[0].clone(), rows[2].clone()], &[], &[rows[1].clone()]);
    assert_eq!(t.inspections_wanted(), 0);
    assert!(t.view().status.error.is_none());
    t.pass(100);
    assert_eq!(t.inspections_wanted(), 1);
}

/// Died of a container whose status call fails does not wait for the exit code.
#[test]
fn listed_death_of_a_failing_status_is_announced_without_code() {
    let mut t = pod_with_a_failing_status();
    t.relist();
    let mut rows = t.node.clone();
    rows[1] = container("c", "p", ReportedState::Exited);
    t.list(&rows);
    assert_eq!(t.said(LifecycleType::ContainerDied, "c"), 1);
}

/// A failed status fails the waiters for details.
#[test]
fn failed_status_fails_a_waiter_for_details() {
    let mut t = inspected();
    t.pass(10);
    let waiter = t.wait_for_details("p", t.now());
    t.inspected(Inspection {
        found: vec![ready()],
        failed: vec![failed(
            "c",
            Some(container("c", "p", ReportedState::Running)),
        )],
        ..Inspection::new(None)
    });
    assert!(t.answer_of(waiter).expect("answered").is_err());
}

/// A waiter for details needs the status, so no backoff delays it.
#[test]
fn failed_status_is_repeated_at_once_for_details() {
    let mut t = pod_with_a_failing_status();
    t.wait_for_details("p", t.now());
    assert!(owed(&t).contains(&("c".into(), true)));
}

/// A container without a name does not block the start of another one: an answer reads the status
/// of one whose name no event has reported (found by seed 12151).
#[test]
fn status_of_a_running_container_without_a_name_is_owed() {
    let mut t = Script::confirmed();
    let running = || status("c", "p", ReportedState::Running);
    let mut unnamed = running();
    unnamed.identity.name = None;
    t.event(EventType::Created, "s", s(), &[]);
    t.event(EventType::Created, "c", s(), &[]);
    t.event(EventType::Started, "c", s(), &[unnamed]);
    // What the event that lacked the status has caused.
    t.inspection_fails(&[]);
    let waiter = t.wait("p", t.now());
    assert_eq!(owed(&t), [("c".into(), true), ("s".into(), false)]);
    t.inspect(&[ready(), running()], &[]);
    let name = t.view_for(waiter).status.containers[0].name.clone();
    assert_eq!(Some(name), running().identity.name);
}

/// The calls of a read of a pod: two if nothing changed, and one for each id that is new, changed,
/// missing or owed.
#[test]
fn read_of_an_unchanged_pod_makes_two_calls() {
    let held = |id: &str, shown, owed| HeldId {
        id: id.into(),
        kind: pleg_core::Kind::Container,
        shown,
        owed,
    };
    let cases = [
        (vec![held("c", ReportedState::Running, false)], vec!["c"], 2),
        (vec![held("c", ReportedState::Running, true)], vec!["c"], 3),
        (vec![held("c", ReportedState::Created, false)], vec!["c"], 3),
        (vec![held("d", ReportedState::Running, false)], vec!["c"], 4),
        (vec![held("d", ReportedState::Running, false)], vec![], 3),
        (vec![], vec!["c"], 3),
        (vec![], vec![], 2),
    ];
    for (held, listed, expected) in cases {
        let mut read = PodRead::new(&held);
        let mut calls = 0;
        while let Some(call) = read.next_call() {
            calls += 1;
            let rows = match &call {
                pleg_core::PodCall::Containers => listed.clone(),
                _ => Vec::new(),
            };
            let rows = rows
                .iter()
                .map(|id| container(id, "p", ReportedState::Running));
            read.answered(&call, Ok(rows.collect()));
        }
        assert_eq!(calls, expected, "{held:?} {listed:?}");
    }
}

/// The requests contain the recorded state.
#[test]
fn request_names_the_recorded_state() {
    let mut t = inspected();
    t.machine
        .wait(t.now(), WaiterId::new(70), &"p".into(), t.now());
    let output = std::iter::from_fn(|| t.machine.poll_output());
    let held = output.into_iter().find_map(|output| match output {
        Output::Inspect { held, .. } => Some(held),
        _ => None,
    });
    let held = held.expect("an inspection");
    assert!(held.iter().all(|held| held.shown == ReportedState::Running));
    assert!(t.now() > Instant::ORIGIN);
}

/// The status is read by an inspection of the sandbox's stand-in pod, which fails, and by one of its pod,
/// which began later and has ended before (found by seed 47776).
#[test]
fn failed_status_of_an_older_read_does_not_count() {
    let mut t = Script::confirmed();
    t.event(EventType::Stopped, "c", Some(nameless(ready())), &[]);
    assert_eq!(t.inspections_wanted(), 1, "of the stand-in pod");
    t.pass(10);
    t.event(EventType::Started, "s", s(), &[]);
    assert_eq!(t.inspections_wanted(), 2);
    t.postpone_inspection();
    t.inspect(&[ready(), exited("c", "p", 0, "")], &[]);
    t.inspected(Inspection {
        failed: vec![failed("s", None)],
        ..Inspection::new(None)
    });
    let waiter = t.wait("p", t.now());
    t.inspected(Inspection {
        unchanged: vec![
            ("c".into(), ReportedState::Exited),
            ("s".into(), ReportedState::Running),
        ],
        ..Inspection::new(None)
    });
    assert_eq!(t.view_for(waiter).status.sandboxes[0].error, None);
}

/// The read that returned UNKNOWN had no exit code. So the status stays owed after a list row has
/// cleared UNKNOWN, also if the inspection for it fails (found by seed 75474).
#[test]
fn exit_code_is_owed_after_a_list_row_has_cleared_unknown() {
    let mut t = inspected();
    t.event(EventType::Stopped, "c", s(), &[]);
    t.inspect(&statuses(ReportedState::Unknown), &[]);
    t.relist_shows(&rows(ReportedState::Exited));
    assert_eq!(t.inspection_wanted(), Some(&"p".into()));
    t.inspection_fails(&[ready()]);
    t.wait("p", t.now());
    assert_eq!(owed(&t), [("c".into(), true), ("s".into(), false)]);
}

/// An answer from the cache must be strictly newer than the instant, as to its details, too.
#[test]
fn waiter_for_details_is_answered_from_the_cache_if_all_were_read_since() {
    let mut t = inspected();
    let read = t.get("p").inspected.expect("it was inspected");
    t.pass(10);
    t.wait("p", t.now());
    let unchanged = [("c", ReportedState::Running), ("s", ReportedState::Running)];
    t.inspected(Inspection {
        unchanged: unchanged.map(|(id, shown)| (id.into(), shown)).to_vec(),
        ..Inspection::new(None)
    });
    assert!(t.get("p").as_of > Some(read), "the state is newer");
    for (apart, answered) in [(-1, true), (0, false), (1, false)] {
        let mut t = t.clone();
        let after = Instant::from_nanos(read.as_nanos().wrapping_add_signed(apart));
        let waiter = t.wait_for_details("p", after);
        assert_eq!(t.answer_of(waiter).is_some(), answered, "{apart}");
        assert_eq!(t.inspections_wanted() == 0, answered, "{apart}");
    }
}

/// A status that is read outside an inspection ends the error of its pod, unless the lists of the pod
/// fail.
#[test]
fn read_of_an_exit_reason_ends_the_error_of_the_pod_unless_its_lists_fail() {
    for lists_fail in [false, true] {
        let mut t = inspected();
        let s = || sandbox("s", "p", ReportedState::Running);
        let ended = exited("c", "p", 1, "Error");
        t.event(
            EventType::Stopped,
            "c",
            Some(s()),
            std::slice::from_ref(&ended),
        );
        t.wait_for_details("p", t.now());
        if lists_fail {
            t.inspection_fails(&[]);
        } else {
            t.inspected(Inspection {
                found: vec![s()],
                failed: vec![failed(
                    "c",
                    Some(container("c", "p", ReportedState::Exited)),
                )],
                ..Inspection::new(None)
            });
            assert_eq!(t.machine.counters().inspections_failed, 1);
        }
        assert!(t.get("p").status.error.is_some());
        t.pass(2_000);
        let syncs = t.said(LifecycleType::PodSync, "p");
        t.read(ended);
        let error = &t.get("p").status.error;
        assert_eq!(error.is_some(), lists_fail, "{error:?}");
        let more = t.said(LifecycleType::PodSync, "p") - syncs;
        assert_eq!(more, usize::from(!lists_fail));
    }
}

/// A failed status is read again after its backoff, and withholds no freshness until then.
#[test]
fn list_confirms_a_pod_with_a_failed_status() {
    let mut t = pod_with_a_failing_status();
    let (before, rows) = (t.now(), t.node.clone());
    t.relist_shows(&rows);
    assert!(t.get("p").as_of > Some(before));
}

#[test]
fn list_confirms_all_pods_but_one_whose_lists_failed() {
    let mut t = inspected();
    t.node.push(sandbox("z", "q", ReportedState::Running));
    t.relist();
    t.settle();
    t.request_relist("p");
    t.inspection_fails(&[]);
    let (before, rows) = (t.now(), t.node.clone());
    t.relist_shows(&rows);
    assert!(t.get("p").as_of < Some(before));
    assert!(t.get("q").as_of > Some(before));
}

#[test]
fn status_of_a_contradicted_id_is_owed_to_a_waiter() {
    let mut t = inspected();
    t.event(EventType::Stopped, "c", s(), &[exited("c", "p", 0, "")]);
    t.relist_shows(&rows(ReportedState::Running));
    t.wait("p", t.now());
    assert_eq!(owed(&t), [("c".into(), true), ("s".into(), false)]);
}

#[test]
fn second_read_owes_the_status_of_the_id_without_one() {
    let mut t = inspected();
    t.pass(10);
    t.wait("p", t.now());
    let c = container("c", "p", ReportedState::Running);
    t.inspect_unsettled(&[ready()], &[], &[c]);
    t.pass(100);
    assert_eq!(owed(&t), [("c".into(), true), ("s".into(), false)]);
}

/// The failing status is another id's: Died still waits for the exit code.
#[test]
fn listed_death_beside_a_failing_status_waits_for_its_code() {
    let mut t = pod_with_a_failing_status();
    t.relist();
    let mut rows = t.node.clone();
    rows[2] = container("d", "p", ReportedState::Exited);
    t.list(&rows);
    assert_eq!(t.said(LifecycleType::ContainerDied, "d"), 0);
}
