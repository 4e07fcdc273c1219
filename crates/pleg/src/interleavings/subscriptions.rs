//! Tests subscriptions, together with the cache.

use std::sync::Arc;

use pleg_core::LifecycleType;

use crate::cache::Published;
use crate::interleavings::explore;
use crate::interleavings::samples::{announcement, something};
use crate::subscription::{Delivery, Subscribers};

/// A consumer that subscribes and then takes a snapshot misses nothing: a change is in the snapshot
/// or is announced.
#[test]
fn consumer_that_subscribes_then_takes_a_snapshot_misses_no_change() {
    let view = something("p", 5);
    explore(move || {
        let (published, subscribers) = <(Arc<Published>, Arc<Subscribers>)>::default();
        let writer = shuttle::thread::spawn({
            let (published, subscribers) = (published.clone(), subscribers.clone());
            let view = view.clone();
            move || {
                // Like the driver, writes the cache before it announces: the reconciler's outputs have this order.
                published.put("p".into(), view);
                subscribers.announce(&announcement(LifecycleType::ContainerStarted, 1));
                subscribers.close();
            }
        });
        let mut subscription = subscribers.subscribe();
        let there = published.snapshot().len();
        shuttle::future::block_on(async {
            let mut announced = 0;
            while subscription.next().await.is_some() {
                announced += 1;
                assert_eq!(published.snapshot().len(), 1, "not there yet");
            }
            assert!(there + announced >= 1, "neither there nor announced");
        });
        writer.join().expect("the cache's writer");
    });
}

/// A waiting subscriber is woken for every announcement, in order, and when the generator ends. A subscription made
/// while the generator stops also ends.
#[test]
fn waiting_subscriber_gets_every_event_and_the_generators_end() {
    const EVENTS: u64 = 3;
    explore(|| {
        let subscribers = Arc::new(Subscribers::default());
        let mut subscription = subscribers.subscribe();
        let writer = shuttle::thread::spawn({
            let subscribers = subscribers.clone();
            move || {
                for n in 0..EVENTS {
                    subscribers.announce(&announcement(LifecycleType::ContainerStarted, n));
                }
                subscribers.close();
            }
        });
        let late = shuttle::thread::spawn({
            let subscribers = subscribers.clone();
            move || {
                let mut subscription = subscribers.subscribe();
                shuttle::future::block_on(async { while subscription.next().await.is_some() {} });
            }
        });
        shuttle::future::block_on(async {
            let mut announced = Vec::new();
            while let Some(Delivery::Event(event)) = subscription.next().await {
                announced.push(event.detected.as_nanos());
            }
            assert_eq!(announced, (0..EVENTS).collect::<Vec<_>>());
        });
        writer.join().expect("the cache's writer");
        late.join().expect("one that comes late");
    });
}

/// A lagging subscriber gets every Died and Removed, or `Lagged`.
#[test]
fn lagging_subscriber_gets_every_exit_or_a_lagged_delivery() {
    const ENDS: u64 = 9;
    explore(|| {
        let subscribers = Arc::new(Subscribers::default());
        let mut subscription = subscribers.subscribe();
        let writer = shuttle::thread::spawn({
            let subscribers = subscribers.clone();
            move || {
                for n in 0..ENDS {
                    subscribers.announce(&announcement(LifecycleType::ContainerRemoved, n));
                }
                subscribers.close();
            }
        });
        shuttle::future::block_on(async {
            let (mut announced, mut missed) = (0, 0);
            while let Some(delivery) = subscription.next().await {
                match delivery {
                    Delivery::Event(_) => announced += 1,
                    Delivery::Synced => {}
                    Delivery::Lagged { missed: n } => missed += n,
                }
            }
            assert_eq!(announced + missed, ENDS);
        });
        writer.join().expect("the cache's writer");
    });
}
