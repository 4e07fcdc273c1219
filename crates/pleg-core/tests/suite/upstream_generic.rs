//! Upstream's scenarios of the generic PLEG, G1 to G10 and G12 to G14 (generic_test.go of
//! Kubernetes 1.36.2), on the reconciler in `Polling` mode. If an invariant requires another
//! result, the deviation is described beside the test, and the test asserts our result. G11 and G19
//! are in upstream_reinspection.rs, G15 to G18 in upstream_worker_loop.rs.
//!
//! In all of them: upstream's tests use the container id c1 in two pods; here ids are unique on the
//! node, as a runtime's ids are. For each id the script checks the order (Started, Died, Removed)
//! and, at each announcement, that the cache shows it already.
use std::sync::Arc;
use std::time::Duration;

use pleg_core::ReportedState::{Created, Exited, Running, Unknown};
use pleg_core::{ContainerState, Inbox, Kind, PodLifecycleEvent, Report, ReportedState, Source};

use crate::script::{Script, exited, failure, in_short, sandbox, status, with_ips};

/// How an id is made: [`status`] or [`sandbox`].
type Make = fn(&str, &str, ReportedState) -> Report;

/// The node of G1: P1 {c1 Exited, c2 Running, c3 Unknown}, P2 {c1 Exited}.
fn first(make: Make) -> Vec<Report> {
    vec![
        make("p1.c1", "p1", Exited),
        make("p1.c2", "p1", Running),
        make("p1.c3", "p1", Unknown),
        make("p2.c1", "p2", Exited),
    ]
}

/// The node of G3: P1 {c2 Exited, c3 Running}, P2 {c4 Running}.
fn second(make: Make) -> Vec<Report> {
    vec![
        make("p1.c2", "p1", Exited),
        make("p1.c3", "p1", Running),
        make("p2.c4", "p2", Running),
    ]
}

/// Deviation: upstream generates ContainerChanged for c3 and never sends it. Invariant 2 announces
/// an UNKNOWN that an inspection has confirmed, once, as ContainerChanged with a PodSync.
const FIRST: [&str; 5] = [
    "p1 Changed p1.c3",
    "p1 Died p1.c1",
    "p1 PodSync",
    "p1 Started p1.c2",
    "p2 Died p2.c1",
];

const SECOND_TIME: [&str; 5] = [
    "p1 Died p1.c2",
    "p1 Removed p1.c1",
    "p1 Started p1.c3",
    "p2 Removed p2.c1",
    "p2 Started p2.c4",
];

/// G1, TestRelisting: the first relist of running, exited and unknown containers.
#[test]
fn g1_the_first_relist_announces_what_runs_and_what_has_ended() {
    let mut t = Script::polling(|_| ());
    t.node = first(status);
    t.next_list();
    assert_eq!(t.take_announced(), FIRST);

    // Upstream's unknown is also the CRI's CREATED. Deviation: such a container is announced as
    // ContainerChanged, without a PodSync; the adapter with upstream's semantics drops it.
    let mut t = Script::polling(|_| ());
    t.node = vec![status("c3", "p1", Created)];
    t.next_list();
    assert_eq!(t.take_announced(), ["p1 Changed c3"]);
}

/// G2, TestRelisting: the same node relisted again gives no events.
#[test]
fn g2_a_relist_that_shows_nothing_new_announces_nothing() {
    let mut t = Script::polled(first(status));
    for _ in 0..3 {
        t.next_list();
        assert!(t.take_announced().is_empty());
    }
    // P2, where everything is known, causes no inspection. Deviation: P1 does, because invariant 2
    // requires that an UNKNOWN is inspected again, with backoff; upstream waits until its state
    // changes.
    let inspected = t.take_requested_of_pods();
    assert!(
        inspected.iter().all(|i| i == "p1 (unknown)"),
        "{inspected:?}"
    );
    assert!(!inspected.is_empty());
}

/// G3, TestRelisting: one container gone, one ended, one started, and another pod's replaced.
#[test]
fn g3_the_second_relist_announces_what_has_changed() {
    let mut t = Script::polled(first(status));
    t.node = second(status);
    t.next_list();
    assert_eq!(t.take_announced(), SECOND_TIME);
    assert_eq!(
        t.get("p1").status.container("p1.c3").unwrap().state,
        ContainerState::Running
    );
}

