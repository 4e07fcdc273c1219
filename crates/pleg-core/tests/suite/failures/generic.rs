//! C1 to C22: the generic PLEG (C1, C10 and C11 are in generic_health.rs; C2, C5, C9, C12 to C14,
//! C18 and C19 are in `pleg`, C9 and C17 in `pleg-cri`).

use std::collections::BTreeSet;
use std::slice::from_ref;

use pleg_core::ReportedState::{Created as IsCreated, Exited, Running, Unknown};
use pleg_core::{ContainerState, EventType, Inbox, LifecycleType, Report};

use super::life::{c, in_sandbox, life, polled, running};
use crate::script::{Script, exited, ready, s, sandbox, status, with_memory_limit};
use EventType::{Created, Started, Stopped};
use LifecycleType::{ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted, PodSync};

/// Upstream: At first a full channel blocked for ever; now an event that does not fit is dropped
/// and never generated again. (k#72482, k#72709, k#104117, k#103732, k#136408)
///
/// Here: Events that a consumer has not taken wait, coalesced per id: every pod that changed is
/// reported, and no removal is lost. (invariant 9)
#[test]
fn c3_a_full_inbox_still_signals_every_pod() {
    let mut t = Script::polling(|_| ());
    for n in 0..5 {
        t.node
            .push(sandbox(&format!("s{n}"), &format!("p{n}"), Running));
    }
    t.settle();
    let mut inbox = Inbox::new(1);
    let drain = |inbox: &mut Inbox| -> Vec<_> {
        let all = std::iter::from_fn(|| inbox.pop());
        all.map(|e| (e.event, e.uid.to_string())).collect()
    };
    t.events.drain(..).for_each(|event| inbox.push(event));
    let signalled: BTreeSet<_> = drain(&mut inbox).into_iter().map(|(_, uid)| uid).collect();
    assert_eq!(signalled.len(), 5);
    // All are removed and others are created, while the consumer takes nothing.
    t.node = (5..10)
        .map(|n| sandbox(&format!("s{n}"), &format!("p{n}"), Running))
        .collect();
    t.run(1_500);
    t.events.drain(..).for_each(|event| inbox.push(event));
    assert_eq!(inbox.take_missed(), None);
    let told = drain(&mut inbox);
    for n in 0..5 {
        for what in [ContainerDied, ContainerRemoved] {
            assert!(
                told.contains(&(what, format!("p{n}"))),
                "{what} of p{n}: {told:?}"
            );
        }
        assert!(told.contains(&(ContainerStarted, format!("p{}", n + 5))));
    }
}

/// Upstream: A container that starts and is removed between two lists is never seen. (k#67923,
/// k#22155)
///
/// Here: With events all of it is announced, and its terminal record is kept. Without events, a
/// container that was never seen is never announced, and the end of a known one is announced once.
/// (invariants 2, 9)
#[test]
fn c4_container_that_lives_between_two_lists_is_announced() {
    let mut t = Script::confirmed();
    t.run(130_000);
    let lists = t.machine.counters().lists;
    life()[..6].iter().for_each(|step| t.live(step));
    assert_eq!(t.machine.counters().lists, lists);
    let told: Vec<_> = t
        .announced
        .iter()
        .filter(|(_, id, ..)| id == "c")
        .map(|a| (a.0, a.3))
        .collect();
    let end = Some(3);
    let all = [
        (ContainerChanged, None),
        (ContainerStarted, None),
        (ContainerDied, end),
        (ContainerRemoved, end),
    ];
    assert_eq!(told, all);
    let record = t
        .ends
        .iter()
        .find(|r| r.id.as_str() == "c")
        .expect("its end is kept");
    assert_eq!(
        (record.exit_code, &*record.reason, record.removed),
        (end, "Error", true)
    );

    // No event reports it, and no list shows it: nothing is announced.
    let mut t = polled();
    let announced = t.announced.len();
    t.node.push(in_sandbox(exited("d", "p", 1, "Error")));
    t.node.pop();
    t.run(10_000);
    assert_eq!(t.announced.len(), announced);
    // A known container exits and is removed.
    t.node.pop();
    t.run(10_000);
    let told: Vec<_> = t.announced[announced..]
        .iter()
        .map(|a| (a.0, a.1.as_str()))
        .collect();
    assert_eq!(told, [(ContainerDied, "c"), (ContainerRemoved, "c")]);
}

