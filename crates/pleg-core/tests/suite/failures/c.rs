//! C1 to C22: the generic PLEG (C2, C5, C9, C12 to C14, C18 and C19 are in `pleg`, C9 and C17 in `pleg-cri`).

use std::time::Duration;

use pleg_core::EventType::{Created, Started, Stopped};
use pleg_core::{CallErrorKind, NotReady, PodStatus, PodView, Settings};

use super::a::creates_a_container_once;
use super::life::limited;
use crate::node::{created, exited, running, start_failed, with};
use crate::script::{Event, PodLists, Relists, Script};

/// Upstream: "PLEG is not healthy" says for how long, not why.
#[test]
fn c1_health_names_what_is_wrong() {
    let mut t = Script::polled(&["web"]);
    assert_eq!(t.degraded(), [""; 0]);
    t.hold(Relists);
    t.pass(1_100);
    assert_eq!(t.in_flight(Relists), 1);
    t.pass(3_000);
    assert_eq!(t.degraded(), ["list_slow"]);
    t.fail(Relists);
    assert_eq!(t.degraded(), ["list_failed"]);
    let error = t.health().list_error.map(|error| error.kind);
    assert_eq!(error, Some(CallErrorKind::Failed));
    t.release();
    t.pass(2_000);
    assert_eq!(t.degraded(), [""; 0]);
    // A pod that does not answer, and one that fails.
    t.hold(PodLists);
    t.read();
    t.pass(2_500);
    assert_eq!(t.degraded(), ["pods_hung"]);
    t.fail(PodLists);
    assert_eq!(t.degraded(), ["pods_failing"]);
    assert_eq!(t.health().failing_pods[0].uid, "p".into());
    assert!(t.status("p").error.is_some());
    assert!(t.is_ready());
}

/// Upstream: a container that starts and is removed between two lists is never seen.
#[test]
fn c4_container_that_lives_between_two_relists_is_announced() {
    // It is removed before its first event arrives.
    let mut t = Script::with(&[]);
    t.send(Event::of(Created, created("web")));
    t.send(Event::of(Started, running("web")));
    t.send(Event::of(Stopped, exited("web", 3)));
    t.expect(&["Started web", "Died web 3", "Removed web 3"]);
    assert_eq!(t.cached("web"), "none");
    assert_eq!(t.count("relist"), 0);

    // No event reports it, and no relist shows it: nothing is announced.
    let mut t = Script::polled(&["web"]);
    t.node.exit("db", 1);
    t.node.remove("db");
    t.pass(10_000);
    t.expect_nothing();
    // A known container exits and is removed.
    t.node.exit("web", 1);
    t.node.remove("web");
    t.pass(10_000);
    t.expect(&["Died web", "Removed web"]);
}

/// Upstream: a temporary failure of an inspection overwrites the status with the error.
#[test]
fn c6_failed_read_keeps_the_last_good_status() {
    let mut t = Script::polled(&["web"]);
    let good = t.status("p");
    t.node.fail_status("web", CallErrorKind::Failed);
    t.read_details();
    assert_eq!(t.cached("web"), "Running error");
    assert!(t.status("p").error.is_some());
    let details = |status: &PodStatus| status.containers[0].details.clone();
    assert_eq!(details(&t.status("p")), details(&good));
    let mut failed = t.now();
    t.forget();
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        while t.count("status web") == 0 {
            t.pass(10);
        }
        let waited = t.now().since(failed).as_millis();
        assert!((0..50).contains(&(waited - pause * 1_000)), "{waited} ms");
        failed = t.now();
    }
    t.node.heal_status("web");
    t.pass(61_000);
    assert_eq!(t.status("p"), good);
}

/// Upstream: a stale status creates a second container, without any events.
#[test]
fn c7_polling_answers_no_worker_with_an_old_status() {
    creates_a_container_once(Script::polled(&[]));
}

/// Upstream: a change of resources is no change of state and is not announced.
#[test]
fn c8_a_change_of_resources_is_announced() {
    let mut t = Script::polled(&["web"]);
    t.node.set(limited(1));
    t.pass(10_000);
    assert_eq!(t.announced_all(), [""; 0], "lists show no resources");
    t.read_details();
    assert_eq!(t.announced_all(), ["PodSync p"]);
    t.read_details();
    assert_eq!(t.announced_all(), [""; 0], "nothing has changed");
    // A reinspection announces one in any case.
    t.request_reinspect("p");
    assert_eq!(t.announced_all(), ["PodSync p"]);
    // A relist meanwhile shows the pod unchanged, and does not replace the reinspection.
    t.node.set(limited(2));
    t.hold(PodLists);
    let request = t.request_reinspect("p");
    t.relist();
    assert!(!t.is_answered(request));
    t.release();
    assert!(t.is_answered(request));
    assert_eq!(t.announced_all(), ["PodSync p"]);
    // The probe reads one status every 15 s.
    t.node.set(limited(3));
    t.pass(31_000);
    assert_eq!(t.announced_all(), ["PodSync p"]);
}

/// Upstream: period and threshold are constants.
#[test]
fn c10_period_and_threshold_are_settings() {
    let mut t = Script::polling(|s| {
        s.relist_period = Duration::from_millis(2_500);
        s.unready_after = Duration::from_secs(70);
    });
    t.settle();
    t.forget();
    t.pass(2_490);
    assert_eq!(t.count("relist"), 0);
    t.pass(20);
    assert_eq!(t.count("relist"), 1);
    t.node.relists_fail = Some(CallErrorKind::Unavailable);
    t.pass(69_500);
    assert!(t.is_ready());
    t.pass(1_000);
    let why = t.health().ready(t.now()).unwrap_err().to_string();
    assert!(why.ends_with(" ago; threshold is 1m10s"), "{why}");
    let mut senseless = Settings::default();
    senseless.unready_after = senseless.relist_period_max;
    let refused = senseless.validate().expect_err("it would flap");
    assert_eq!(refused.setting, "unready_after");
}