/// G4, TestEventChannelFull: five events for a channel of four; exactly four arrive. Here for the
/// inbox of a subscription; the adapter with upstream's channel is tested in `pleg`,
/// tests/suite/upstream_fifo.rs.
///
/// Deviation: invariant 9. Events beyond the bound are coalesced per id, and no Died or Removed is
/// lost.
#[test]
fn g4_a_full_inbox_loses_nothing_terminal() {
    let mut t = Script::polling(|_| ());
    let mut inbox = Inbox::new(4);
    let drain = |inbox: &mut Inbox| {
        let mut got: Vec<_> = std::iter::from_fn(|| inbox.pop())
            .map(|e| in_short(&e))
            .collect();
        got.sort();
        got
    };
    let feed = |t: &mut Script, inbox: &mut Inbox| {
        t.next_list();
        t.events.drain(..).for_each(|event| inbox.push(event));
    };
    t.node = first(status);
    feed(&mut t, &mut inbox);
    drain(&mut inbox);
    // Five more: no event has overtaken another, so all five wait.
    t.node = second(status);
    feed(&mut t, &mut inbox);
    assert_eq!(inbox.len(), 5);
    // Then the ends of all running containers, and one more event: the two overtaken Started are
    // dropped, and every end is kept.
    t.node = vec![status("p3.c1", "p3", Running)];
    feed(&mut t, &mut inbox);
    let waiting = [
        "p1 Died p1.c2",
        "p1 Died p1.c3",
        "p1 Removed p1.c1",
        "p1 Removed p1.c2",
        "p1 Removed p1.c3",
        "p2 Died p2.c4",
        "p2 Removed p2.c1",
        "p2 Removed p2.c4",
        "p3 Started p3.c1",
    ];
    assert_eq!(inbox.take_missed(), None);
    assert_eq!(drain(&mut inbox), waiting);
    assert_eq!(inbox.coalesced(), 2);
}

/// G5, TestDetectingContainerDeaths/containers: of three containers two vanish, after one relist
/// and after three.
#[test]
fn g5_containers_no_longer_listed_have_died_and_are_removed() {
    for relists in [1, 3] {
        let mut t = Script::polling(|_| ());
        t.node = vec![
            status("c1", "p", Running),
            status("c2", "p", Running),
            status("c3", "p", Exited),
        ];
        (0..relists).for_each(|_| t.next_list());
        assert_eq!(
            t.take_announced(),
            ["p Died c3", "p Started c1", "p Started c2"]
        );
        t.node.truncate(1);
        t.next_list();
        assert_eq!(
            t.take_announced(),
            ["p Died c2", "p Removed c2", "p Removed c3"]
        );
    }
}

/// G6, TestDetectingContainerDeaths/pods: the whole pod vanishes, after one relist and after
/// three.
#[test]
fn g6_containers_of_a_pod_no_longer_listed_have_died_and_are_removed() {
    for relists in [1, 3] {
        let mut t = Script::polling(|_| ());
        t.node = vec![status("c2", "p", Running)];
        (0..relists).for_each(|_| t.next_list());
        t.take_announced();
        t.node.clear();
        t.next_list();
        assert_eq!(t.take_announced(), ["p Died c2", "p Removed c2"]);
    }
}

/// G7, TestRelistWithCache: of two running pods one cannot be inspected.
///
/// Deviation: upstream caches (empty status, error) for P1 and announces nothing until it can be
/// inspected. Invariant 11: the listed state of P1 stays beside the error. A state learned from a
/// list row is announced after its first inspection, successful or failed.
///
/// G8, ″: the next relists inspect P1 alone, successfully.
///
/// Deviation: upstream announces P1's Started only now. Here it was announced before, so there is a
/// PodSync: the pod can be inspected again. The retry follows a backoff of 1 s, not the relist.
#[test]
fn g7_g8_pod_that_cannot_be_inspected_keeps_its_error_and_is_retried() {
    let mut t = Script::polling(|_| ());
    t.node = vec![status("c0", "p0", Running), status("c1", "p1", Running)];
    t.failing.insert("p1".into(), failure("no status"));
    t.next_list();
    assert_eq!(t.take_announced(), ["p0 Started c0", "p1 Started c1"]);
    assert_eq!(t.take_requested_of_pods(), ["p0 (changed)", "p1 (changed)"]);
    let (p0, p1) = (t.get("p0"), t.get("p1"));
    assert_eq!(
        (p0.status.error.clone(), p0.status.containers.len()),
        (None, 1)
    );
    assert_eq!(p1.status.error, Some(failure("no status").into()));
    assert_eq!(
        p1.status.container("c1").unwrap().state,
        ContainerState::Running
    );
    assert_eq!(
        (p1.as_of, p1.inspected),
        (None, None),
        "no freshness from a failed read"
    );

    t.failing.clear();
    t.run(2_000);
    assert_eq!(t.take_announced(), ["p1 PodSync"]);
    assert_eq!(t.take_requested_of_pods(), ["p1 (retry)"]);
    let view = t.get("p1");
    assert_eq!(view.status.error, None);
    assert!(view.as_of.is_some() && view.inspected.is_some());
    assert!(
        Arc::ptr_eq(&t.get("p0").status, &p0.status),
        "P0 was left alone"
    );
}

/// G9, TestRemoveCacheEntry: a pod that the list no longer shows is out of the cache.
#[test]
fn g9_a_removed_pod_leaves_an_empty_answer() {
    let mut t = Script::polled(vec![status("c", "p", Running)]);
    t.node.clear();
    t.next_list();
    for _ in 0..2 {
        let status = t.get("p").status;
        assert!(status.is_nothing());
        assert_eq!((status.uid.as_str(), &status.error), ("p", &None));
        t.next_list();
    }
}

