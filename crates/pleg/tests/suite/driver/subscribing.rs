//! Tests subscriptions to all pods and to one pod, `initial` marks and `Synced`.

use pleg::core::EventType::{Started, Stopped};
use pleg::core::{Settings, Source};
use pleg::{Delivery, Pleg};

use crate::support::{
    FakeRuntime, SECOND, drain, exited, expect, in_short, next, not_ready, pass, ready, soon,
    synced,
};

/// Containers and sandboxes that exist at the start are announced after their status was read.
#[tokio::test(start_paused = true)]
async fn synced_is_delivered_between_initial_and_later_events() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    node.put(exited("p", "old", 7));
    let mut builder = Pleg::builder(node.clone());
    let mut subscription = builder.subscribe();
    let pleg = builder.spawn().unwrap();
    let mut initial = Vec::new();
    for _ in 0..3 {
        let event = next(&mut subscription).await;
        assert!(event.initial && event.source == Source::Relist);
        assert_eq!(
            pleg.get(&event.uid).status.containers.len(),
            2,
            "it is in the cache"
        );
        let code = event.subject.as_ref().and_then(|s| s.exit_code);
        initial.push(format!("{} {code:?}", in_short(&event)));
    }
    initial.sort();
    let expected = [
        "p Died p-old Some(7)",
        "p Started p-c None",
        "p Started p-s None",
    ];
    assert_eq!(initial, expected);
    assert_eq!(soon(subscription.next()).await, Some(Delivery::Synced));
    node.put_and_emit(not_ready("p"), Stopped);
    assert!(!expect(&mut subscription, "p Died p-s").await.initial);
}

#[tokio::test(start_paused = true)]
async fn late_subscribers_receive_synced_and_all_later_events() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, Settings::default()).await;
    let mut late = [pleg.subscribe(), pleg.subscribe()];
    for subscription in &mut late {
        assert_eq!(subscription.try_next(), Some(Delivery::Synced));
        assert_eq!(subscription.try_next(), None);
    }
    node.put_and_emit(not_ready("p"), Stopped);
    for subscription in &mut late {
        expect(subscription, "p Died p-s").await;
        assert_eq!(subscription.try_next(), None);
    }
}

/// The subscription is made before the pod exists.
#[tokio::test(start_paused = true)]
async fn subscription_of_one_pod_delivers_events_of_that_pod_only() {
    let node = FakeRuntime::new();
    let pleg = synced(&node, Settings::default()).await;
    let mut of_p = pleg.subscribe_pod(&"p".into());
    let mut of_q = pleg.subscribe_pod(&"q".into());
    let mut of_all = pleg.subscribe();
    for uid in ["p", "q", "r"] {
        node.put_and_emit(ready(uid), Started);
    }
    pass(&pleg, SECOND).await;
    node.put_and_emit(not_ready("p"), Stopped);
    for _ in 0..4 {
        next(&mut of_all).await;
    }
    assert_eq!(drain(&mut of_p), ["p Started p-s", "p Died p-s"]);
    assert_eq!(drain(&mut of_q), ["q Started q-s"]);
}

#[tokio::test(start_paused = true)]
async fn dropped_subscriptions_of_pods_do_not_end_other_subscriptions() {
    let node = FakeRuntime::new();
    let pleg = synced(&node, Settings::default()).await;
    let mut of_p = pleg.subscribe_pod(&"p".into());
    for n in 0..1_000 {
        drop(pleg.subscribe_pod(&format!("gone-{n}").as_str().into()));
    }
    node.put_and_emit(ready("p"), Started);
    expect(&mut of_p, "p Started p-s").await;
    pleg.shutdown().await;
    assert_eq!(soon(of_p.next()).await, None);
}
