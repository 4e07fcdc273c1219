//! Upstream's scenarios of the pod cache, K1 to K8 (container/cache_test.go of Kubernetes 1.36.2), through the public
//! API. Upstream's tests change the cache directly. Here the generator changes it after a read of the fake runtime:
//! `Set` is a read of the pod (`request_relist`), `UpdateTime` a full list (`relist_now`), `Delete` a list without the
//! pod.
//!
//! Deviation (invariant 5 of `docs/invariants.md`): upstream's waiter blocks until another source updates the cache. A
//! waiter here causes a read of its pod; so that it blocks, these tests let reads hang.
use crate::support::{
    FakeRuntime, MINUTE, MS, Op, SECOND, failed_read, is_now, is_soon_after, pass, rarely, ready,
    running, soon, started, synced, waiting, with_ips,
};
use pleg::core::{CallErrorKind, ContainerState, Instant, PodUid};
use pleg::{Pleg, WaitError};

/// Upstream's `getIfNewerThan`: the cached view, if it is newer than `after`. If it is older, `newer_than` reads the
/// pod and returns the new view, unless the test makes reads of the pod hang.
async fn if_newer_than(pleg: &Pleg, uid: &PodUid, after: Instant) -> Option<pleg::core::PodView> {
    match pleg.newer_than(uid, after, MS).await {
        Ok(view) => Some(view),
        Err(WaitError::DeadlineExceeded { .. }) => None,
        Err(other) => panic!("{other}"),
    }
}

fn just_before(at: Instant) -> Instant {
    Instant::from_nanos(at.as_nanos() - 1)
}

/// Upstream's K1, TestCacheNotInitialized: while the cache has no global timestamp (the time of the last list), no
/// status is newer than any time, not even than the zero time.
#[tokio::test(start_paused = true)]
async fn uninitialized_cache_answers_a_waiter_only_after_a_read() {
    let node = FakeRuntime::new();
    node.hang(Op::List);
    node.hang(Op::pod("p"));
    let pleg = started(&node, rarely());
    let uid = PodUid::from("p");
    assert_eq!(if_newer_than(&pleg, &uid, Instant::ORIGIN).await, None);
    let view = pleg.get(&uid);
    assert!(!view.status.exists());
    assert_eq!(view.details_as_of, None);
    // Deviation (invariant 5): the waiter has caused a read of the pod, which proves the status of the pod although no
    // list has succeeded.
    node.release(&Op::pod("p"));
    let view = soon(pleg.newer_than(&uid, Instant::ORIGIN, MINUTE))
        .await
        .unwrap();
    assert!(!view.status.exists() && view.as_of > Some(Instant::ORIGIN));
    assert_eq!(pleg.health().current().last_list, None);
}

/// Upstream's K2, TestGetIfNewerThanWhenPodExists: the status of a pod is newer than t if the last list and the last
/// change of the pod are at (t+1, t), (t+1, t−10) or (t−1, t+3), but not if they are at (t−1, t−1).
///
/// Deviation: where upstream answers no, this generator reads the pod.
#[tokio::test(start_paused = true)]
async fn pod_is_read_unless_its_status_is_newer_than_requested() {
    for (global, modified, newer) in [(1, 0, true), (1, -10, true), (-1, 3, true), (-1, -1, false)]
    {
        let case = format!("list at t{global:+}, inspection at t{modified:+}");
        let node = FakeRuntime::new();
        node.run_pod("p");
        let pleg = synced(&node, rarely()).await;
        let uid = PodUid::from("p");
        let mut t = Instant::ORIGIN;
        pass(&pleg, SECOND).await;
        for ms in -20..20 {
            if ms == global {
                soon(pleg.relist_now()).await.unwrap();
            }
            if ms == modified {
                soon(pleg.request_relist(&uid)).await.unwrap();
            }
            if ms == 0 {
                t = pleg.now();
            }
            pass(&pleg, MS).await;
        }
        let reads = node.count(&Op::pod("p"));
        node.hang(Op::pod("p"));
        let view = if_newer_than(&pleg, &uid, t).await;
        assert_eq!(view.is_some(), newer, "{case}");
        assert_eq!(
            node.count(&Op::pod("p")) - reads,
            usize::from(!newer),
            "{case}"
        );
        if let Some(view) = view {
            assert!(view.as_of > Some(t), "{case}");
            assert_eq!(view.status.uid, uid);
        } else {
            node.release(&Op::pod("p"));
            assert!(
                soon(pleg.newer_than(&uid, t, SECOND)).await.is_ok(),
                "{case}"
            );
        }
    }
}

