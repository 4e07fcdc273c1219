//! Tests that a bad pod affects no other pod, and that no pod counts as failing if the runtime as a whole fails.

use pleg_core::CallErrorKind::{DeadlineExceeded, Failed, NotFound, Unavailable};
use pleg_core::EventType::Stopped;

use crate::script::{Call, Event, PodLists, Script, StatusCalls};

#[test]
fn list_and_statuses_of_pod_read_share_five_second_deadline() {
    let mut t = Script::with(&["web"]);
    t.node.exit("web", 3);
    t.hold(PodLists);
    t.read();
    t.pass(2_000);
    t.release();
    let deadline = |t: &Script, of: Call| {
        let mut all = t.deadlines.iter().filter(|(call, _)| *call == of);
        all.next_back().map(|(_, deadline)| deadline.as_millis())
    };
    assert_eq!(deadline(&t, PodLists), Some(5_000));
    assert_eq!(deadline(&t, Call::Version), Some(5_000));
    assert!((2_990..3_000).contains(&deadline(&t, StatusCalls).unwrap()));
}

/// A script of a node with `pods` pods that no relist has shown yet.
fn with_pods(pods: usize) -> Script {
    let mut t = Script::with(&["web"]);
    (0..pods).for_each(|n| t.node.add_pod(&format!("q{n:02}")));
    t
}

#[test]
fn next_relist_waits_until_all_changed_pods_get_read_slots() {
    let mut t = with_pods(12);
    t.hold(StatusCalls);
    t.relist();
    t.relist();
    t.pass(200);
    assert_eq!((t.in_flight(StatusCalls), t.calls_of("relist")), (8, 1));
    t.pass(100);
    assert_eq!((t.in_flight(StatusCalls), t.calls_of("relist")), (12, 2));
    t.pass(4_000);
    assert_eq!(t.in_flight(StatusCalls), 12, "no status is read twice");
}

#[test]
fn pod_with_a_waiter_is_read_before_other_pods() {
    let mut t = with_pods(12);
    t.hold(StatusCalls);
    t.relist();
    t.hold(PodLists);
    t.read_since("q11", t.now());
    t.answer_newest(StatusCalls);
    assert_eq!(t.in_flight(PodLists), 1);
}

#[test]
fn hung_pod_delays_no_other_pod_and_health_names_it() {
    let mut t = Script::with(&["web"]);
    t.node.add_pod("q");
    t.relist();
    t.forget();
    t.hold(PodLists);
    t.read();
    t.pass(300);
    let other = t.read_since("q", t.now());
    t.answer_newest(PodLists);
    assert!(t.is_answered(other));
    assert_eq!(t.degraded(), [""; 0]);
    t.pass(690);
    assert_eq!(t.calls_of("version"), 0);
    t.pass(2_000);
    assert_eq!(t.calls_of("version"), 1, "the call is slow");
    assert_eq!(t.degraded(), ["pods_hung"]);
    assert_eq!(t.health().overdue_pods[0].uid, "p".into());
}

#[test]
fn failing_pod_is_retried_with_backoff_and_health_reports_it() {
    let mut t = Script::with(&["web"]);
    t.node.pod_lists_fail = Some(Failed);
    t.send(Event::nil(Stopped, "web"));
    assert_eq!(t.degraded(), ["pods_failing"]);
    t.forget();
    t.node.relists_fail = Some(Failed);
    t.pass(64_000);
    // The reconciler pauses 1, 2, 4, 8, 16 and 32 s before the six retries of the list of "p".
    assert_eq!(t.count("list p"), 6);
    assert_eq!(t.cached("web"), "Running");
    t.read();
    assert_eq!(t.count("list p"), 1, "a worker ignores the back-off");
    t.node.pod_lists_fail = None;
    t.read();
    assert_eq!(t.health().failing, 0);
    assert!(t.cache["p"].status.error.is_none());
}

#[test]
fn failing_status_is_retried_only_with_backoff() {
    let mut t = Script::with(&["web"]);
    t.node.exit("web", 3);
    t.node.fail_status("web", Failed);
    t.read();
    t.expect(&["Died web"]);
    assert_eq!(t.degraded(), ["pods_failing"]);
    t.forget();
    for _ in 0..6 {
        t.pass(10_000);
        t.read();
    }
    let retries = t.count("status web");
    assert!((5..=7).contains(&retries), "{retries}");
}

