//! Tests sequences of events that an earlier release handled wrongly.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake};
use std::time::Duration;

use pleg::core::{ContainerState, EventType, PodView, Report, ReportedState};
use pleg::runtime::fake::{Dial, Step, with_memory_limit};
use pleg::{NotReady, Pleg, WaitError};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn generator_subscribes_again_after_the_event_stream_panicked() {
    let node = FakeRuntime::new();
    node.run_pod("p1");
    let panics = vec![Step::Wait(5 * SECOND), Step::Panic];
    node.script_streams([Dial::Open(panics)]);
    let pleg = synced(&node, settings(|_| ())).await;
    pass(&pleg, 10 * SECOND).await;
    assert_eq!(node.count(&Op::Subscribe), 2);
    node.put_and_emit(exited("p1", "c", 1), EventType::Stopped);
    let exited = || {
        let view = pleg.get(&"p1".into());
        view.status.containers[0].state == ContainerState::Exited
    };
    let took = until(&pleg, exited).await;
    assert!(took < SECOND, "events arrive again: {took:?}");
}

/// The generator's tokio runtime is dropped while a consumer on another tokio runtime waits.
#[test]
fn dropped_tokio_runtime_ends_subscriptions() {
    let one = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let node = FakeRuntime::new();
    node.run_pod("p1");
    let (pleg, mut subscription) = one.block_on(async {
        let mut builder = Pleg::builder(node.clone());
        let subscription = builder.subscribe();
        let pleg = builder.spawn().unwrap();
        pleg.wait_until_synced().await.unwrap();
        (pleg, subscription)
    });
    drop(one);
    let two = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    two.block_on(async {
        while subscription.try_next().is_some() {}
        let ended = tokio::time::timeout(Duration::from_secs(3), subscription.next()).await;
        assert!(matches!(ended, Ok(None)), "{ended:?}");
        assert!(pleg.health().ready().is_err());
        let uid = "p1".into();
        let wait = pleg.newer_than(&uid, pleg.now(), Duration::from_secs(3));
        assert!(matches!(wait.await, Err(WaitError::Closed)));
    });
}

#[tokio::test(start_paused = true)]
async fn failed_spawn_ends_the_subscriptions_of_its_builder() {
    let mut builder = Pleg::builder(FakeRuntime::new()).settings(settings(|s| {
        s.probe_period = Duration::from_nanos(1);
    }));
    let mut subscription = builder.subscribe();
    assert!(builder.spawn().is_err());
    assert!(soon(subscription.next()).await.is_none());
}

/// A waker that panics when it is woken. The driver wakes it, so the panic occurs in the driver's task.
struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        panic!("a scripted panic");
    }
}

/// The driver panics when it wakes a consumer.
#[tokio::test(start_paused = true)]
async fn driver_panic_ends_subscriptions_and_newer_than_calls() {
    let node = FakeRuntime::new();
    node.run_pod("p1");
    let pleg = synced(&node, settings(|_| ())).await;
    let (mut subscription, health) = (pleg.subscribe(), pleg.health());
    node.hang(Op::pod("p1"));
    let waits = waiting(&pleg, "p1", pleg.now(), MINUTE).await;
    let mut panics = pleg.subscribe();
    drain(&mut panics);
    let waker = Arc::new(PanickingWaker).into();
    let next = pin!(panics.next()).poll(&mut Context::from_waker(&waker));
    assert!(next.is_pending());
    node.put_and_emit(exited("p1", "c", 1), EventType::Stopped);
    while soon(subscription.next()).await.is_some() {}
    assert_eq!(health.ready(), Err(NotReady::Closed));
    assert_eq!(soon(waits).await.unwrap(), Err(WaitError::Closed));
    until(&pleg, || node.streams() == 0 && node.in_flight() == 0).await;
    soon(pleg.shutdown()).await;
}

fn with_memory(uid: &str, name: &str, limit: i64) -> Report {
    with_memory_limit(container(uid, name, ReportedState::Running), limit)
}

fn memory(view: &PodView, id: &str) -> i64 {
    let all = view.status.containers.iter();
    let container = all.clone().find(|c| c.id.as_str() == id).unwrap();
    container.details.resources.as_ref().unwrap().memory_limit
}

/// A pod read sees a resize while an event with statuses from before the resize arrives.
#[tokio::test(start_paused = true)]
async fn event_during_a_pod_read_does_not_hide_a_resize() {
    let node = FakeRuntime::new();
    node.run_pod("p1");
    node.put(with_memory("p1", "c", 200));
    node.put(container("p1", "d", ReportedState::Running));
    let pleg = synced(&node, settings(|_| ())).await;
    assert_eq!(memory(&pleg.get(&"p1".into()), "p1-c"), 200);
    node.delay(Op::pod("p1"), 50 * MS);
    node.put(with_memory("p1", "c", 400));
    let of_task = pleg.clone();
    let read = tokio::spawn(async move { of_task.request_reinspect(&"p1".into()).await });
    pass(&pleg, 5 * MS).await;
    node.put(with_memory("p1", "c", 200));
    node.emit(EventType::Started, "p1-d");
    node.put(with_memory("p1", "c", 400));
    soon(read).await.unwrap().unwrap();
    let took = until(&pleg, || memory(&pleg.get(&"p1".into()), "p1-c") == 400).await;
    assert!(took < SECOND, "{took:?}");
    pass(&pleg, 30 * MINUTE).await;
    assert_eq!(memory(&pleg.get(&"p1".into()), "p1-c"), 400);
}

/// The stream is open but delivers no more events. Only a new subscription would deliver them.
#[tokio::test(start_paused = true)]
async fn stream_without_events_is_replaced_if_lists_show_changes() {
    let node = FakeRuntime::new();
    node.run_pod("p1");
    let pleg = synced(&node, settings(|_| ())).await;
    for n in 0..25 {
        node.put(container("p1", &format!("k{n}"), ReportedState::Running));
        pass(&pleg, 30 * SECOND).await;
    }
    assert!(node.count(&Op::Subscribe) > 1);
}
