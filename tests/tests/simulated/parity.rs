//! Compares `Fifo`, which replaces the event channel of upstream's PLEG, with a subscription: both must get the same
//! announcements in the same order, but `Fifo` gets no ContainerChanged, which upstream never sends.

use std::time::Duration;

use pleg::core::{LifecycleType, Settings};
use pleg::{Delivery, Fifo};
use pleg_tests::kubelet::Life;
use pleg_tests::lives;

use crate::node::{Node, SECOND};

#[tokio::test(start_paused = true)]
async fn upstream_fifo_gets_same_events_in_order_as_a_subscription() -> anyhow::Result<()> {
    let node = Node::up();
    let (mut builder, recorder) = node.builder(Settings::default())?;
    let (mut fifo, mut subscription) = (builder.upstream_fifo(), builder.subscribe());
    let mut generator = node.spawn((builder, recorder)).await?;
    let kubelet = node.kubelet()?;
    // Do not start this container, so that a read shows it as created and causes ContainerChanged.
    let pod = kubelet.run_pod("created").await?;
    let id = kubelet.create(&pod, "app", 0, Life::UntilStopped).await?;
    let what = LifecycleType::ContainerChanged;
    generator.wait_until_announced(SECOND, what, &[id]).await?;
    generator
        .drain_during(lives::churn(&kubelet, 20, 8, Duration::ZERO))
        .await?;
    generator
        .wait_until_removals_are_announced(&kubelet.objects())
        .await?;
    generator.check_complete(&kubelet)?;
    generator.check_calls().await?;
    generator.pleg.shutdown().await;

    let mut events = Vec::new();
    while let Some(delivery) = subscription.next().await {
        match delivery {
            Delivery::Event(event) => events.push(event),
            Delivery::Synced => {}
            other => anyhow::bail!("{other:?}, although the queue was not full"),
        }
    }
    let changed = |what: LifecycleType| what == LifecycleType::ContainerChanged;
    assert!(
        events.iter().any(|e| changed(e.event)),
        "no ContainerChanged was announced"
    );
    let expected: Vec<_> = events
        .into_iter()
        .filter(|e| !changed(e.event))
        .map(|e| (e.uid, e.event, e.subject.map(|s| s.id)))
        .collect();
    assert_eq!(all_of(&mut fifo).await, expected);
    // The events are of 20 sandboxes and 60 containers. Some have no Started, because the exit was found first.
    let ends = |what| expected.iter().filter(|(_, w, _)| *w == what).count();
    assert_eq!(ends(LifecycleType::ContainerDied), 80);
    assert_eq!(ends(LifecycleType::ContainerRemoved), 80);
    node.end(generator).await;
    Ok(())
}

type Announced = (pleg::core::PodUid, LifecycleType, Option<pleg::core::Id>);

/// Takes all events, until the queue is empty and closed because the generator was shut down.
async fn all_of(fifo: &mut Fifo) -> Vec<Announced> {
    let mut all = Vec::new();
    while let Some(event) = fifo.next().await {
        all.push((event.uid, event.event, event.data));
    }
    all
}
