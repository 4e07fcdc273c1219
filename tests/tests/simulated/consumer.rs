//! Tests a consumer that takes no event while pods are created, crash and are removed. It must delay no call to the
//! runtime, and must receive every exit and removal afterwards. A second test checks that calls to the runtime do block
//! if the generator itself stops reading the stream.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use pleg::core::{Id, Kind, LifecycleType, PodLifecycleEvent, PodUid, Settings};
use pleg::{Delivery, Subscription};
use pleg_tests::kubelet::{Kubelet, Life};

use crate::node::{MINUTE, MS, Node, SECOND};

/// More bytes than the runtime can send on an unread event stream, whose flow control window is 128 KiB.
const WINDOW: u64 = 5 << 20;
const PODS: u32 = 160;
/// The number of exits of one container name in a crash loop. The generator stores fewer exit records per name.
const LOOPED: i32 = 20;

#[tokio::test(start_paused = true)]
async fn idle_consumer_delays_no_call_and_misses_no_exit() -> anyhow::Result<()> {
    let node = Node::up();
    let (mut builder, recorder) = node.builder(Settings::default())?;
    let mut unread = builder.subscribe();
    let _never_emptied = builder.upstream_fifo();
    let mut generator = node.spawn((builder, recorder)).await?;
    let kubelet = node.kubelet()?;
    let longest = generator.drain_during(storm(&node, &kubelet)).await?;
    // Paused time advances only while all tasks wait, so a call that does not wait takes almost no time. (It takes a
    // few nanoseconds, because the clock never returns the same instant twice.)
    assert!(longest < MS, "{longest:?}");
    let carried = node.events.carried();
    assert!(carried >= 3 * WINDOW, "{carried} bytes");
    let objects = kubelet.objects();
    generator
        .wait_until_removals_are_announced(&objects)
        .await?;
    generator.check_complete(&kubelet)?;
    node.pass(MINUTE).await;
    assert_eq!(generator.pleg.health().ready(), Ok(()));
    assert_eq!(generator.degraded(), [""; 0]);

    let events = read(&mut unread)?;
    // If the generator finds an exit code after the removal, it announces the exit code with ContainerChanged.
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
    // In this unread subscription, the generator has merged the events of each id: only exit and removal are left.
    let announced: usize = generator.announced.sources().values().sum();
    assert!(events.len() < announced, "{} of {announced}", events.len());

    // For each container name, the generator stores the records of the last three exits.
    let records = generator.pleg.exits(&PodUid::from("uid-pod-0"));
    let of_app = records.iter().filter(|r| &*r.name == "app");
    let codes: Vec<_> = of_app.map(|r| r.exit_code).collect();
    assert_eq!(codes, [LOOPED - 2, LOOPED - 1, LOOPED].map(Some));
    node.end(generator).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn generator_that_reads_no_events_delays_calls_to_the_runtime() -> anyhow::Result<()> {
    let node = Node::up();
    let generator = node.start(Settings::default()).await?;
    let kubelet = node.kubelet()?;
    generator.recorder.pause_events(true);
    let resume = async {
        node.pass(30 * SECOND).await;
        generator.recorder.pause_events(false);
        anyhow::Ok(())
    };
    let (longest, ()) = tokio::try_join!(storm(&node, &kubelet), resume)?;
    assert!(longest >= SECOND, "{longest:?}");
    node.end(generator).await;
    Ok(())
}

/// Runs [`crash_loop`] in all pods. Returns the longest of the returned durations.
async fn storm(node: &Node, kubelet: &Kubelet) -> anyhow::Result<Duration> {
    node.set("oversize.bytes=12000");
    node.set("oversize=100%");
    let pods = (0..PODS).map(|n| {
        let times = if n == 0 { LOOPED } else { 2 };
        crash_loop(node, kubelet, format!("pod-{n}"), times)
    });
    let all = futures::stream::iter(pods).buffer_unordered(16);
    all.try_fold(Duration::ZERO, async |a, b| Ok(a.max(b)))
        .await
}

/// Runs containers that exit one after the other, with the exit codes 1, 2, 3 …, and removes them. Returns the longest
/// duration of the CRI calls of one step: to run the pod, to run a container, or to remove all containers and the pod.
async fn crash_loop(
    node: &Node,
    kubelet: &Kubelet,
    name: String,
    times: i32,
) -> anyhow::Result<Duration> {
    let mut longest = Duration::ZERO;
    let mut since = node.clock.now();
    let mut called = |since| longest = longest.max(node.clock.now().since(since));
    let pod = kubelet.run_pod(&name).await?;
    called(since);
    let mut all = Vec::new();
    for code in 1..=times {
        // Let the container run for more than 250 ms: the generator reads the pod 250 ms after STARTED.
        let after_ms = 400;
        let life = Life::Exit { code, after_ms };
        since = node.clock.now();
        let id = kubelet
            .run(&pod, "app", u32::try_from(code - 1)?, life)
            .await?;
        called(since);
        node.pass(410 * MS).await;
        all.push(id);
    }
    since = node.clock.now();
    for id in &all {
        kubelet.remove(id).await?;
    }
    kubelet.stop_pod(&pod).await?;
    kubelet.remove_pod(&pod).await?;
    called(since);
    Ok(longest)
}

/// The exit codes in all events of the type `what`, by id.
fn of_type(events: &[PodLifecycleEvent], what: LifecycleType) -> BTreeMap<Id, Option<i32>> {
    let of_type = events.iter().filter(|e| e.event == what);
    of_type
        .filter_map(|e| e.subject.as_ref())
        .map(|s| (s.id.clone(), s.exit_code))
        .collect()
}

/// Takes all events that are available now. Fails if the subscription has lost any.
fn read(subscription: &mut Subscription) -> anyhow::Result<Vec<PodLifecycleEvent>> {
    let mut events = Vec::new();
    while let Some(delivery) = subscription.try_next() {
        match delivery {
            Delivery::Event(event) => events.push(event),
            Delivery::Synced => {}
            other => anyhow::bail!("{other:?}"),
        }
    }
    Ok(events)
}
