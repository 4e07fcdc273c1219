//! Subscriptions of all pods and of one pod, `initial` marks and `Synced`.

use pleg::core::{EventType, LifecycleType, ReportedState, Settings};
use pleg::{Delivery, Pleg};

use crate::support::{FakeRuntime, SECOND, drain, in_short, next, pass, sandbox, soon, synced};

/// Events of what exists at the start come first, marked; then `Synced`; then later events.
#[tokio::test(start_paused = true)]
async fn synced_is_delivered_between_initial_and_later_events() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let mut builder = Pleg::builder(node.clone());
    let mut subscription = builder.subscribe();
    let pleg = builder.spawn().unwrap();
    for _ in 0..2 {
        assert!(next(&mut subscription).await.initial);
    }
    assert_eq!(soon(subscription.next()).await, Some(Delivery::Synced));
    node.put_and_emit(sandbox("p", "s", ReportedState::Exited), EventType::Stopped);
    let died = next(&mut subscription).await;
    assert_eq!(
        (died.event, died.initial),
        (LifecycleType::ContainerDied, false)
    );
    pleg.shutdown().await;
}

/// A late subscriber gets `Synced` at once, and no events from before.
#[tokio::test(start_paused = true)]
async fn late_subscriber_is_synced_at_once() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, Settings::default()).await;
    let mut subscription = pleg.subscribe();
    assert_eq!(subscription.try_next(), Some(Delivery::Synced));
    assert_eq!(subscription.try_next(), None);
}

/// A subscription of one pod, made before the pod exists, delivers the events of that pod only.
#[tokio::test(start_paused = true)]
async fn subscription_of_one_pod_delivers_that_pod_alone() {
    let node = FakeRuntime::new();
    let pleg = synced(&node, Settings::default()).await;
    let mut of_p = pleg.subscribe_pod(&"p".into());
    let mut of_q = pleg.subscribe_pod(&"q".into());
    let mut of_all = pleg.subscribe();
    for uid in ["p", "q", "r"] {
        node.put_and_emit(
            sandbox(uid, "s", ReportedState::Running),
            EventType::Started,
        );
    }
    pass(&pleg, SECOND).await;
    node.put_and_emit(sandbox("p", "s", ReportedState::Exited), EventType::Stopped);
    for _ in 0..4 {
        next(&mut of_all).await;
    }
    assert_eq!(drain(&mut of_p), ["p Started p-s", "p Died p-s"]);
    assert_eq!(drain(&mut of_q), ["q Started q-s"]);
}

/// Ended subscriptions of pods are dropped; others continue.
#[tokio::test(start_paused = true)]
async fn ended_subscriptions_of_pods_are_forgotten() {
    let node = FakeRuntime::new();
    let pleg = synced(&node, Settings::default()).await;
    let mut held = pleg.subscribe_pod(&"p".into());
    for n in 0..1_000 {
        drop(pleg.subscribe_pod(&format!("gone-{n}").as_str().into()));
    }
    node.put_and_emit(
        sandbox("p", "s", ReportedState::Running),
        EventType::Started,
    );
    assert_eq!(in_short(&next(&mut held).await), "p Started p-s");
    pleg.shutdown().await;
    assert_eq!(soon(held.next()).await, None);
}
