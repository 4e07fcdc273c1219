//! `newer_than`: which read answers a waiter, and what never answers it.

use std::time::Duration;

use pleg::core::{CallErrorKind, EventType, Instant, PodUid, ReportedState, Settings};
use pleg::{Pleg, WaitError};

use crate::support::{
    FakeRuntime, MINUTE, MS, Op, SECOND, container, exited, is_now, pass, rarely, soon, synced,
    until, waiting,
};

/// A generator of a node with one running pod that was read a second ago.
async fn one_pod(settings: Settings) -> (FakeRuntime, Pleg, PodUid) {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, settings).await;
    pass(&pleg, 900 * MS).await;
    (node, pleg, "p".into())
}

/// The answer is from a read of the pod begun after the instant.
#[tokio::test(start_paused = true)]
async fn newer_than_is_answered_by_a_read() {
    for settings in [Settings::default(), rarely()] {
        let (node, pleg, uid) = one_pod(settings).await;
        let reads = node.count(&Op::pod("p"));
        node.put(exited("p", "c", 5));
        let after = pleg.now();
        let view = soon(pleg.newer_than(&uid, after, SECOND)).await.unwrap();
        assert_eq!(
            view.status.container("c").unwrap().details.exit_code,
            Some(5)
        );
        assert!(view.as_of >= Some(after));
        // The sandbox has not changed: its status was not read again.
        assert!(view.inspected < view.as_of);
        assert_eq!(node.count(&Op::pod("p")) - reads, 1);
        // A second caller with the same instant is answered from the cache, at once.
        let before = Instant::from_nanos(after.as_nanos() - 1);
        assert_eq!(
            soon(pleg.newer_than(&uid, before, SECOND)).await.unwrap(),
            view
        );
        assert_eq!(node.count(&Op::pod("p")) - reads, 1);
    }
}

/// Invariant 4: no event satisfies a waiter, not even one that reports a removal.
#[tokio::test(start_paused = true)]
async fn event_answers_no_waiter() {
    let (node, pleg, uid) = one_pod(Settings::default()).await;
    // No read of any kind answers now.
    node.hang(Op::pod("p"));
    node.hang(Op::List);
    let after = pleg.now();
    let waits = waiting(&pleg, "p", after, MINUTE).await;
    node.put_and_emit(exited("p", "c", 0), EventType::Stopped);
    until(&pleg, || {
        pleg.get(&uid)
            .status
            .active_containers()
            .all(|c| c.details.exit_code == Some(0))
    })
    .await;
    assert!(
        pleg.get(&uid).as_of <= Some(after),
        "and makes nothing fresher"
    );
    for id in ["p-c", "p-s"] {
        node.remove_and_emit(id);
    }
    pass(&pleg, SECOND).await;
    assert!(!waits.is_finished());
    assert!(!pleg.get(&uid).status.is_nothing(), "only reads remove");
    assert!(pleg.get(&uid).as_of <= Some(after));
    node.release(&Op::pod("p"));
    let view = soon(waits).await.unwrap().unwrap();
    assert!(view.status.is_nothing() && view.as_of >= Some(after));
}

/// One read answers all waiters that asked before it began. It does not answer a waiter that asked
/// later.
#[tokio::test(start_paused = true)]
async fn waiters_share_a_read() {
    let (node, pleg, _) = one_pod(rarely()).await;
    let reads = node.count(&Op::pod("p"));
    node.hang(Op::pod("p"));
    let after = pleg.now();
    pass(&pleg, MS).await;
    let first = waiting(&pleg, "p", after, MINUTE).await;
    let second = waiting(&pleg, "p", after, MINUTE).await;
    let now = pleg.now();
    let third = waiting(&pleg, "p", now, MINUTE).await;
    assert_eq!(
        node.count(&Op::pod("p")) - reads,
        1,
        "at most one of a pod is in flight"
    );
    node.release(&Op::pod("p"));
    let [first, second, third] = [
        soon(first).await.unwrap().unwrap(),
        soon(second).await.unwrap().unwrap(),
        soon(third).await.unwrap().unwrap(),
    ];
    assert_eq!(first.as_of, second.as_of);
    assert!(first.as_of > Some(after) && first.as_of < Some(now));
    assert!(third.as_of >= Some(now));
    assert_eq!(node.count(&Op::pod("p")) - reads, 2);
}