/// Upstream's K3, TestGetPodNewerThanWhenPodDoesNotExist: if t is before the last list, an unknown pod has the default
/// status; if t is after it, the call blocks.
///
/// Deviation: where upstream blocks until the next list, this generator reads the pod.
#[tokio::test(start_paused = true)]
async fn unknown_pod_is_read_unless_list_is_newer_than_requested() {
    let node = FakeRuntime::new();
    let pleg = synced(&node, rarely()).await;
    let global = pleg.health().current().last_list.expect("it was listed");
    let uid = PodUid::from("nobody");
    node.hang(Op::pod("nobody"));
    let view = if_newer_than(&pleg, &uid, just_before(global))
        .await
        .expect("the default");
    assert!(!view.status.exists());
    assert_eq!(
        (view.status.uid.as_str(), view.as_of),
        ("nobody", Some(global))
    );
    assert_eq!(node.count(&Op::pod("nobody")), 0);

    pass(&pleg, SECOND).await;
    let after = Instant::from_nanos(global.as_nanos() + 1);
    assert_eq!(if_newer_than(&pleg, &uid, after).await, None);
    assert_eq!(node.count(&Op::pod("nobody")), 1);
    node.release(&Op::pod("nobody"));
    let view = soon(pleg.newer_than(&uid, after, MINUTE)).await.unwrap();
    assert!(!view.status.exists() && view.as_of > Some(after));
    // A pod that no list has shown.
    node.run_pod("nobody");
    let read = pleg.newer_than(&uid, pleg.now(), MINUTE);
    let view = soon(read).await.unwrap();
    assert_eq!(view.status.containers.len(), 1);
    assert_eq!(pleg.get(&uid), view);
}

/// Upstream's K4, TestCacheSetAndGet: status and error are stored unchanged, even together, even with a zero time.
///
/// Deviation (invariant 11): an error never replaces a status; the last good status stays.
#[tokio::test(start_paused = true)]
async fn cache_returns_status_and_error_together() {
    let node = FakeRuntime::new();
    node.put(with_ips(ready("p"), &["10.0.0.1"]));
    node.put(running("p", "c"));
    node.fail(Op::pod("p"), CallErrorKind::Failed);
    let pleg = synced(&node, rarely()).await;
    let uid = PodUid::from("p");
    // The status has the error of the failed read; the container's state comes from the rows of a list.
    let view = pleg.get(&uid);
    let error = view.status.error.as_ref().unwrap();
    assert_eq!(error.kind, CallErrorKind::Failed);
    let state = view.status.container("c").unwrap().state;
    assert_eq!(state, ContainerState::Running);
    assert_eq!(view.details_as_of, None);
    // This read gives a status without an error. It asks for details, because a read without details would not repeat
    // the status calls before their retry is due.
    node.succeed(&Op::pod("p"));
    let good = soon(pleg.request_reinspect(&uid)).await.unwrap();
    assert_eq!(pleg.get(&uid), good);
    assert_eq!(good.status.error, None);
    assert_eq!(good.status.ips.len(), 1);
    // The same status, now with an error.
    pass(&pleg, SECOND).await;
    node.fail(Op::pod("p"), CallErrorKind::Unavailable);
    let after = pleg.now();
    let answer = soon(pleg.newer_than(&uid, after, MINUTE)).await;
    let (why, last_good) = failed_read(answer);
    assert_eq!(why.kind, CallErrorKind::Unavailable);
    let view = pleg.get(&uid);
    assert_eq!(view.status.error, Some(why.into()));
    for view in [view, last_good] {
        assert_eq!(view.status.containers, good.status.containers);
        assert_eq!(view.status.ips, good.status.ips);
        let times = (view.as_of, view.details_as_of);
        assert_eq!(
            times,
            (good.as_of, good.details_as_of),
            "no fresher for that"
        );
    }
    // The next waiter's read does not wait for the back-off.
    node.succeed(&Op::pod("p"));
    let answer = soon(pleg.newer_than(&uid, pleg.now(), MINUTE)).await;
    assert_eq!(answer.unwrap().status.error, None);
    assert!(is_now(&pleg, Some(after)));
}

/// Upstream's K5, TestCacheGetPodDoesNotExist: an unknown pod has a default status with its uid, and no error.
#[tokio::test(start_paused = true)]
async fn unknown_pod_has_an_empty_status() {
    let node = FakeRuntime::new();
    let pleg = synced(&node, rarely()).await;
    let view = pleg.get(&"nobody".into());
    assert!(!view.status.exists());
    assert_eq!(
        (view.status.uid.as_str(), &view.status.error),
        ("nobody", &None)
    );
    assert!(pleg.snapshot().is_empty());
}