/// Upstream: A temporary failure of an inspection overwrites the status with the error. (k#24819)
///
/// Here: The last good status stays beside the error; the inspection is repeated after 1, 2, 4, …
/// 60 s. (invariant 11)
#[test]
fn c6_a_failed_inspection_keeps_the_last_good_status() {
    let mut t = polled();
    let good = t.get("p");
    t.wait("p", t.now());
    t.inspection_fails(&[]);
    let mut failed = t.now();
    for pause in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
        let view = t.get("p");
        assert!(view.status.error.is_some());
        assert_eq!(view.status.containers, good.status.containers);
        assert_eq!(view.inspected, good.inspected);
        while t.inspections_wanted() == 0 {
            t.pass(1);
            while t.lists_wanted() > 0 {
                t.answer_list();
            }
        }
        let waited = t.now().since(failed).as_millis();
        assert!((pause..pause + 3).contains(&waited), "{waited} for {pause}");
        t.inspection_fails(&[]);
        failed = t.now();
    }
    t.run(61_000);
    let view = t.get("p");
    assert_eq!(
        (&view.status.error, &view.status.containers),
        (&None, &good.status.containers)
    );
}

/// Upstream: A stale status creates a second container, without any events. (k#23636)
///
/// Here: As A1, in polling mode. (invariants 3, 4)
#[test]
fn c7_polling_answers_no_sync_with_a_status_from_before() {
    let mut t = polled();
    t.run(500);
    // A list and an inspection that began before the sync has ended.
    t.relist();
    let early = t.wait("p", t.now());
    t.pass(5);
    let after = t.now();
    let sync = t.wait("p", after);
    let before = t.node.clone();
    t.node.push(in_sandbox(status("d", "p", IsCreated)));
    t.list(&before);
    t.inspect(&before, &[]);
    assert!(t.answer_of(early).is_some());
    t.pass(500);
    assert_eq!(t.answer_of(sync), None);
    t.settle();
    let view = t.view_for(sync);
    assert!(view.as_of > Some(after));
    assert_eq!(view.status.containers.len(), 2);
}

/// Upstream: A change of resources is no change of state and is not announced. (k#123940, k#123941,
/// k#128518)
///
/// Here: The read that first returns a changed detail causes one PodSync; a reinspection always
/// causes one. A list shows no resources.
#[test]
fn c8_a_change_of_resources_is_announced() {
    let resize = |t: &mut Script, limit| {
        t.node[1] = with_memory_limit(t.node[1].clone(), limit);
    };
    let mut t = polled();
    resize(&mut t, 1);
    t.run(10_000);
    assert_eq!(t.said(PodSync, "p"), 0, "a list shows no resources");
    t.wait("p", t.now());
    t.settle();
    assert_eq!(t.said(PodSync, "p"), 1);
    t.wait("p", t.now());
    t.settle();
    assert_eq!(t.said(PodSync, "p"), 1, "nothing changed");
    // A reinspection always announces PodSync, and only one if something changed.
    t.request_reinspect("p");
    t.settle();
    assert_eq!(t.said(PodSync, "p"), 2);
    resize(&mut t, 2);
    let request = t.request_reinspect("p");
    // A list meanwhile shows the pod unchanged, and does not replace the reinspection.
    t.pass(5);
    t.relist();
    let rows = [ready(), c(Running)];
    t.list(&rows);
    assert_eq!(t.answer_of(request), None);
    t.settle();
    assert!(t.answer_of(request).is_some_and(Result::is_ok));
    assert_eq!(t.said(PodSync, "p"), 3);
}

/// Upstream: Created and unknown change the cache and are not sent. (found by reading)
///
/// Here: Both are ContainerChanged, once; unknown with a PodSync. (invariant 2)
#[test]
fn c15_created_and_unknown_are_announced() {
    let mut t = polled();
    t.node.push(in_sandbox(status("d", "p", IsCreated)));
    t.run(5_000);
    assert_eq!(
        (t.said(ContainerChanged, "d"), t.said(PodSync, "p")),
        (1, 0)
    );
    t.node[1] = c(Unknown);
    t.run(5_000);
    assert_eq!(
        (t.said(ContainerChanged, "c"), t.said(PodSync, "p")),
        (1, 1)
    );
    let state = t.shows("p");
    assert!(
        matches!(state, Some(ContainerState::Unknown { last: Some(_) })),
        "{state:?}"
    );
    t.run(120_000);
    assert_eq!(
        (t.said(ContainerChanged, "c"), t.said(PodSync, "p")),
        (1, 1)
    );
    t.node[1] = c(Running);
    t.run(120_000);
    assert_eq!(t.shows("p"), Some(ContainerState::Running));
}

/// Upstream: A list of one pod that finds it gone is ignored until the next complete list. (found
/// by reading)
///
/// Here: It is complete for that pod: if the status calls also return NotFound, the end of the pod
/// is published and announced. (invariant 5)
#[test]
fn c16_a_relist_of_a_pod_sees_its_end() {
    for mut t in [running(), polled()] {
        let lists = t.machine.counters().lists;
        t.node.clear();
        t.pass(10);
        let request = t.request_relist("p");
        t.settle();
        assert!(t.view_for(request).status.is_nothing());
        assert!(t.get("p").status.is_nothing());
        for id in ["s", "c"] {
            assert_eq!(
                (t.said(ContainerDied, id), t.said(ContainerRemoved, id)),
                (1, 1),
                "{id}"
            );
        }
        assert_eq!(t.machine.counters().lists, lists);
    }
    // An id that the list of the pod leaves out, and whose status call did not return NotFound, is
    // not removed.
    let mut t = running();
    t.request_relist("p");
    t.inspect(&[], &[]);
    assert_eq!(t.said(ContainerRemoved, "c"), 0);
}