#[test]
fn status_in_backoff_is_read_when_the_state_changes() {
    let mut t = Script::with(&[]);
    t.node.start("web");
    t.node.fail_status("web", Failed);
    t.read();
    t.pass(60_000);
    t.node.exit("web", 3);
    t.node.heal_status("web");
    t.send(Event::nil(Stopped, "web"));
    t.expect(&["Started web", "Died web 3"]);
}

/// All relists fail, for example because their answer is too large.
#[test]
fn hung_status_call_gets_backoff_even_if_relists_fail() {
    let mut t = Script::with(&["web"]);
    t.node.relists_fail = Some(Failed);
    t.node.exit("web", 3);
    t.node.fail_status("web", DeadlineExceeded);
    t.send(Event::nil(Stopped, "web"));
    t.pass(120_000);
    assert!(!t.core.is_runtime_failing());
    let retries = t.count("status web");
    assert!(retries <= 8, "{retries}");
}

#[test]
fn failures_in_an_outage_count_against_no_pod() {
    let mut t = Script::with(&["web"]);
    t.node.exit("web", None);
    t.node.stop_runtime();
    t.send(Event::nil(Stopped, "web"));
    t.pass(10_000);
    assert!((9..=11).contains(&t.count("list p")), "each second");
    assert_eq!(t.health().failing, 0);
    t.node.start_runtime();
    t.pass(1_500);
    t.expect(&["Died web"]);
    assert!(!t.core.is_runtime_failing());
}

/// The runtime freezes after the pod list: the status call times out before `Version` does.
#[test]
fn first_timeout_of_a_frozen_runtime_counts_against_no_pod() {
    let mut t = Script::with(&["web"]);
    t.node.exit("web", 3);
    t.node.fail_status("web", DeadlineExceeded);
    t.send(Event::nil(Stopped, "web"));
    t.node.fail_all(Some(DeadlineExceeded));
    t.pass(20_000);
    t.expect_nothing();
    assert_eq!(t.health().failing, 0);
    t.node.start_runtime();
    t.pass(8_000);
    t.expect(&["Died web 3"]);
}

#[test]
fn not_found_sets_the_status_missing_flag_without_version_call() {
    let mut t = Script::with(&["web"]);
    t.node.fail_status("web", NotFound);
    let worker = t.read_details();
    assert_eq!(t.answered(worker, "web"), "Running missing");
    t.expect_calls(&["list p", "status s web"]);
}

#[test]
fn runtime_probe_reads_the_oldest_status_outside_backoff() {
    let mut t = Script::with(&["a", "b", "c"]);
    t.node.exit("b", 3);
    t.node.fail_status("b", Failed);
    t.read();
    t.pass(200_000);
    for id in ["a", "c", "s"] {
        let probes = t.calls_of(&format!("status {id}"));
        assert!((3..=5).contains(&probes), "{id}: {probes}");
    }
}

#[test]
fn runtime_probe_of_an_empty_node_calls_version() {
    let mut t = Script::new();
    t.pass(14_000);
    t.forget();
    t.pass(2_000);
    assert_eq!(t.count("version"), 1);
}

#[test]
fn runtime_probe_timeout_is_ignored_after_later_status_call_succeeds() {
    let mut t = Script::with(&["web"]);
    t.slow_probe("web");
    t.pass(1_500);
    t.answer_newest(StatusCalls);
    t.pass(4_000);
    assert_eq!(t.in_flight(StatusCalls), 0);
    assert!(t.degraded().is_empty());
}

#[test]
fn health_reports_pod_whose_status_call_hangs_as_runtime_probe() {
    let mut t = Script::with(&["web"]);
    t.node.fail_status("s", DeadlineExceeded);
    t.node.fail_status("web", DeadlineExceeded);
    t.pass(11_500);
    assert!(t.calls_of("version") > 0 && t.calls_of("list p") > 0);
    t.pass(10_000);
    assert!(!t.degraded().is_empty());
}

#[test]
fn runtime_probe_timeout_counts_against_no_pod_if_version_hangs() {
    let mut t = Script::with(&["web"]);
    t.node.fail_status("s", DeadlineExceeded);
    t.node.fail_status("web", DeadlineExceeded);
    (t.node.versions_fail, t.node.relists_fail) = (Some(DeadlineExceeded), Some(Unavailable));
    t.pass(30_000);
    let degraded = t.degraded();
    assert!(degraded.contains(&"runtime_silent"), "{degraded:?}");
    assert!(!degraded.contains(&"pods_failing"));
}
