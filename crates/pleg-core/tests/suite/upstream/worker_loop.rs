//! G15, G16 and G18 (TestWorkerLoop of Kubernetes 1.36.2, period 2 s): requests for single pods and waiters for newer
//! statuses.
//!
//! Deviation, in all of them: upstream's waiters wait for the next list or request. Here a waiter causes a read of its
//! pod at once (invariant 5). Requests are executed at once and never become stale.

use std::sync::Arc;
use std::time::Duration;

use crate::script::{PodLists, Relists, Script};

/// Two running pods, relisted every 2 s, the last time 500 ms ago.
fn two_pods() -> Script {
    let mut t = Script::polling(|settings| settings.relist_period = Duration::from_secs(2));
    ["p1/c", "p2/c"].iter().for_each(|id| t.node.start(id));
    t.settle();
    t.pass(500);
    t.forget();
    t
}

/// G15: the request for p1 is executed: its waiter is answered. Not those of p2, and of p1 for a later instant.
#[test]
fn g15_read_of_one_pod_answers_waiters_of_that_pod() {
    let mut t = two_pods();
    t.hold(PodLists);
    let now = t.now();
    let (w1, w2) = (t.read_since("p1", now), t.read_since("p2", now));
    let later = t.read_since("p1", now.after(Duration::from_secs(1)));
    let request = t.request_read("p1");
    t.expect_calls(&["list p1", "list p2"]);
    t.answer(PodLists);
    assert!(t.view(w1).as_of > Some(now));
    // The request came after that read had begun, so it needs one more.
    assert!(!t.is_answered(request));
    t.expect_calls(&["list p1"]);
    assert!(!t.is_answered(w2));
    t.answer(PodLists);
    assert!(t.is_answered(w2));
    t.answer(PodLists);
    assert!(t.is_answered(request));
    assert!(!t.is_answered(later), "its time has not come");
    t.expect_calls(&[]);
    t.release();
    t.pass(1_000);
    assert!(t.is_answered(later));
    t.expect_calls(&["list p1"]);
}

/// G16: the global relist comes after a request for p2: it inspects p2 only, and answers the waiters of both pods.
///
/// Deviation: the request is executed at once, in parallel with the relist, which confirms the other pod.
#[test]
fn g16_relist_serves_the_pod_that_nobody_requested() {
    let mut t = two_pods();
    let before = t.status("p1");
    t.hold(Relists);
    let started = t.now();
    t.relist();
    let request = t.request_read("p2");
    assert!(t.is_answered(request));
    t.answer(Relists);
    t.expect_calls(&["relist", "list p2"]);
    // Waiters for an instant before the relist.
    for pod in ["p1", "p2"] {
        let waiter = t.read_since(pod, started);
        assert!(t.view(waiter).as_of > Some(started), "{pod}");
    }
    t.expect_calls(&[]);
    assert!(Arc::ptr_eq(&t.status("p1"), &before));
    assert_eq!(t.announced_all(), [""; 0]);
}

/// G18: p1 is waited for, reinspected and relisted: one fresh read by the global relist serves all of them.
///
/// Deviation: the read for the waiter begins at once; both requests share one more, with one PodSync.
#[test]
fn g18_reinspection_and_request_share_one_read() {
    let mut t = two_pods();
    t.hold(PodLists);
    let now = t.now();
    let waiter = t.read_since("p1", now);
    t.pass(1);
    let requests = [t.request_reinspect("p1"), t.request_read("p1")];
    t.expect_calls(&["list p1"]);
    t.answer(PodLists);
    assert!(t.view(waiter).as_of > Some(now));
    assert_eq!(t.announced_all(), [""; 0]);
    t.release();
    t.expect_calls(&["list p1", "status p1/c"]);
    for request in requests {
        assert!(t.view(request).inspected > Some(now), "a fresh status");
    }
    assert_eq!(t.announced_all(), ["PodSync p1"]);
    t.pass(2_000);
    t.expect_calls(&["relist"]);
    let view = &t.cache["p1"];
    assert!(view.as_of > view.inspected);
    assert_eq!(t.announced_all(), [""; 0]);
}