/// Upstream: The reinspection flag of a uid that is never listed is kept for ever. (found by
/// reading)
///
/// Here: The uid is read, the request is answered, and no state is kept. (invariants 4, 11)
#[test]
fn c20_reinspection_of_an_unknown_uid_leaves_no_state() {
    for mut t in [Script::confirmed(), Script::polling(|_| ())] {
        t.run(5_000);
        for _ in 0..3 {
            let request = t.request_reinspect("nobody");
            t.settle();
            assert!(t.view_for(request).status.is_nothing());
        }
        // A pod whose reads fail is dropped if nothing of it is known.
        t.request_reinspect("nobody");
        t.inspection_fails(&[]);
        t.run(70_000);
        assert!(!format!("{:?}", t.machine).contains("nobody"));
        assert_eq!(t.degraded(), [""; 0]);
    }
}

/// Upstream: Since pods are listed on demand, races of runtimes show more often: a failed init
/// container was reported as started, or with the wrong exit code. (k#135713, k#129800, k#131605;
/// k#137749, k#137909, k#137946)
///
/// Here: Started requires an observation that showed the container running. A non-zero exit is read
/// once more after 2 s, and a corrected exit code is announced. No delay has to be configured:
/// nothing is read before it is needed.
#[test]
fn c21_what_never_ran_is_not_started() {
    let mut t = Script::confirmed();
    t.event(Started, "s", s(), &[]);
    t.event(Created, "c", s(), &[c(IsCreated)]);
    let wrong = in_sandbox(exited("c", "p", 2, "Error"));
    t.event(Stopped, "c", s(), &[wrong]);
    assert_eq!(
        (t.said(ContainerStarted, "c"), t.said(ContainerDied, "c")),
        (0, 1)
    );
    assert_eq!(
        t.events.last().and_then(|e| e.subject.as_ref()?.exit_code),
        Some(2)
    );
    t.node = vec![ready(), in_sandbox(exited("c", "p", 1, "Error"))];
    t.pass(1_990);
    assert!(!t.read_wanted());
    t.run(100);
    let status = t.get("p").status;
    assert_eq!(
        status.container("c").and_then(|c| c.details.exit_code),
        Some(1)
    );
    assert_eq!(t.said(PodSync, "p"), 1);
    assert_eq!(t.ends.last().and_then(|r| r.exit_code), Some(1));
    assert_eq!(
        (t.said(ContainerStarted, "c"), t.said(ContainerDied, "c")),
        (0, 1)
    );

    // The same if a list showed it first.
    let mut t = Script::polling(|_| ());
    t.node = vec![ready(), in_sandbox(exited("c", "p", 1, "StartError"))];
    t.run(5_000);
    assert_eq!(
        (t.said(ContainerStarted, "c"), t.said(ContainerDied, "c")),
        (0, 1)
    );
}

/// Upstream: With events enabled, the runtime's wall clock is compared with the kubelet's.
/// (k#124297, k#126414, k#124704)
///
/// Here: Only the local monotonic clock orders. After a step of the wall clock, events of unknown
/// ids only cause inspections until a list; all else is the same. (invariant 6)
#[test]
fn c22_wall_clock_step_changes_no_order() {
    const DAY: i64 = 24 * 3_600_000;
    for step in [DAY, -DAY, 2_000, -2_000] {
        let mut t = running();
        let steady = running();
        t.stepped = step;
        // Known ids go on as before, at the same instants.
        let mut pods = [t, steady];
        for t in &mut pods {
            t.node = vec![ready(), c(Exited)];
            t.tell(Stopped, "c");
            let sync = t.wait("p", t.now());
            t.settle();
            assert!(t.answer_of(sync).is_some_and(Result::is_ok));
        }
        let [mut t, steady] = pods;
        assert_eq!(t.announced, steady.announced, "{step}");
        assert_eq!(
            (t.now(), t.get("p")),
            (steady.now(), steady.get("p")),
            "{step}"
        );
        // An unknown id from an event is not recorded, but read.
        let d = in_sandbox(status("d", "p", Running));
        t.event(Started, "d", s(), from_ref(&d));
        assert_eq!(t.said(ContainerStarted, "d"), 0);
        assert!(t.wants_only("p"));
        t.node.push(d);
        t.settle();
        assert_eq!(t.said(ContainerStarted, "d"), 1);
        // After a list it is recorded again.
        t.relist();
        t.settle();
        let e: Report = in_sandbox(status("e", "p", Running));
        t.event(Started, "e", s(), &[e]);
        assert_eq!(t.said(ContainerStarted, "e"), 1, "{step}");
        assert_eq!(t.inspections_wanted(), 0);
    }
}
