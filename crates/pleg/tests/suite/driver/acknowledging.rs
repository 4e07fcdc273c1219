//! Tests how consumers acknowledge exit records.

use pleg::core::{EventType, Settings};
use pleg::{Consumer, Exit, Id, Pleg, WaitError};

use crate::support::{FakeRuntime, exited, next, soon, synced};

fn c() -> Id {
    "p-c".into()
}

/// Acknowledges every exit record of the pod `p`.
async fn acknowledge(consumer: &Consumer, pleg: &Pleg) {
    for record in pleg.exits(&"p".into()).iter() {
        consumer.acknowledge(record).await;
    }
}

/// The container exits before the generator starts. Its exit stays unacknowledged until the consumer acknowledges it.
#[tokio::test(start_paused = true)]
async fn consumer_registered_by_builder_must_acknowledge_exits_older_than_generator() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    node.put(exited("p", "c", 3));
    let mut builder = Pleg::builder(node.clone());
    let worker = builder.register_consumer("worker");
    let pleg = builder.spawn().unwrap();
    soon(pleg.wait_until_synced()).await.unwrap();
    assert!(!pleg.is_acknowledged(&c()).await);
    acknowledge(&worker, &pleg).await;
    // An acknowledgement counts even if the consumer is dropped afterwards.
    drop(worker);
    assert!(pleg.is_acknowledged(&c()).await);
    assert!(pleg.exits(&"p".into()).is_empty());
}

/// `is_acknowledged` returns false until every consumer that still exists has acknowledged the exit.
#[tokio::test(start_paused = true)]
async fn exit_is_acknowledged_once_all_remaining_consumers_have_acknowledged_it() {
    let node = FakeRuntime::new();
    node.run_pod("p");
    let pleg = synced(&node, Settings::default()).await;
    let register = || async { pleg.register_consumer("worker").await.unwrap() };
    let (worker, status, other) = (register().await, register().await, register().await);
    let mut subscription = pleg.subscribe();
    assert!(!pleg.is_acknowledged(&c()).await, "it runs");
    node.put_and_emit(exited("p", "c", 3), EventType::Stopped);
    next(&mut subscription).await;
    acknowledge(&worker, &pleg).await;
    assert!(!pleg.is_acknowledged(&c()).await);
    drop(other);
    assert!(!pleg.is_acknowledged(&c()).await);
    acknowledge(&status, &pleg).await;
    assert!(pleg.is_acknowledged(&c()).await);
}

#[tokio::test(start_paused = true)]
async fn registering_a_consumer_after_the_shutdown_is_an_error() {
    let pleg = synced(&FakeRuntime::new(), Settings::default()).await;
    let worker = pleg.register_consumer("worker").await.unwrap();
    soon(pleg.shutdown()).await;
    let record = Exit::new("p-c", "c", pleg.now());
    worker.acknowledge(&record).await;
    let late = pleg.register_consumer("worker").await;
    assert_eq!(late.unwrap_err(), WaitError::Closed);
}