/// An unknown uid is read like any other: the answer is that the pod does not exist, or what the
/// node has that no list has shown yet.
#[tokio::test(start_paused = true)]
async fn unknown_uid_is_read() {
    let (node, pleg, _) = one_pod(rarely()).await;
    let after = pleg.now();
    let view = soon(pleg.newer_than(&"new".into(), after, SECOND))
        .await
        .unwrap();
    assert!(view.status.is_nothing() && view.as_of >= Some(after));
    assert_eq!(view.status.uid.as_str(), "new");
    pass(&pleg, MS).await;
    node.run_pod("new");
    let after = pleg.now();
    let view = soon(pleg.newer_than(&"new".into(), after, SECOND))
        .await
        .unwrap();
    assert_eq!(
        (view.status.sandboxes.len(), view.status.containers.len()),
        (1, 1)
    );
    assert_eq!(pleg.get(&"new".into()), view);
}

/// For an instant in the future the pod is read when the instant comes, not before.
#[tokio::test(start_paused = true)]
async fn waiter_for_a_future_instant_is_read_for_at_that_instant() {
    let (node, pleg, uid) = one_pod(rarely()).await;
    let reads = node.count(&Op::pod("p"));
    let after = pleg.now().after(5 * SECOND);
    let view = soon(pleg.newer_than(&uid, after, MINUTE)).await.unwrap();
    assert!(view.as_of > Some(after) && is_now(&pleg, Some(after)));
    assert_eq!(node.count(&Op::pod("p")) - reads, 1);
}

/// The waiter gets the error of its own read, with the last good view. For the next waiter the pod
/// is read again without waiting for the backoff.
#[tokio::test(start_paused = true)]
async fn failed_read_answers_with_the_last_good_view() {
    let (node, pleg, uid) = one_pod(rarely()).await;
    let good = pleg.get(&uid);
    node.fail(Op::pod("p"), CallErrorKind::Failed);
    let after = pleg.now();
    let Err(WaitError::Read {
        error: why,
        last_good,
    }) = soon(pleg.newer_than(&uid, after, MINUTE)).await
    else {
        panic!("the read failed");
    };
    assert_eq!(why.kind, CallErrorKind::Failed);
    assert_eq!(last_good.status.containers, good.status.containers);
    assert_eq!(last_good.as_of, good.as_of);
    assert_eq!(pleg.get(&uid).status.error, Some(why.into()));
    assert!(is_now(&pleg, Some(after)), "nothing was waited for");

    node.succeed(&Op::pod("p"));
    node.put(container("p", "c2", ReportedState::Running));
    let view = soon(pleg.newer_than(&uid, pleg.now(), MINUTE))
        .await
        .unwrap();
    assert!(is_now(&pleg, Some(after)), "nor now");
    assert_eq!(
        (view.status.error.as_deref(), view.status.containers.len()),
        (None, 2)
    );
}

/// All waiters are answered at once when the generator shuts down.
#[tokio::test(start_paused = true)]
async fn shutdown_ends_all_waits() {
    let (node, pleg, uid) = one_pod(rarely()).await;
    node.hang(Op::pod("p"));
    node.hang(Op::List);
    let future = pleg.now().after(MINUTE);
    let now = pleg.now();
    let waits = [
        waiting(&pleg, "p", now, MINUTE).await,
        waiting(&pleg, "p", future, 5 * MINUTE).await,
        waiting(&pleg, "q", future, 5 * MINUTE).await,
        waiting(&pleg, "r", Instant::from_nanos(u64::MAX), Duration::MAX).await,
    ];
    let (p, u) = (pleg.clone(), uid.clone());
    let relist = tokio::spawn(async move { p.request_relist(&u).await });
    let p = pleg.clone();
    let list = tokio::spawn(async move { p.relist_now().await });
    pass(&pleg, MS).await;
    let at = pleg.now();
    soon(pleg.shutdown()).await;
    for waits in waits {
        assert_eq!(soon(waits).await.unwrap(), Err(WaitError::Closed));
    }
    assert_eq!(soon(relist).await.unwrap(), Err(WaitError::Closed));
    assert_eq!(soon(list).await.unwrap(), Err(pleg::RelistError::Closed));
    // So are later callers.
    let late = pleg.newer_than(&uid, pleg.now(), MINUTE).await;
    assert_eq!(late, Err(WaitError::Closed));
    assert!(is_now(&pleg, Some(at)), "at once");
    assert!(
        !pleg.get(&uid).status.is_nothing(),
        "the cache is still there"
    );
}
