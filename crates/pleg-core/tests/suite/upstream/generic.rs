//! G1 to G9, G12 and G14: relists.

use std::sync::Arc;

use pleg_core::ReportedState::{Exited, Running, Unknown};
use pleg_core::{CallErrorKind, Report};

use crate::node::{exited, report, running};
use crate::script::Script;

/// P1 {1 Exited, 2 Running, 3 Unknown}, P2 {1 Exited}, all containers "c" or all sandboxes "s".
fn first(kind: &str) -> [Report; 4] {
    let report = |id: &str, shown| report(&format!("{}{kind}{}", &id[..3], &id[3..]), shown);
    [
        report("p1/1", Exited),
        report("p1/2", Running),
        report("p1/3", Unknown),
        report("p2/1", Exited),
    ]
}

/// Then P1 {2 Exited, 3 Running}, P2 {4 Running}.
fn change(t: &mut Script, kind: &str) {
    let id = |pod: &str, n| format!("{pod}/{kind}{n}");
    t.node.remove(&id("p1", 1));
    t.node.exit(&id("p1", 2), None);
    t.node.start(&id("p1", 3));
    t.node.remove(&id("p2", 1));
    t.node.start(&id("p2", 4));
    t.pass(1_100);
}

fn listed(statuses: impl IntoIterator<Item = Report>) -> Script {
    let mut t = Script::polling(|_| ());
    statuses.into_iter().for_each(|status| t.node.set(status));
    t.settle();
    t
}

fn sorted(t: &mut Script) -> Vec<String> {
    let mut all = t.announced_all();
    all.sort();
    all
}

/// G1, TestRelisting: the first relist of running, exited and unknown containers.
///
/// Deviation: upstream generates ContainerChanged for an unknown container and for a created one, and never sends it.
#[test]
fn g1_the_first_relist_announces_running_ended_and_unknown() {
    let announced = [
        "Changed p1/c3 initial",
        "Died p1/c1 initial",
        "Died p2/c1 initial",
        "Started p1/c2 initial",
    ];
    assert_eq!(sorted(&mut listed(first("c"))), announced);
    let created = report("p1/c3", pleg_core::ReportedState::Created);
    assert_eq!(sorted(&mut listed([created])), ["Changed p1/c3 initial"]);
}

/// G2, TestRelisting: the same node relisted again gives no events.
///
/// Deviation: the status of an unknown container is read again with backoff; upstream waits until its state changes.
#[test]
fn g2_relist_that_shows_nothing_new_announces_nothing() {
    let mut t = listed(first("c"));
    t.forget();
    t.pass(10_000);
    t.expect_nothing();
    let calls = t.calls();
    let others = ["relist", "list p1", "status p1/c3"];
    assert!(
        calls.iter().all(|call| others.contains(&&**call)),
        "{calls:?}"
    );
    assert!(calls.iter().any(|call| call == "status p1/c3"));
}

/// G3, TestRelisting: one container gone, one ended, one started, and another pod's replaced. G12,
/// TestRelistingWithSandboxes: the same with sandboxes. (Upstream's check of the second relist checks nothing.)
#[test]
fn g3_g12_second_relist_announces_what_has_changed() {
    for kind in ["c", "s"] {
        let mut t = listed(first(kind));
        assert_eq!(sorted(&mut t).len(), 4);
        change(&mut t, kind);
        let announced = [
            "Died p1/2",
            "Removed p1/1",
            "Removed p2/1",
            "Started p1/3",
            "Started p2/4",
        ];
        let announced = announced.map(|event| event.replace('/', &format!("/{kind}")));
        assert_eq!(sorted(&mut t), announced);
    }
}

/// G5, TestDetectingContainerDeaths/containers, and G6, /pods: containers, or a whole pod, vanish after one relist and
/// after three. G9, TestRemoveCacheEntry: the pod is out of the cache.
#[test]
fn g5_g6_g9_what_vanishes_has_died_and_is_removed() {
    for relists in [1, 3] {
        let mut t = listed([running("c1"), running("c2"), exited("c3", 0)]);
        t.pass((relists - 1) * 1_100);
        t.forget();
        t.node.remove("c2");
        t.node.remove("c3");
        t.pass(1_100);
        assert_eq!(sorted(&mut t), ["Died c2", "Removed c2", "Removed c3 0"]);
        t.node.remove("c1");
        t.pass(1_100);
        assert_eq!(sorted(&mut t), ["Died c1", "Removed c1"]);
        assert!(t.cache.is_empty());
        t.pass(1_100);
        assert!(t.cache.is_empty() && sorted(&mut t).is_empty());
    }
}

/// G7, TestRelistWithCache: of two running pods one cannot be inspected. G8: the next relists inspect it alone.
///
/// Deviations: upstream caches (empty status, error) and announces Started only when the pod can be inspected. Here the
/// listed state is announced and stays with the error (invariants 5 and 11); the retry follows a backoff of 1 s.
#[test]
fn g7_g8_pod_that_cannot_be_read_is_retried() {
    let mut t = Script::polling(|_| ());
    ["p0/c", "p1/c"].iter().for_each(|id| t.node.start(id));
    t.node.fail_status("p1/c", CallErrorKind::Failed);
    t.settle();
    t.expect(&["Started p0/c initial", "Started p1/c initial"]);
    assert_eq!(t.cached("p1/c"), "Running error");
    assert!(t.cache["p1"].as_of.is_some() && t.cache["p1"].inspected.is_none());
    let p0 = t.status("p0");

    t.node.heal_status("p1/c");
    t.forget();
    t.pass(2_000);
    assert_eq!(sorted(&mut t), ["PodSync p1"]);
    assert_eq!(t.count("status p1/c"), 1);
    assert_eq!(t.cached("p1/c"), "Running");
    assert!(t.cache["p1"].inspected.is_some());
    assert!(Arc::ptr_eq(&t.status("p0"), &p0), "p0 was left alone");
}

/// G14, TestRunningPodAndContainerCount: P1 with containers R, U, U and sandboxes R, R, U; P2 with a container E and
/// sandboxes R, E. A pod counts once, however many of its sandboxes are ready.
#[test]
fn g14_running_pods_and_containers_are_counted() {
    let states = [
        ("p1/c1", Running),
        ("p1/c2", Unknown),
        ("p1/c3", Unknown),
        ("p1/s1", Running),
        ("p1/s2", Running),
        ("p1/s3", Unknown),
        ("p2/c1", Exited),
        ("p2/s1", Running),
        ("p2/s2", Exited),
    ];
    let t = listed(states.map(|(id, shown)| report(id, shown)));
    let counts = t.core.state_counts();
    assert_eq!((counts.running_pods, counts.running), (2, 1));
    assert_eq!((counts.created, counts.exited, counts.unknown), (0, 1, 2));
}