/// Upstream: the time of the last list was once set before the list had succeeded.
#[test]
fn c11_only_a_complete_relist_counts() {
    let mut t = Script::polled(&["web"]);
    let last = t.health().last_list.expect("it was listed");
    t.node.relists_fail = Some(CallErrorKind::DeadlineExceeded);
    for _ in 0..30 {
        t.pass(7_000);
        assert_eq!(t.health().last_list, Some(last));
        let age = t.now().since(last);
        assert_eq!(t.is_ready(), age <= Duration::from_secs(180), "{age:?}");
    }
    let why = t.health().ready(t.now());
    assert!(matches!(why, Err(NotReady::Stale { .. })));
    t.node.relists_fail = None;
    t.release();
    t.pass(1_500);
    assert!(t.is_ready());
    // However long it took, it counts from its request.
    t.hold(Relists);
    t.relist();
    let requested = t.now();
    t.pass(5_000);
    t.release();
    assert!(requested.since(t.health().last_list.unwrap()) < Duration::from_millis(1));
    let new = Script::new();
    assert_eq!(new.health().ready(new.now()), Err(NotReady::NeverListed));
}

/// Upstream: created and unknown change the cache and are not sent.
#[test]
fn c15_created_and_unknown_are_announced() {
    let mut t = Script::polled(&["web"]);
    t.node.create("db");
    t.pass(5_000);
    t.expect(&["Changed db"]);
    t.node.become_unknown("web");
    t.pass(5_000);
    t.expect(&["Changed web"]);
    assert_eq!(t.cached("web"), "Unknown (was Running)");
    t.pass(120_000);
    t.expect_nothing();
    t.node.start("web");
    t.pass(120_000);
    t.expect(&["Changed web"]);
    assert_eq!(t.cached("web"), "Running");
}

/// Upstream: a list of one pod that finds it gone is ignored until the next complete list.
#[test]
fn c16_read_of_a_pod_sees_its_end() {
    for mut t in [Script::with(&["web"]), Script::polled(&["web"])] {
        t.node.remove("s");
        t.node.remove("web");
        let request = t.request_read("p");
        assert!(t.view(request).status.is_nothing());
        assert!(t.status("p").is_nothing());
        let mut announced = t.announced();
        announced.sort();
        assert_eq!(
            announced,
            ["Died s", "Died web", "Removed s", "Removed web"]
        );
        t.expect_calls(&["list p", "status s web"]);
    }
    // An id that the list of the pod leaves out, and whose status succeeds or fails otherwise, is not removed.
    for fault in [None, Some(CallErrorKind::Failed)] {
        let mut t = Script::with(&["web"]);
        t.node.hide_row("web");
        fault
            .into_iter()
            .for_each(|kind| t.node.fail_status("web", kind));
        t.request_read("p");
        t.expect_nothing();
        assert!(t.cached("web").starts_with("Running"));
    }
}

/// Upstream: the reinspection flag of a uid that is never listed is kept for ever.
#[test]
fn c20_reinspection_of_an_unknown_uid_leaves_no_state() {
    for mut t in [Script::with(&[]), Script::polled(&[])] {
        for _ in 0..3 {
            let request = t.request_reinspect("nobody");
            assert!(t.view(request).status.is_nothing());
        }
        // A pod whose reads fail is forgotten if nothing of it exists.
        t.node.pod_lists_fail = Some(CallErrorKind::Failed);
        let request = t.request_reinspect("nobody");
        assert_eq!(t.error(request), Some(CallErrorKind::Failed));
        t.node.pod_lists_fail = None;
        t.pass(70_000);
        assert!(!format!("{:?}", t.core).contains("nobody"));
        assert_eq!(t.degraded(), [""; 0]);
    }
}

/// Upstream: a failed init container was reported as started, or with the wrong exit code.
#[test]
fn c21_container_that_never_ran_is_not_started() {
    let mut t = Script::with(&[]);
    t.node.create("job");
    t.event(Created, "job");
    t.pass(300);
    t.node.set(start_failed("job"));
    let wrong = with(start_failed("job"), |details| details.exit_code = Some(2));
    t.send(Event::of(Stopped, wrong));
    t.expect(&["Changed job", "Died job 2 StartError"]);
    t.forget();
    t.pass(1_990);
    t.expect_calls(&[]);
    t.pass(20);
    t.expect_calls(&["status job"]);
    t.expect(&["Changed job 128 StartError"]);
    assert_eq!(t.cached("job"), "Exited 128");

    // The same if a relist shows it first.
    let mut t = Script::polled(&[]);
    t.node.set(start_failed("job"));
    t.pass(5_000);
    t.expect(&["Died job 128 StartError"]);
}

/// Upstream: with events enabled, the runtime's wall clock is compared with the kubelet's.
#[test]
fn c22_wall_clock_step_changes_no_order() {
    const DAY: i64 = 24 * 3_600_000;
    let run = |step| {
        let mut t = Script::with(&["web"]);
        t.step_wall_clock(step);
        t.exits("web", 3);
        let worker = t.read();
        t.starts("db");
        t.pass(300);
        let views = [t.view(worker), &t.cache["p"]].map(PodView::clone);
        (views, t.announced(), t.now())
    };
    let steady = run(0);
    assert_eq!(steady.1, ["Died web 3", "Started db"]);
    for step in [DAY, -DAY, 2_000, -2_000] {
        assert_eq!(run(step), steady, "{step}");
    }
}
