//! E1 to E3 and E7 (upstream's evented_test.go up to 1.37) and G20 (generic_test.go up to 1.35),
//! each with its deviation. E4 to E6 are about the reader: `pleg-evented`, tests/suite/failures.rs.

use pleg_core::ReportedState::{Exited, Running};
use pleg_core::{EventType, LifecycleType, Report, ReportedState};

use super::life::{c, in_sandbox, running};
use crate::script::{Script, exited, nameless, ready, s, sandbox, status, with_ips};
use EventType::{Deleted, Started, Stopped};
use LifecycleType::PodSync;

/// E1, upstream's TestHealthyEventedPLEG (≤ 1.36): Unhealthy when 100 of 100 events wait.
///
/// Here: A deviation: reported as a backlog after 2 s, and the node stays ready; see B1. (invariant
/// 12)
#[test]
fn e1_backlog_is_reported_and_the_node_stays_ready() {
    let mut t = Script::confirmed();
    let degraded = |t: &Script| (t.degraded(), t.ready());
    t.machine.handle_backlog(t.now(), true);
    t.run(1_900);
    assert_eq!(
        degraded(&t),
        (vec![], Ok(())),
        "five of a hundred, soon taken"
    );
    t.run(1_100);
    assert_eq!(degraded(&t), (vec!["backlog"], Ok(())));
    t.run(600_000);
    assert_eq!(degraded(&t), (vec!["backlog"], Ok(())));
    t.machine.handle_backlog(t.now(), false);
    assert_eq!(degraded(&t), (vec![], Ok(())));
}

/// E2, upstream's TestUpdateRunningPodMetric (≤ 1.36): 5 pods run, 2 end: 5, then 3.
///
/// Here: The same, with ids as runtimes create them; see B12.
#[test]
fn e2_running_pods_fall_with_the_events() {
    let mut t = Script::confirmed();
    for (event, shown, count) in [(Started, Running, 5), (Stopped, Exited, 2)] {
        for n in 0..count {
            let (pod, sb, id) = (format!("p{n}"), format!("s{n}"), format!("c{n}"));
            let own = match shown {
                Exited => exited(&id, &pod, 0, "Completed"),
                _ => status(&id, &pod, shown),
            };
            t.event(event, &id, Some(sandbox(&sb, &pod, shown)), &[own]);
        }
        let expected = if count == 5 { 5 } else { 3 };
        assert_eq!(t.machine.state_counts().running_pods, expected);
    }
}

/// A sandbox with addresses and an attempt.
fn addressed(id: &str, shown: ReportedState, attempt: u32, ips: &[&str]) -> Report {
    let mut report = sandbox(id, "p", shown);
    report.identity.attempt = attempt;
    with_ips(report, ips)
}

