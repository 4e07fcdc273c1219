//! G11 and G19: pods that are read although no list shows a change.

use pleg_core::CallErrorKind::Failed;

use crate::script::Script;

/// G11, TestReinspect: an unchanged pod is inspected if that was requested, or if its last inspection failed. A success
/// announces PodSync, a failure nothing.
///
/// Deviations: invariant 11 keeps the last good status with the error; upstream caches (nil, error). The error of an id
/// is part of the status, so its first failure is a PodSync. The pod is read at the request, upstream with the next
/// relist; a failure is repeated after a backoff.
#[test]
fn g11_pod_is_reinspected_on_request_or_after_a_failure() {
    for (is_requested, failed, succeeds) in [
        (false, false, true),
        (true, false, true),
        (true, false, false),
        (false, true, true),
        (false, true, false),
        (true, true, true),
        (true, true, false),
    ] {
        let case = format!("requested {is_requested}, failed {failed}, succeeds {succeeds}");
        let mut t = Script::polled(&["c"]);
        if failed {
            t.node.fail_status("c", Failed);
            t.read_details();
            assert_eq!(t.health().failing, 1);
        }
        match succeeds {
            true => t.node.heal_status("c"),
            false => t.node.fail_status("c", Failed),
        }
        t.forget();
        if is_requested {
            // Without waiting for a backoff.
            let request = t.request_reinspect("p");
            let state = if succeeds { "Running" } else { "Running error" };
            assert_eq!(t.answered(request, "c"), state, "{case}");
        } else {
            t.pass(1_900);
        }
        let is_read = is_requested || failed;
        let calls = t.calls();
        let reads = calls.iter().filter(|call| call.contains("status"));
        assert_eq!(reads.count(), usize::from(is_read), "{case}");
        let fails = is_read && !succeeds;
        assert_eq!(t.health().failing, usize::from(fails), "{case}");
        let is_announced = is_requested || (failed && succeeds);
        let syncs = vec!["PodSync p"; usize::from(is_announced)];
        assert_eq!(t.announced_all(), syncs, "{case}");
        // It is read again by itself, or not.
        t.pass(5_000);
        let calls = t.calls();
        assert_eq!(calls.iter().any(|call| call == "status c"), fails, "{case}");
        assert_eq!(t.announced_all(), [""; 0], "{case}");
    }
}

/// G11, TestReinspect, the deleted pod: its flag is cleared without an inspection, with a PodSync.
///
/// Deviation: after a failure there is no PodSync, because the end of the pod is announced itself. A request is read.
#[test]
fn g11_a_deleted_pod_needs_no_reinspection() {
    let mut t = Script::polled(&[]);
    t.node.fail_status("s", Failed);
    t.read_details();
    t.forget();
    t.node.remove("s");
    t.node.heal_status("s");
    t.pass(10_000);
    assert_eq!(t.announced_all(), ["Died s", "Removed s"]);
    assert_eq!(t.health().failing, 0);
    assert!(t.calls().iter().all(|call| call == "relist"));
    assert!(t.cache.is_empty());

    let requested = t.now();
    let request = t.request_reinspect("p");
    assert_eq!(t.announced_all(), ["PodSync p"]);
    t.expect_calls(&["list p"]);
    assert!(t.view(request).status.is_nothing());
    assert!(t.view(request).as_of > Some(requested));
    assert!(t.cache.is_empty());
}

/// G19, TestRelistWithReinspection (≤ 1.35): a pod cannot be inspected while it has a transient container of unknown
/// state. When that is gone and the inspection succeeds, it is cached, without an event (1.36: with a PodSync).
///
/// Deviation: invariant 11 keeps the last good status with the error. The transient container was seen and announced.
#[test]
fn g19_read_succeeds_after_a_failure() {
    let mut t = Script::polled(&["infra"]);
    let good = t.status("p");
    t.node.become_unknown("transient");
    t.node.fail_status("transient", Failed);
    t.node.fail_status("infra", Failed);
    t.pass(1_100);
    t.read_details();
    t.expect(&["Changed transient"]);
    let bad = t.status("p");
    assert_eq!((bad.containers.len(), bad.error.is_some()), (2, true));
    let infra = |of: &pleg_core::PodStatus| of.container("infra").unwrap().details.clone();
    assert_eq!(infra(&bad), infra(&good));
    assert_eq!(t.cached("transient"), "Unknown error");

    t.node.remove("transient");
    t.node.heal_status("transient");
    t.node.heal_status("infra");
    t.pass(3_000);
    t.expect(&["Died transient", "Removed transient"]);
    assert_eq!(t.status("p"), good);
}
