//! Tests callers that wait for a view, for the first list, or for the shutdown.

use std::time::Duration;

use pleg_core::{Instant, PodUid};
use shuttle_tokio::task::spawn;

use crate::error::WaitError;
use crate::interleavings::explore;
use crate::interleavings::node::{Node, generator};

const DEADLINE: Duration = Duration::from_secs(10);

/// A caller that has changed something and requests a newer view sees its change, even if other
/// callers change something and wait at the same time.
#[test]
fn newer_than_shows_the_change_that_its_caller_made() {
    explore(|| {
        shuttle::future::block_on(async {
            let node = Node::default();
            let (pleg, writer) = generator(&node);
            writer.spawn(&pleg);
            let consumers = ["a", "b", "c"].map(|id| {
                let (pleg, node) = (pleg.clone(), node.clone());
                spawn(async move {
                    let pod = if id == "c" { "q" } else { "p" };
                    let since = node.start(pod, id);
                    let view = pleg.newer_than(&pod.into(), since, DEADLINE).await;
                    let view = view.expect("an answer");
                    assert!(view.status.container(id).is_some(), "{id} in {view:?}");
                    assert!(view.as_of > Some(since));
                    // The cache also shows the container that `newer_than` has returned.
                    assert!(pleg.get(&pod.into()).status.container(id).is_some());
                })
            });
            for consumer in consumers {
                consumer.await.expect("a consumer");
            }
            pleg.shutdown().await;
        });
    });
}

/// A waiter gets `Closed` when the generator shuts down, even if it starts to wait during the shutdown.
#[test]
fn shutdown_ends_every_wait() {
    explore(|| {
        shuttle::future::block_on(async {
            let node = Node::default();
            let (pleg, writer) = generator(&node);
            writer.spawn(&pleg);
            let waits = spawn({
                let pleg = pleg.clone();
                async move {
                    // The requested instant is in the future, so no read answers the waiter.
                    let later = Instant::from_nanos(u64::MAX);
                    pleg.newer_than(&"p".into(), later, DEADLINE).await
                }
            });
            let asks = spawn({
                let pleg = pleg.clone();
                async move {
                    let read = pleg.request_relist(&"p".into()).await;
                    let listed = pleg.relist_now().await;
                    (read, listed)
                }
            });
            let synced = spawn({
                let pleg = pleg.clone();
                async move { pleg.wait_until_synced().await }
            });
            let subscribes = spawn({
                let mut subscription = pleg.subscribe();
                async move { while subscription.next().await.is_some() {} }
            });
            pleg.shutdown().await;
            assert!(matches!(waits.await.expect("one"), Err(WaitError::Closed)));
            asks.await.expect("one that asks").0.ok();
            synced.await.expect("one that waits to be synced").ok();
            subscribes.await.expect("a subscriber");
        });
    });
}

/// A dropped wait does not affect other waiters.
#[test]
fn dropped_wait_does_not_affect_other_waiters() {
    explore(|| {
        shuttle::future::block_on(async {
            let node = Node::default();
            let (pleg, writer) = generator(&node);
            writer.spawn(&pleg);
            let since = node.start("p", "a");
            let gives_up = spawn({
                let pleg = pleg.clone();
                async move {
                    let pod = PodUid::from("p");
                    let wait = pleg.newer_than(&pod, since, DEADLINE);
                    tokio::select! {
                        biased;
                        view = wait => drop(view),
                        () = shuttle::future::yield_now() => {}
                    }
                }
            });
            let view = pleg.newer_than(&"p".into(), since, DEADLINE).await;
            let view = view.expect("an answer");
            assert!(view.status.container("a").is_some(), "{view:?}");
            gives_up.await.expect("one that gives up");
            pleg.shutdown().await;
        });
    });
}

/// `wait_until_synced` returns when the cache shows the whole node.
#[test]
fn cache_has_the_whole_node_once_the_generator_is_synced() {
    explore(|| {
        shuttle::future::block_on(async {
            let node = Node::default();
            node.start("p", "a");
            let (pleg, writer) = generator(&node);
            let waits = spawn({
                let pleg = pleg.clone();
                async move {
                    pleg.wait_until_synced().await.expect("it is synced");
                    let view = pleg.get(&"p".into());
                    assert!(view.status.container("a").is_some());
                    assert!(view.details_as_of.is_some(), "with its details");
                    assert_eq!(pleg.snapshot().len(), 1);
                }
            });
            writer.spawn(&pleg);
            waits.await.expect("one that waits");
            pleg.shutdown().await;
        });
    });
}