/// E3, upstream's TestEventedPLEG_getPodIPs (≤ 1.36): New addresses; none while a sandbox is ready;
/// none if there were none; the old ones when all sandboxes have ended.
///
/// Here: The same, from events and from reads.
#[test]
fn e3_pod_addresses_follow_the_sandboxes() {
    let shown = |t: &Script| -> Vec<String> {
        t.get("p")
            .status
            .ips
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    let show = |t: &mut Script, read: bool, sandboxes: &[Report]| {
        if read {
            t.node = sandboxes.to_vec();
            t.wait("p", t.now());
            t.settle();
        } else {
            for report in sandboxes {
                let event = if report.shown == Exited {
                    Stopped
                } else {
                    Started
                };
                t.event(event, report.id.as_str(), Some(report.clone()), &[]);
            }
        }
    };
    for read in [true, false] {
        let had = ["10.0.0.1", "fd00::1"];
        let mut t = Script::confirmed();
        show(&mut t, read, &[addressed("s", Running, 0, &had)]);
        assert_eq!(shown(&t), had, "new ones");
        show(&mut t, read, &[addressed("s", Exited, 0, &[])]);
        assert_eq!(shown(&t), had, "all not ready: those from before");
        let second = |ips| addressed("s2", Running, 1, ips);
        show(&mut t, read, &[addressed("s", Exited, 0, &[]), second(&[])]);
        assert_eq!(shown(&t), [""; 0], "one is ready and has none yet");
        show(
            &mut t,
            read,
            &[addressed("s", Exited, 0, &[]), second(&["10.0.0.2"])],
        );
        assert_eq!(shown(&t), ["10.0.0.2"], "new ones");

        let mut t = Script::confirmed();
        show(&mut t, read, &[addressed("s", Running, 0, &[])]);
        show(&mut t, read, &[addressed("s", Exited, 0, &[])]);
        assert_eq!(shown(&t), [""; 0], "there never were any");
    }
}

/// E7, upstream's TestProcessCRIEventsRequestsRelistOnlyForStoppedEvents (1.37): A list for each
/// STOPPED, none for other types or without sandbox metadata.
///
/// Here: A deviation: every event type is handled by its content; only missing data causes a read.
#[test]
fn e7_only_incomplete_events_cause_a_read() {
    let reads_after = |event, sandbox: Option<Report>, own: Option<Report>| {
        let mut t = running();
        t.event(event, "c", sandbox, own.as_slice());
        t.inspections_wanted()
    };
    let ended = |code, reason| Some(in_sandbox(exited("c", "p", code, reason)));
    assert_eq!(reads_after(Stopped, s(), ended(2, "Error")), 0);
    assert_eq!(reads_after(Stopped, s(), ended(137, "OOMKilled")), 0);
    assert_eq!(reads_after(Stopped, s(), ended(0, "Completed")), 0);
    assert_eq!(reads_after(Stopped, s(), None), 1, "its exit code");
    assert_eq!(reads_after(Started, s(), Some(c(Running))), 0);
    assert_eq!(reads_after(Deleted, s(), None), 0);
    // Without metadata the pod is found by the id.
    let bare = || s().map(nameless);
    assert_eq!(reads_after(Stopped, bare(), ended(2, "Error")), 0);
    assert_eq!(
        reads_after(Stopped, None, ended(2, "Error")),
        1,
        "no sandbox status"
    );
    // In none of the cases is the next list needed.
    let mut t = running();
    let lists = t.machine.counters().lists;
    t.event(Stopped, "c", bare(), ended(2, "Error").as_slice());
    assert_eq!(t.said(LifecycleType::ContainerDied, "c"), 1);
    t.event(Deleted, "c", bare(), &[]);
    assert_eq!(t.said(LifecycleType::ContainerRemoved, "c"), 1);
    assert_eq!(t.machine.counters().lists, lists);
}

/// G20, upstream's TestWatchConditions (≤ 1.35; gone since 1.36): A pod is inspected with every
/// list until a condition holds.
///
/// Here: conditions are the caller's, as upstream since 1.36. What applies: each reinspection is
/// one read and one PodSync, for pods that run, have ended or do not exist, and leaves no state.
#[test]
fn g20_conditions_are_asked_for_again_by_the_caller() {
    let mut t = Script::polled(vec![ready(), c(Running)]);
    let reads = |t: &Script| t.machine.counters().inspections;
    // None is set: no list inspects a pod that did not change.
    let before = reads(&t);
    t.run(10_000);
    assert_eq!(reads(&t), before);
    // One condition that holds at the third read, one that never holds, two at a time.
    for look in 1..=3 {
        let [one, other] = [t.request_reinspect("p"), t.request_reinspect("p")];
        t.settle();
        assert!(t.answer_of(one).is_some() && t.answer_of(other).is_some());
        t.run(1_000);
        assert_eq!(
            reads(&t) - before,
            2 * look,
            "one was in flight before the other asked"
        );
        assert_eq!(t.said(PodSync, "p") as u64, 2 * look);
    }
    // Of a pod that is not there, and of one that has ended.
    let nobody = t.request_reinspect("nobody");
    t.settle();
    assert!(t.view_for(nobody).status.is_nothing());
    t.node = vec![sandbox("s", "p", Exited), c(Exited)];
    t.run(2_000);
    let ended = t.request_reinspect("p");
    t.settle();
    assert_eq!(t.view_for(ended).status.containers.len(), 1);
    t.node.clear();
    t.run(2_000);
    let gone = t.request_reinspect("p");
    t.settle();
    assert!(t.view_for(gone).status.is_nothing());
    let after = reads(&t);
    t.run(60_000);
    assert_eq!(reads(&t), after, "nothing is asked again by itself");
}