/// G10, TestHealthy: unhealthy before the first relist and 10 min without one; healthy 1 min after
/// one; unhealthy when the threshold has passed.
#[test]
fn g10_healthy_means_listed_recently() {
    let mut t = Script::polling(|_| ());
    let ready = |t: &Script| t.ready().map_err(|why| why.to_string());
    let never = Err("pleg has yet to be successful".to_owned());
    assert_eq!(ready(&t), never);
    // The first list does not answer. Here it has a deadline, and the time-out is reported first.
    t.pass(600_000);
    let why = ready(&t).expect_err("nothing was listed");
    assert!(why.starts_with("pleg's work is overdue"), "{why}");

    // Time counts from the begin of the last list, as upstream's.
    t = Script::polling(|_| ());
    t.next_list();
    let last = t.health().last_list.expect("it was listed");
    let ready_after = |minutes: u64| {
        let now = last.after(Duration::from_secs(60 * minutes));
        let mut health = t.machine.health(now);
        // With a writer that has done its work until then.
        health.due = now;
        health.ready(now).map_err(|why| why.to_string())
    };
    assert_eq!(ready_after(1), Ok(()));
    assert_eq!(
        ready_after(3),
        Ok(()),
        "the threshold itself is not over it"
    );
    let stale = "pleg was last seen active 4m0s ago; threshold is 3m0s";
    assert_eq!(ready_after(4), Err(stale.to_owned()));
}

/// G12, TestRelistingWithSandboxes: G1 and G3 with sandboxes instead of containers. (Upstream's
/// check of the second relist checks nothing.)
#[test]
fn g12_sandboxes_are_announced_like_containers() {
    let mut t = Script::polling(|_| ());
    t.node = first(sandbox);
    t.next_list();
    let of_sandbox =
        |e: &PodLifecycleEvent| e.subject.as_ref().is_none_or(|s| s.kind == Kind::Sandbox);
    assert!(t.events.iter().all(of_sandbox));
    assert_eq!(t.take_announced(), FIRST);
    t.next_list();
    assert!(t.take_announced().is_empty());
    t.node = second(sandbox);
    t.next_list();
    assert_eq!(t.take_announced(), SECOND_TIME);
}

/// G13, TestRelistIPChange: a pod runs with addresses; then its container has exited and its status
/// shows no addresses and no sandbox: the cache keeps the earlier addresses.
#[test]
fn g13_a_pod_that_ended_keeps_its_addresses() {
    let ended = exited("c", "p", 7, "Error");
    for had in [&["10.0.0.1"][..], &["10.0.0.1", "fd00::1"]] {
        for (left, said) in [
            (None, ["p Died c", "p Died s", "p Removed s"].as_slice()),
            (Some(sandbox("s", "p", Exited)), &["p Died c", "p Died s"]),
        ] {
            let mut t = Script::polling(|_| ());
            t.node = vec![
                with_ips(sandbox("s", "p", Running), had),
                status("c", "p", Running),
            ];
            t.next_list();
            assert_eq!(t.take_announced(), ["p Started c", "p Started s"]);
            let addresses = |t: &Script| t.get("p").status.ips.clone();
            assert_eq!(
                addresses(&t).iter().map(|ip| &**ip).collect::<Vec<_>>(),
                had
            );
            t.node = left.into_iter().chain([ended.clone()]).collect();
            t.next_list();
            let died = t.events.iter().find(|e| in_short(e) == "p Died c").cloned();
            assert_eq!(t.take_announced(), said);
            assert_eq!(
                addresses(&t).iter().map(|ip| &**ip).collect::<Vec<_>>(),
                had
            );
            // In addition to upstream's: Died waits for the inspection and carries the exit code.
            let died = died.unwrap();
            assert_eq!(died.subject.as_ref().unwrap().exit_code, Some(7));
            assert_eq!(died.source, Source::Relist);
        }
    }
}

/// G14, TestRunningPodAndContainerCount: P1 with containers R, U, U and sandboxes R, R, U; P2 with
/// a container E and sandboxes R, E. A pod counts once, however many of its sandboxes are ready.
#[test]
fn g14_running_pods_and_containers_are_counted() {
    let t = Script::polled(vec![
        status("p1.c1", "p1", Running),
        status("p1.c2", "p1", Unknown),
        status("p1.c3", "p1", Unknown),
        sandbox("p1.s1", "p1", Running),
        sandbox("p1.s2", "p1", Running),
        sandbox("p1.s3", "p1", Unknown),
        status("p2.c1", "p2", Exited),
        sandbox("p2.s1", "p2", Running),
        sandbox("p2.s2", "p2", Exited),
    ]);
    let state_counts = t.machine.state_counts();
    assert_eq!(
        (
            state_counts.exited,
            state_counts.running,
            state_counts.unknown,
            state_counts.created
        ),
        (1, 1, 2, 0)
    );
    assert_eq!(state_counts.running_pods, 2);
}