/// Upstream's K6, TestDelete: after its deletion, a pod has a default status with its uid.
#[tokio::test(start_paused = true)]
async fn deleted_pod_has_an_empty_status() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, rarely()).await;
    assert!(pleg.get(&"p".into()).status.exists());
    node.remove("p-c");
    node.remove("p-s");
    pass(&pleg, SECOND).await;
    soon(pleg.relist_now()).await.unwrap();
    let status = pleg.get(&"p".into()).status;
    assert!(!status.exists());
    assert_eq!((status.uid.as_str(), &status.error), ("p", &None));
    assert!(pleg.snapshot().is_empty());
}

/// Upstream's K7, TestRegisterNotification: if g is the time of the last list, a Set with the time g+1 notifies a
/// waiter for g+1, and UpdateTime(g+2) notifies another waiter.
///
/// Deviations (invariant 5): a read with the time t answers a waiter for t only if the read was issued after the waiter
/// registered; the waiter causes such a read. And a list answers no waiter whose own read is in flight.
#[tokio::test(start_paused = true)]
async fn waiter_is_answered_by_read_begun_at_the_requested_instant() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, rarely()).await;
    let at = pleg.now().after(SECOND);
    let waits = waiting(&pleg, "p", at, MINUTE).await;
    let view = soon(waits).await.unwrap().unwrap();
    assert!(is_soon_after(view.as_of.unwrap(), at), "begun then");
    assert!(is_now(&pleg, Some(at)));

    node.hang(Op::pod("p"));
    let at = pleg.now();
    let waits = waiting(&pleg, "p", at, MINUTE).await;
    soon(pleg.relist_now()).await.unwrap();
    assert!(pleg.health().current().last_list > Some(at));
    pass(&pleg, SECOND).await;
    assert!(!waits.is_finished(), "its own read is in flight");
    node.release(&Op::pod("p"));
    assert!(soon(waits).await.unwrap().unwrap().as_of >= Some(at));
}

/// Upstream's K8, TestGetNewerThan, five cases, with an existing or an unknown pod: a waiter waits for min = 10 s from
/// now. A Set, a SetObservedTime or an UpdateTime at min − 1 s leaves the waiter blocked; such a call at min + 1 s
/// unblocks it with the right id, and then a second call returns at once.
///
/// Deviations (invariant 5): the waiter's own read, which begins at min, unblocks the waiter. SetObservedTime is no
/// separate case here: a read of the pod is a Set, changed or not, and also works for a pod that does not exist.
#[tokio::test(start_paused = true)]
async fn waiter_for_a_future_instant_is_answered_at_that_instant() {
    for exists in [true, false] {
        for by_list in [true, false] {
            let case = format!("exists {exists}, by list {by_list}");
            let node = FakeRuntime::new();
            if exists {
                node.run_pod("p");
            }
            let pleg = synced(&node, rarely()).await;
            let uid = PodUid::from("p");
            let min = pleg.now().after(10 * SECOND);
            let waits = waiting(&pleg, "p", min, MINUTE).await;
            pass(&pleg, min.since(pleg.now()) - SECOND).await;
            let reads = node.count(&Op::pod("p"));
            if by_list {
                soon(pleg.relist_now()).await.unwrap();
            } else {
                soon(pleg.request_relist(&uid)).await.unwrap();
            }
            let reads = reads + usize::from(!by_list);
            pass(&pleg, 990 * MS).await;
            assert!(!waits.is_finished(), "{case}");
            assert_eq!(
                node.count(&Op::pod("p")),
                reads,
                "{case}: nothing is read before its time"
            );

            let view = soon(waits).await.unwrap().unwrap();
            assert!(is_now(&pleg, Some(min)), "{case}");
            assert_eq!(view.status.uid.as_str(), "p", "{case}");
            assert!(is_soon_after(view.as_of.unwrap(), min), "{case}");
            assert_eq!(view.status.exists(), exists, "{case}");
            assert_eq!(node.count(&Op::pod("p")), reads + 1, "{case}");
            // The cache answers at once, because a list at min + 1 s has shown if the pod exists.
            pass(&pleg, SECOND).await;
            soon(pleg.relist_now()).await.unwrap();
            node.hang(Op::pod("p"));
            let again = if_newer_than(&pleg, &uid, min).await.expect("at once");
            assert_eq!(again.status, view.status, "{case}");
            assert_eq!(node.count(&Op::pod("p")), reads + 1, "{case}");
        }
    }
}
