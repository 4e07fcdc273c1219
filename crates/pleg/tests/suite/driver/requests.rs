//! Tests `request_relist`, `request_reinspect` and `relist_now`: each starts its read at once and returns the result.

use futures::FutureExt as _;
use pleg::RelistError;
use pleg::core::CallErrorKind;

use crate::support::{
    FakeRuntime, MINUTE, MS, Op, SECOND, drain, error, exited, failed_read, is_now, pass, rarely,
    soon, synced, waiting,
};

/// A relist of a pod announces changes. A reinspection without changes announces PodSync. Both work
/// for an unknown uid.
#[tokio::test(start_paused = true)]
async fn requested_relist_or_reinspection_of_a_pod_reads_that_pod() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, rarely()).await;
    let mut subscription = pleg.subscribe();
    let lists = node.count(&Op::List);
    pass(&pleg, SECOND).await;
    node.put(exited("p", "c", 1));
    let view = soon(pleg.request_relist(&"p".into())).await.unwrap();
    assert!(is_now(&pleg, view.as_of));
    assert_eq!(drain(&mut subscription), ["p Died p-c"]);
    soon(pleg.request_relist(&"p".into())).await.unwrap();
    assert_eq!(drain(&mut subscription), [""; 0]);
    soon(pleg.request_reinspect(&"p".into())).await.unwrap();
    assert_eq!(drain(&mut subscription), ["p PodSync"]);
    node.delay(Op::status("p-c"), 500 * MS);
    let uid = "p".into();
    let given_up = tokio::time::timeout(100 * MS, pleg.request_reinspect(&uid));
    assert!(given_up.await.is_err());
    pass(&pleg, SECOND).await;
    assert_eq!(drain(&mut subscription), ["p PodSync"], "it is made");
    for view in [
        soon(pleg.request_relist(&"new".into())).await.unwrap(),
        soon(pleg.request_reinspect(&"new".into())).await.unwrap(),
    ] {
        assert!(!view.status.exists());
        assert!(is_now(&pleg, view.as_of));
    }
    assert_eq!(node.count(&Op::List), lists, "no full list for that");
}

/// `relist_now` lists the whole node at once, even if its future is dropped, and returns the error if the list fails.
#[tokio::test(start_paused = true)]
async fn relist_now_updates_the_cache_or_returns_the_lists_error() {
    let node = FakeRuntime::new();
    let pleg = synced(&node, rarely()).await;
    let mut subscription = pleg.subscribe();
    pass(&pleg, SECOND).await;
    let (at, lists) = (pleg.now(), node.count(&Op::List));
    node.run_pod("p");
    soon(pleg.relist_now()).await.unwrap();
    assert!(is_now(&pleg, Some(at)));
    assert_eq!(node.count(&Op::List), lists + 1);
    assert_eq!(pleg.snapshot().len(), 1, "what it showed is in the cache");
    pass(&pleg, MS).await;
    assert_eq!(drain(&mut subscription), ["p Started p-s", "p Started p-c"]);
    let given_up = pleg.relist_now().now_or_never();
    pass(&pleg, MS).await;
    assert!(given_up.is_none());
    assert_eq!(node.count(&Op::List), lists + 2);
    node.fail(Op::List, CallErrorKind::Unavailable);
    let failed = soon(pleg.relist_now()).await;
    let why = error("ListPodSandbox", CallErrorKind::Unavailable);
    assert_eq!(failed, Err(RelistError::Failed(why)));
    assert_eq!(pleg.snapshot().len(), 1, "a failed list says nothing");
}

/// A pod read in flight answers only the request that caused it. Later requests and waiters share the next read.
#[tokio::test(start_paused = true)]
async fn requests_made_before_a_read_share_that_read() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, rarely()).await;
    let mut subscription = pleg.subscribe();
    let reads = node.count(&Op::pod("p"));
    node.hang(Op::pod("p"));
    let request = |reinspect: bool| {
        let pleg = pleg.clone();
        tokio::spawn(async move {
            let uid = "p".into();
            if reinspect {
                pleg.request_reinspect(&uid).await
            } else {
                pleg.request_relist(&uid).await
            }
        })
    };
    let first = request(false);
    pass(&pleg, MS).await;
    let now = pleg.now();
    let mut later: Vec<_> = (0..20).map(|n| request(n % 2 == 0)).collect();
    later.push(waiting(&pleg, "p", now, MINUTE).await);
    assert_eq!(node.count(&Op::pod("p")) - reads, 1);
    node.release(&Op::pod("p"));
    assert!(soon(first).await.unwrap().unwrap().as_of < Some(now));
    for answer in later {
        assert!(soon(answer).await.unwrap().unwrap().as_of >= Some(now));
    }
    assert_eq!(node.count(&Op::pod("p")) - reads, 2);
    assert_eq!(drain(&mut subscription), ["p PodSync"]);
    // A request whose read fails returns the error.
    node.fail(Op::pod("p"), CallErrorKind::Failed);
    let (why, _) = failed_read(soon(request(true)).await.unwrap());
    assert_eq!(why.kind, CallErrorKind::Failed);
}
