//! Upstream's worker loop, G15 to G18 (TestWorkerLoop of Kubernetes 1.36.2, period 2 s): requests
//! for single pods and waiters for newer statuses, on the reconciler in `Polling` mode.
//!
//! Deviation, in all of them: upstream's waiters wait for the next list or request. Here a waiter
//! causes a read of its pod (invariant 4), and a list does not confirm a pod that is owed one
//! (invariant 3), so a waiter is answered by a read of the pod itself. Requests are executed at
//! once and never become stale.
use std::sync::Arc;
use std::time::Duration;

use pleg_core::Instant;
use pleg_core::ReportedState::Running;

use crate::script::{Script, status};

/// Two running pods, listed and inspected once, every 2 s.
fn two_pods() -> Script {
    let mut t = Script::polling(|settings| settings.relist_period = Duration::from_secs(2));
    // A read begins at the instant of its request, which is also the instant of its waiter.
    t.begins_after = 0;
    t.node = vec![status("c1", "p1", Running), status("c2", "p2", Running)];
    t.settle();
    t.take_announced();
    t.take_requested();
    t.pass(500);
    t
}

/// G15: both pods have waiters; the request for p1 is executed: p1's waiter is answered. p2's
/// waiter still waits, and so does one for p1 whose instant is in the future.
#[test]
fn g15_read_of_one_pod_answers_waiters_of_that_pod() {
    let mut t = two_pods();
    let now = t.now();
    let (w1, w2) = (t.wait("p1", now), t.wait("p2", now));
    assert_eq!(t.take_requested(), ["p1 (waiter)", "p2 (waiter)"]);
    let later = t.wait("p1", now.after(Duration::from_secs(2)));
    let request = t.request_relist("p1");
    // The request came after the read began, so it needs one more.
    t.answer_inspection_of("p1");
    assert_eq!(
        t.view_for(w1).as_of,
        Some(now),
        "begun at its instant, asked for after it waited"
    );
    assert_eq!(t.answer_of(request), None);
    assert_eq!(t.take_requested().len(), 1);
    t.answer_inspection_of("p1");
    assert!(t.view_for(request).as_of > Some(now));
    assert_eq!(t.answer_of(w2), None, "p2's own read has not answered");
    assert_eq!(t.answer_of(later), None, "its time has not come");
    t.answer_inspection_of("p2");
    assert_eq!(t.view_for(w2).as_of, Some(now));
    assert_eq!(t.answer_of(later), None);
    assert!(
        t.take_requested().is_empty(),
        "nothing is read before its time"
    );
}

/// G16: a request for p2 is made and the period passes: the global relist comes, it inspects p2
/// only, both waiters are answered, and p1's status stays the same object.
///
/// Deviation: the request is executed at once, in parallel with the list. Only its pod is
/// inspected, the list confirms the other one, and then a waiter for an instant before the list is
/// answered for both pods without another read.
#[test]
fn g16_a_list_serves_both_pods_and_inspects_only_what_was_asked_for() {
    let mut t = two_pods();
    let before = t.get("p1").status;
    t.pass(1_500);
    assert_eq!(t.take_requested(), ["list"]);
    let (list_began, asked) = (t.health().list_in_flight.unwrap(), t.now());
    let request = t.request_relist("p2");
    assert_eq!(t.take_requested(), ["p2 (relist)"]);
    t.settle();
    assert!(
        t.take_requested().is_empty(),
        "p1 is unchanged and not inspected"
    );
    assert_eq!(t.view_for(request).as_of, Some(asked));

    let just_before = Instant::from_nanos(list_began.as_nanos() - 1);
    for pod in ["p1", "p2"] {
        let waiter = t.wait(pod, just_before);
        assert!(t.view_for(waiter).as_of > Some(just_before), "{pod}");
    }
    assert!(t.take_requested().is_empty(), "both are served");
    assert!(Arc::ptr_eq(&t.get("p1").status, &before));
    assert!(t.take_announced().is_empty());
}

/// G16, the waiters of p1 and p2 whose instant comes at the same time as the list.
///
/// Deviation: invariant 3. The list does not answer them, because their reads are in flight; the
/// reads do. So p1 is inspected for its waiter, unlike upstream. Its status stays the same object.
#[test]
fn g16_waiters_are_answered_by_their_own_reads() {
    let mut t = two_pods();
    let before = t.get("p1").status;
    let at = t.now().after(Duration::from_millis(1500));
    let (w1, w2) = (t.wait("p1", at), t.wait("p2", at));
    t.pass(1_500);
    assert_eq!(t.take_requested(), ["list", "p1 (waiter)", "p2 (waiter)"]);
    t.answer_list();
    assert_eq!(
        (t.answer_of(w1), t.answer_of(w2)),
        (None, None),
        "that was the list"
    );
    t.answer_inspection_of("p2");
    t.answer_inspection_of("p1");
    assert_eq!(
        (t.view_for(w1).as_of, t.view_for(w2).as_of),
        (Some(at), Some(at))
    );
    assert!(Arc::ptr_eq(&t.view_for(w1).status, &before));
    t.pass(1_000);
    assert!(t.take_requested().is_empty(), "each was read once");
}

/// G17: the request for p2, made before the global relist, is drained without a read of p2.
///
/// Deviation: invariant 3 requires a read begun after the request, and it is made at once; the list
/// comes later. Requests made at the same time share a read that has not begun, and no read follows
/// when all are answered.
#[test]
fn g17_no_request_is_left_behind() {
    let mut t = two_pods();
    let requests = [(); 3].map(|()| t.request_relist("p2"));
    t.settle();
    // The read of the first had begun; the other two shared the next.
    assert_eq!(t.take_requested().len(), 2);
    assert!(
        requests
            .iter()
            .all(|r| t.answer_of(*r).is_some_and(Result::is_ok))
    );
    t.next_list();
    t.pass(1_000);
    assert_eq!(
        t.take_requested(),
        ["list"],
        "the list finds nothing to inspect, and nothing is left"
    );
}

/// G18: p1 is waited for, then a reinspection and a relist of it are requested; the global relist
/// inspects p1 freshly, the waiter is answered, and the request is skipped.
///
/// Deviation: the waiter's read begins at once; both requests, made after it, share one more, which
/// announces PodSync once. The list then confirms the pod without inspecting it.
#[test]
fn g18_a_reinspection_and_a_relist_share_one_read() {
    let mut t = two_pods();
    let now = t.now();
    let waiter = t.wait("p1", now);
    t.pass(1);
    let requests = [t.request_reinspect("p1"), t.request_relist("p1")];
    assert_eq!(t.take_requested(), ["p1 (waiter)"]);
    t.answer_inspection_of("p1");
    assert_eq!(t.view_for(waiter).as_of, Some(now));
    assert!(t.take_announced().is_empty());
    assert_eq!(t.take_requested().len(), 1);
    t.settle();
    for request in requests {
        let view = t.view_for(request);
        assert!(
            view.as_of > Some(now) && view.inspected == view.as_of,
            "a fresh status"
        );
    }
    assert_eq!(t.take_announced(), ["p1 PodSync"]);
    t.next_list();
    assert_eq!(t.take_requested(), ["list"]);
    let view = t.get("p1");
    assert!(
        view.as_of > view.inspected,
        "confirmed by the list, not read again"
    );
    assert!(t.take_announced().is_empty());
}
