//! Tests requests of consumers to read one pod, and changes of details that only statuses show, not lists.

use std::sync::Arc;

use pleg_core::CallErrorKind::Failed;

use crate::node::{running, with};
use crate::script::{PodLists, Script};

/// Changes the memory limit of the container, which only its status shows.
fn set_memory_limit(t: &mut Script, limit: i64) {
    t.node.set(with(running("web"), |details| {
        Arc::make_mut(details.resources.get_or_insert_default()).memory_limit = limit;
    }));
}

#[test]
fn changed_details_are_announced_by_the_read_that_shows_them() {
    let mut t = Script::polled(&["web"]);
    set_memory_limit(&mut t, 1);
    t.pass(10_000);
    assert_eq!(t.announced_all(), [""; 0]);
    let worker = t.read_details();
    let web = t.view(worker).status.container("web").unwrap();
    assert_eq!(web.details.resources.as_ref().unwrap().memory_limit, 1);
    assert_eq!(t.announced_all(), ["PodSync p"]);
    t.read_details();
    assert_eq!(t.announced_all(), [""; 0], "nothing has changed");
    set_memory_limit(&mut t, 2);
    // The generator's probe of the runtime reads one status every 15 s.
    t.pass(31_000);
    assert_eq!(t.announced_all(), ["PodSync p"]);
}

#[test]
fn each_reinspection_reads_every_status_and_announces_podsync() {
    for mut t in [Script::with(&["web"]), Script::polled(&["web"])] {
        for _ in 0..3 {
            let request = t.request_reinspect("p");
            assert_eq!(t.answered(request, "web"), "Running");
            t.expect_calls(&["list p", "status s web"]);
            assert_eq!(t.announced_all(), ["PodSync p"]);
        }
    }
}

#[test]
fn requests_during_a_read_share_the_next_read() {
    let mut t = Script::with(&["web"]);
    let before = t.now();
    t.hold(PodLists);
    let worker = t.read();
    let requests = [t.request_reinspect("p"), t.request_read("p")];
    // A relist that shows the pod unchanged does not replace the requested read of all statuses.
    t.relist();
    t.expect_calls(&["list p", "relist"]);
    t.answer(PodLists);
    assert!(t.is_answered(worker) && !t.is_answered(requests[1]));
    assert_eq!(t.announced_all(), [""; 0]);
    t.release();
    t.expect_calls(&["list p", "status s web"]);
    for request in requests {
        assert!(t.view(request).details_as_of > Some(before));
    }
    assert_eq!(t.announced_all(), ["PodSync p"]);
}

#[test]
fn failed_reinspection_keeps_the_details_and_is_retried() {
    let mut t = Script::polled(&["web"]);
    let good = t.status("p");
    t.node.fail_status("web", Failed);
    for _ in 0..2 {
        let request = t.request_reinspect("p");
        assert_eq!(t.answered(request, "web"), "Running error");
        assert_eq!(t.announced_all(), ["PodSync p"]);
    }
    assert!(t.status("p").error.is_some());
    let details = |of: &pleg_core::PodStatus| of.containers[0].details.clone();
    assert_eq!(details(&t.status("p")), details(&good));
    t.node.heal_status("web");
    t.pass(3_000);
    assert_eq!(t.announced_all(), ["PodSync p"]);
    assert_eq!((t.status("p"), t.health().failing), (good, 0));
    t.forget();
    t.pass(10_000);
    assert_eq!(t.calls_of("status"), 0);
}

#[test]
fn pod_that_is_gone_is_read_on_request_only() {
    let mut t = Script::polled(&[]);
    t.node.fail_status("s", Failed);
    t.read_details();
    t.forget();
    t.node.remove("s");
    t.node.heal_status("s");
    t.pass(10_000);
    assert_eq!(t.announced_all(), ["Died s", "Removed s"]);
    assert_eq!(t.calls_of("list p") + t.calls_of("status"), 0);
    assert!(t.cache.is_empty() && t.health().failing == 0);
    let request = t.request_reinspect("p");
    assert_eq!(t.announced_all(), ["PodSync p"]);
    assert!(!t.view(request).status.exists());
}

#[test]
fn request_for_an_unknown_pod_leaves_nothing_in_the_reconciler() {
    for mut t in [Script::with(&[]), Script::polled(&[])] {
        let request = t.request_reinspect("nobody");
        assert!(!t.view(request).status.exists());
        t.node.pod_lists_fail = Some(Failed);
        let request = t.request_reinspect("nobody");
        assert_eq!(t.error(request), Some(Failed));
        t.node.pod_lists_fail = None;
        t.pass(70_000);
        assert!(!format!("{:?}", t.core).contains("nobody"));
        assert!(!t.core.is_unread(&"nobody".into()));
        assert_eq!(t.degraded(), [""; 0]);
    }
}
