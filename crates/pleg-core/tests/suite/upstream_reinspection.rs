//! Upstream's scenarios of reinspection, G11 and G19 (generic_test.go of Kubernetes 1.36.2), on the
//! reconciler in `Polling` mode: pods that are inspected although no list shows a change.
use pleg_core::ReportedState::{Running, Unknown};
use pleg_core::{ContainerState, Instant};

use crate::script::{Script, failure, sandbox, status};

/// G11, TestReinspect: an unchanged pod is inspected if that was requested, or if its last
/// inspection failed. A success announces PodSync, a failure nothing.
///
/// Deviations: invariant 11 keeps the last good status beside the error; upstream caches (nil,
/// error). Here the pod is read at the request, upstream with the next relist; a failure is
/// repeated after a backoff. The pod has a sandbox, because a runtime has no pod without any id.
#[test]
fn g11_a_pod_is_reinspected_when_asked_or_after_a_failure() {
    for (asked, failed_before, succeeds, inspected, announces) in [
        (false, false, true, 0, &[][..]),
        (false, false, false, 0, &[]),
        (true, false, true, 1, &["p PodSync"]),
        (true, false, false, 1, &[]),
        (false, true, true, 1, &["p PodSync"]),
        (false, true, false, 1, &[]),
        (true, true, true, 1, &["p PodSync"]),
        (true, true, false, 1, &[]),
    ] {
        let case = format!("asked {asked}, failed before {failed_before}, succeeds {succeeds}");
        let mut t = Script::polled(vec![sandbox("s", "p", Running)]);
        if failed_before {
            t.failing.insert("p".into(), failure("before"));
            t.request_reinspect("p");
            t.settle();
            assert_eq!(t.health().failing, 1);
        }
        t.take_requested();
        t.failing.clear();
        if !succeeds {
            t.failing.insert("p".into(), failure("now"));
        }
        let status_before = t.get("p").status;
        if asked {
            // Without waiting for a backoff.
            let waiter = t.request_reinspect("p");
            t.settle();
            let outcome = t.answer_of(waiter).expect("answered").as_ref().map(|_| ());
            let expected = if succeeds {
                Ok(())
            } else {
                Err(&failure("now"))
            };
            assert_eq!(outcome, expected, "{case}");
        } else {
            t.run(1_100);
        }
        assert_eq!(t.take_requested_of_pods().len(), inspected, "{case}");
        assert_eq!(t.take_announced(), announces, "{case}");

        let flagged = inspected > 0 && !succeeds;
        let status = t.get("p").status;
        assert_eq!(
            status.error,
            flagged.then(|| failure("now").into()),
            "{case}"
        );
        assert_eq!(
            status.sandboxes, status_before.sandboxes,
            "{case}: the last good status"
        );
        // The flag is kept or cleared: it is inspected again by itself, or not.
        assert_eq!(t.health().failing, usize::from(flagged), "{case}");
        t.run(5_000);
        assert_eq!(t.take_requested_of_pods().is_empty(), !flagged, "{case}");
        assert!(t.take_announced().is_empty(), "{case}");
    }
}

/// G11, TestReinspect, the deleted pod: a flag of a pod that is gone is cleared without an
/// inspection, with a PodSync, and the cache is empty.
///
/// Deviation: after a failure there is no PodSync, because the end of the pod is announced itself.
/// A request is answered, also for an unknown pod, and invariant 3 requires a read for that; it
/// finds nothing.
#[test]
fn g11_a_deleted_pod_needs_no_reinspection() {
    let mut t = Script::polled(vec![sandbox("s", "p", Running)]);
    t.failing.insert("p".into(), failure("before"));
    t.request_reinspect("p");
    t.settle();
    t.take_requested();
    t.node.clear();
    t.next_list();
    assert_eq!(t.take_announced(), ["p Died s", "p Removed s"]);
    assert_eq!(t.health().failing, 0);
    t.run(10_000);
    assert_eq!(
        t.take_requested_of_pods(),
        [""; 0],
        "nothing is left to be inspected"
    );
    assert!(t.get("p").status.is_nothing());

    t.failing.clear();
    t.begins_after = 0;
    let began = t.now();
    let waiter = t.request_reinspect("p");
    t.settle();
    assert_eq!(t.take_requested_of_pods(), ["p (reinspect)"]);
    assert_eq!(t.take_announced(), ["p PodSync"]);
    let view = t.view_for(waiter);
    assert!(view.status.is_nothing());
    assert_eq!(view.as_of, Some(began));
    assert!(t.get("p").status.is_nothing());
}

/// G19, TestRelistWithReinspection (≤ 1.35): a pod runs; then it has a transient container of
/// unknown state besides and cannot be inspected; then that container is gone and the inspection
/// succeeds: it is cached, without an event (1.36: with a PodSync).
///
/// Deviations: invariant 11 keeps the last good status beside the error, with the transient
/// container as unknown, and repeats the inspection after a backoff. The transient container was
/// seen, so its end is announced by upstream's own table (unknown → non-existent); upstream had not
/// recorded it, because its inspection failed. As in upstream 1.36, PodSync reports that the pod
/// can be read again.
#[test]
fn g19_inspection_succeeds_after_a_failure() {
    let mut t = Script::polling(|_| ());
    let infra = status("infra", "p", Running);
    t.node = vec![infra.clone()];
    t.next_list();
    assert_eq!(t.take_announced(), ["p Started infra"]);
    let good = t.get("p").status;

    t.node = vec![infra.clone(), status("transient", "p", Unknown)];
    t.failing.insert("p".into(), failure("bad"));
    t.next_list();
    assert!(t.take_announced().is_empty());
    let bad = t.get("p").status;
    assert_eq!(bad.error, Some(failure("bad").into()));
    assert_eq!(bad.container("infra"), good.container("infra"));
    let unknown = ContainerState::Unknown { last: None };
    assert_eq!(bad.container("transient").unwrap().state, unknown);

    t.node = vec![infra];
    t.failing.clear();
    t.take_requested();
    t.next_list();
    t.run(1_000);
    assert_eq!(t.take_requested_of_pods(), ["p (retry)"]);
    assert_eq!(
        t.take_announced(),
        ["p Died transient", "p PodSync", "p Removed transient"]
    );
    assert_eq!(t.get("p").status, good);
    assert!(t.get("p").inspected > Some(Instant::ORIGIN));
}
