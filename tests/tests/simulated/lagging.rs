//! A subscriber never reads while 200 pods are created and removed. It delays no call, and afterwards it
//! gets every exit and every removal.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt};
use pleg::core::{Id, Kind, LifecycleType, Mode, PodLifecycleEvent, PodUid};
use pleg::{Delivery, Subscription};
use pleg_tests::kubelet::{Kubelet, Life};
use pleg_tests::lives;

use crate::{Node, settings};

const PODS: u32 = 200;
/// Pods in a crash loop, which have more exits of one name than exit records are kept.
const LOOPS: u32 = 5;
/// How many containers of one name they have.
const LOOPED: i32 = 50;

#[tokio::test(flavor = "multi_thread")]
async fn idle_subscriber_delays_no_call_and_misses_no_exit() -> anyhow::Result<()> {
    let node = Node::up()?;
    let (mut builder, recorder) = node.builder(settings(Mode::Evented))?;
    let mut unread = builder.subscribe();
    let mut generator = node.spawn((builder, recorder)).await?;
    let kubelet = node.kubelet()?;
    // The events exceed all buffers between the runtime and a reader (an event shows all containers
    // of its pod). If anything waited for the subscriber, the runtime's calls would hang, as they do
    // with a subscriber of the runtime that reads nothing.
    let loops = futures::stream::iter(0..LOOPS)
        .map(|n| crash_loop(&kubelet, format!("loop-{n}"), LOOPED))
        .buffer_unordered(LOOPS as usize);
    let pods = futures::stream::iter(0..PODS)
        .map(|n| crash_loop(&kubelet, format!("pod-{n}"), 2))
        .buffer_unordered(16);
    let living = async { loops.chain(pods).try_collect::<()>().await };
    let living = tokio::time::timeout(Duration::from_secs(60), living);
    let outcome = generator.drain_during(living).await;
    outcome.context("the runtime's calls hang")??;
    let objects = kubelet.objects();
    generator
        .wait_until_removals_are_announced(&objects)
        .await?;
    generator.check_complete(&kubelet)?;

    let (events, missed) = read(&mut unread);
    // A code that becomes known after the removal is announced by a change.
    let mut died = of_type(&events, LifecycleType::ContainerDied);
    for (id, code) in of_type(&events, LifecycleType::ContainerChanged) {
        died.entry(id).and_modify(|known| *known = known.or(code));
    }
    let removed = of_type(&events, LifecycleType::ContainerRemoved);
    for (id, object) in &objects {
        let code = (object.kind == Kind::Container).then_some(object.exit_code);
        assert_eq!(died.get(id), Some(&code), "{}: its exit", object.name);
        assert!(removed.contains_key(id), "{}: its removal", object.name);
    }
    println!("{} events for the late reader", events.len());
    assert_eq!(missed, 0);
    // Of each id only the exit and the removal are left, except the last events, which are not joined yet.
    let announced: usize = generator.announced.sources().values().sum();
    assert!(events.len() < announced, "{} of {announced}", events.len());

    // The exit records contain the last three exits of each name.
    let records = generator.pleg.exits(&PodUid::from("uid-loop-0"));
    let codes: Vec<_> = records
        .iter()
        .filter(|r| &*r.name == "app")
        .map(|r| r.exit_code)
        .collect();
    assert_eq!(codes, [48, 49, 50].map(Some));
    generator.pleg.shutdown().await;
    node.down().await;
    Ok(())
}

/// Containers exit one after the other with 1, 2, 3 …, and then all are removed.
async fn crash_loop(kubelet: &Kubelet, name: String, times: i32) -> anyhow::Result<()> {
    let pod = kubelet.run_pod(&name).await?;
    let mut all = Vec::new();
    for code in 1..=times {
        let life = Life::Exit { code, after_ms: 0 };
        let attempt = u32::try_from(code - 1)?;
        let id = kubelet.run(&pod, "app", attempt, life).await?;
        lives::ended(kubelet, &id).await?;
        all.push(id);
    }
    for id in &all {
        kubelet.remove(id).await?;
    }
    kubelet.stop_pod(&pod).await?;
    kubelet.remove_pod(&pod).await
}

/// The events of one type, by id: the exit code of each.
fn of_type(events: &[PodLifecycleEvent], what: LifecycleType) -> BTreeMap<Id, Option<i32>> {
    let of_type = events.iter().filter(|e| e.event == what);
    of_type
        .filter_map(|e| e.subject.as_ref())
        .map(|s| (s.id.clone(), s.exit_code))
        .collect()
}

/// The available events, and the number of lost exits.
fn read(subscription: &mut Subscription) -> (Vec<PodLifecycleEvent>, u64) {
    let (mut events, mut lost) = (Vec::new(), 0);
    while let Some(delivery) = subscription.try_next() {
        match delivery {
            Delivery::Event(event) => events.push(event),
            Delivery::Lagged { missed } => lost += missed,
            _ => {}
        }
    }
    (events, lost)
}
