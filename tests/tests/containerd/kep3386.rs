//! One test for each beta criterion of KEP-3386 that upstream's kubelet never met: stress, recovery, endless
//! retries of the subscribe call with back-off, and a metric of missed events.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use pleg::core::{ContainerState, EventType, Id, Instant, LifecycleType, Mode, StreamState};
use pleg_cri::v1;
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::environment::number;
use pleg_tests::generator::Generator;
use pleg_tests::kubelet::{Kubelet, Life, Pod};
use pleg_tests::lives::ended;
use pleg_tests::wait::{pass_time, until, until_ok};

use crate::{SOON, on_one_version, start};

on_both_versions! {
    each_of_many_exits_in_one_pod_is_announced_once: stress();
    exits_while_no_generator_runs_are_announced_by_the_next: recovery();
}

#[tokio::test(flavor = "multi_thread")]
async fn generator_retries_a_failing_subscribe_without_end() -> anyhow::Result<()> {
    on_one_version(Version::V2, retries).await
}

// This test uses one thread, because its recorder of metrics is thread-local.
#[tokio::test]
async fn missed_events_metric_counts_exactly_the_events_the_test_drops() -> anyhow::Result<()> {
    on_one_version(Version::V1_7, missed).await
}

/// The number of containers that complete in one pod. The runtime's work grows with the square of this number, because
/// each event has the statuses of all containers of its pod. `just test-long` runs 120.
const COMPLETIONS: u32 = 40;
/// The number of the [`COMPLETIONS`] containers that run at the same time.
const AT_ONCE: usize = 16;
/// The run time of each container. If containers of a pod exit while containerd 1.7 starts others, the pod's shim often
/// hangs for a minute or more (in 4 of 8 runs whose containers exited at once, in none of 17 with this value).
const RUNS_MS: u64 = 300;
/// The time limit until a runtime on a loaded machine lists all containers as exited.
/// If containerd 1.7 cannot handle an exit within 10 s, it retries after 1, 2, 4 s and so on.
const DRAIN: Duration = Duration::from_secs(300);

/// Stress test: many containers of one pod complete. For each event, the runtime reads the statuses of all of
/// them, so events are large and late. The generator must announce every exit once with its exit code, miss no
/// event, and stay ready.
async fn stress(daemon: &Daemon) -> anyhow::Result<()> {
    let version = daemon.version;
    let mut generator = start(daemon, Mode::Evented)?;
    generator.pleg.wait_until_synced().await?;
    let kubelet = Kubelet::new(daemon)?;
    let pod = kubelet.run_pod("stress").await?;
    let begun = generator.pleg.now();
    let completions = number("PLEG_STRESS_COMPLETIONS", COMPLETIONS)?;
    let ids: Vec<Id> = futures::stream::iter(0..completions)
        .map(|n| run_to_completion(&kubelet, &pod, n))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    let (loaded, health) = (generator.pleg.now(), generator.pleg.health());
    assert!(health.ready().is_ok(), "{:?}", health.ready());
    until_ok(DRAIN, "the runtime lists all jobs as exited", || {
        listed_as_exited(&kubelet, &ids)
    })
    .await?;
    generator
        .wait_until_announced(SOON, LifecycleType::ContainerDied, &ids)
        .await?;
    let drained = generator.pleg.now();
    generator.wait_until_cache_equals_list(SOON).await?;
    generator.check_complete(&kubelet)?;
    let missed = generator.missed();
    assert_eq!(missed, 0, "events were missed: {}", by_kind(&generator));
    println!(
        "{version:?} stress: {completions} completions in {:?}; all announced {:?} after the last",
        loaded.since(begun),
        drained.since(loaded),
    );
    generator.pleg.shutdown().await;
    Ok(())
}

/// Fails with the ids of those containers that the runtime does not list as exited, if there are any.
async fn listed_as_exited(kubelet: &Kubelet, ids: &[Id]) -> anyhow::Result<()> {
    let exited = v1::ContainerState::ContainerExited.into();
    let filter = v1::ContainerFilter {
        state: Some(v1::ContainerStateValue { state: exited }),
        ..v1::ContainerFilter::default()
    };
    let listed = kubelet.containers(filter).await?;
    let listed: BTreeSet<Id> = listed.into_iter().map(|c| Id::from(c.id)).collect();
    let others: Vec<&Id> = ids.iter().filter(|&id| !listed.contains(id)).collect();
    anyhow::ensure!(others.is_empty(), "not listed as exited: {others:?}");
    Ok(())
}

/// The maximum number of attempts to start a job. Some starts fail if the runtime is under load.
const ATTEMPTS: u32 = 3;

/// Runs a job. If it does not start, retries with a new container, as a kubelet does.
async fn run_to_completion(kubelet: &Kubelet, pod: &Pod, n: u32) -> anyhow::Result<Id> {
    let life = Life::Exit {
        code: i32::try_from(n % 3)?,
        after_ms: RUNS_MS,
    };
    let name = format!("job-{n}");
    for attempt in 1..ATTEMPTS {
        let id = kubelet.create(pod, &name, attempt, life).await?;
        match kubelet.start(&id).await {
            Ok(()) => return Ok(id),
            Err(error) => println!("{name} is tried again: {error:#}"),
        }
    }
    let id = kubelet.run(pod, &name, ATTEMPTS, life).await?;
    Ok(id)
}

/// Recovery test: after the first generator has shut down, one container completes and one fails. The second
/// generator must report both exits, with exit code and reason.
async fn recovery(daemon: &Daemon) -> anyhow::Result<()> {
    let mut generator = start(daemon, Mode::Evented)?;
    let kubelet = Kubelet::new(daemon)?;
    let pod = kubelet.run_pod("recovery").await?;
    let mut ids = Vec::new();
    for (n, code) in [0, 3].into_iter().enumerate() {
        let life = Life::UntilTerminated { code };
        let id = kubelet.run(&pod, &format!("job-{n}"), 0, life).await?;
        ids.push(id);
    }
    generator
        .wait_until_announced(SOON, LifecycleType::ContainerStarted, &ids)
        .await?;
    generator.pleg.shutdown().await;
    for id in &ids {
        kubelet.stop(id).await?;
        ended(&kubelet, id).await?;
    }
    let mut generator = start(daemon, Mode::Evented)?;
    let started = generator.pleg.now();
    generator.pleg.wait_until_synced().await?;
    let synced = generator.pleg.now();
    let view = generator.pleg.get(&pod.uid);
    for (id, code, reason) in [(&ids[0], 0, "Completed"), (&ids[1], 3, "Error")] {
        let container = view.status.containers.iter().find(|c| c.id == *id);
        let shown = container.map(|c| (c.state, c.details.exit_code, &*c.details.reason));
        let expected = Some((ContainerState::Exited, Some(code), reason));
        assert_eq!(shown, expected, "{view:#?}");
    }
    generator
        .wait_until_announced(SOON, LifecycleType::ContainerDied, &ids)
        .await?;
    generator.check_announced(&kubelet.objects())?;
    println!(
        "both exits known {:?} after the start",
        synced.since(started)
    );
    generator.pleg.shutdown().await;
    Ok(())
}

/// The number of daemon restarts in a row. Upstream stops retrying at the fifth failure.
const RESTARTS: usize = 7;
/// The length of the long outage: longer than [`OFTEN`].
const OUTAGE: Duration = Duration::from_secs(12);

/// The time for which the generator retries a missing socket every 50 ms.
const OFTEN: Duration = Duration::from_secs(5);

/// Retry test: after several daemon restarts and after a long outage, the same generator must use the event stream
/// again. During the outage, the pauses between its subscribe calls must grow.
async fn retries(daemon: &Daemon) -> anyhow::Result<()> {
    let kubelet = Kubelet::new(daemon)?;
    restarts(daemon, &kubelet).await?;
    outage(daemon, &kubelet).await
}

async fn restarts(daemon: &Daemon, kubelet: &Kubelet) -> anyhow::Result<()> {
    let mut generator = start(daemon, Mode::Evented)?;
    generator
        .wait_until_events_are_used(kubelet, "before")
        .await?;
    let mut back = Vec::new();
    for n in 0..RESTARTS {
        daemon.kill()?;
        daemon.start()?;
        let up = generator.pleg.now();
        subscribed(&generator).await?;
        back.push(generator.pleg.now().since(up));
        // Check that the stream delivers new events.
        generator
            .wait_until_events_are_used(kubelet, &format!("r{n}"))
            .await?;
    }
    generator.check_announced(&kubelet.objects())?;
    println!("subscribed again after {:?} at most", back.iter().max());
    generator.pleg.shutdown().await;
    Ok(())
}

/// Stops the daemon for a long time. Uses a new generator, which has not reached its limit of subscribe calls.
async fn outage(daemon: &Daemon, kubelet: &Kubelet) -> anyhow::Result<()> {
    let mut generator = start(daemon, Mode::Evented)?;
    generator
        .wait_until_events_are_used(kubelet, "before-outage")
        .await?;
    daemon.kill()?;
    let killed = generator.pleg.now();
    let tries = retries_until(&generator, killed.after(OUTAGE)).await;
    let last = tries.last().copied().unwrap_or(killed);
    assert!(last > killed.after(OUTAGE), "retries have ended: {tries:?}");
    // While the socket is missing, the generator retries every 50 ms for 5 s, then with growing pauses.
    let first = tries.first().copied().unwrap_or(killed);
    let often = tries.partition_point(|&at| at < first.after(OFTEN));
    assert!(often > 10, "too few retries at first: {tries:?}");
    let rare: Vec<u128> = tries[often..]
        .windows(2)
        .map(|w| w[1].since(w[0]).as_millis())
        .collect();
    assert!(
        rare.len() > 3 && rare.windows(2).all(|w| w[1] > w[0]),
        "the pauses do not grow: {rare:?} ms"
    );
    daemon.start()?;
    subscribed(&generator).await?;
    generator
        .wait_until_events_are_used(kubelet, "after")
        .await?;
    generator.check_announced(&kubelet.objects())?;
    println!(
        "{} tries in {OUTAGE:?}, the last after pauses of {rare:?} ms",
        tries.len()
    );
    generator.pleg.shutdown().await;
    Ok(())
}

/// The instants of the retries that the generator planned until `end`.
async fn retries_until(generator: &Generator, end: Instant) -> Vec<Instant> {
    let mut tries = BTreeSet::new();
    while generator.pleg.now() < end {
        if let StreamState::Down { retry_at, .. } = generator.health().stream {
            tries.insert(retry_at);
        }
        pass_time(Duration::from_millis(10)).await;
    }
    tries.into_iter().collect()
}

async fn subscribed(generator: &Generator) -> anyhow::Result<()> {
    until(Duration::from_secs(90), "subscribed again", || {
        let stream = generator.health().stream;
        async move { matches!(stream, StreamState::Subscribed { .. }).then_some(()) }
    })
    .await
}

/// The number of pods, each with one container whose STOPPED the test drops.
const LOST: usize = 5;

/// Checks that the generator counts no missed event if every event arrives, and otherwise exactly the dropped ones.
async fn missed(daemon: &Daemon) -> anyhow::Result<()> {
    let recorder = PrometheusBuilder::new().build_recorder();
    let metrics = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let mut generator = start(daemon, Mode::Evented)?;
    generator.pleg.wait_until_synced().await?;
    let kubelet = Kubelet::new(daemon)?;
    for n in 0..10 {
        generator
            .wait_until_events_are_used(&kubelet, &format!("p{n}"))
            .await?;
    }
    // An event may be ten seconds late, so the generator counts none as missed at the first relist. At the second one,
    // 11 s later, it would: each missing event is overdue, and the stream is old enough for missed events to count.
    generator.pleg.relist_now().await?;
    pass_time(Duration::from_secs(11)).await;
    generator.pleg.relist_now().await?;
    let (counted, period) = shown(&metrics);
    assert_eq!(counted, 0.0, "no event was lost: {}", by_kind(&generator));
    assert!(
        period > 1.0,
        "without missed events the relist period grows: {period} s"
    );
    let lost = lose_ends(&generator, &kubelet).await?;
    generator.pleg.relist_now().await?;
    let found = generator.pleg.now();
    until(SOON, "each lost event is counted", || {
        let counted = shown(&metrics).0;
        async move { (counted >= LOST as f64).then_some(()) }
    })
    .await
    .with_context(|| format!("{}; {:#?}", by_kind(&generator), generator.describe(&lost)))?;
    let (counted, period) = shown(&metrics);
    assert_eq!(
        counted,
        LOST as f64,
        "other events are counted: {}; {:#?}",
        by_kind(&generator),
        generator.describe(&lost)
    );
    let stopped = generator.pleg.counters().missed.container_stopped;
    assert_eq!(stopped, LOST as u64, "{}", by_kind(&generator));
    assert_eq!(period, 1.0, "after missed events the relist period is 1 s");
    let took = generator.pleg.now().since(found);
    generator.check_complete(&kubelet)?;
    for id in &lost {
        use LifecycleType::{ContainerDied, ContainerStarted};
        let types = generator.announced.types(id);
        let both = [ContainerStarted, ContainerDied].map(|t| types.contains(&t));
        let description = generator.describe(&lost);
        assert_eq!(both, [true, true], "{id}: {types:?}; {description}");
    }
    println!("{LOST} lost, counted {took:?} after a list found them");
    generator.pleg.shutdown().await;
    Ok(())
}

/// Runs containers, stops them and drops their STOPPED. Waits for each STARTED before the stop, because the status in a
/// late STARTED could show that the container has exited.
async fn lose_ends(generator: &Generator, kubelet: &Kubelet) -> anyhow::Result<Vec<Id>> {
    let mut lost = Vec::new();
    for n in 0..LOST {
        let pod = kubelet.run_pod(&format!("lost-{n}")).await?;
        let life = Life::UntilTerminated { code: 4 };
        let job = kubelet.run(&pod, "job", 0, life).await?;
        until(SOON, "its STARTED is received", || {
            let started = generator.recorder.log().has(&job, EventType::Started);
            async move { started.then_some(()) }
        })
        .await
        .with_context(|| format!("{:#?}", generator.describe(std::slice::from_ref(&job))))?;
        generator.recorder.drop_event(&job, EventType::Stopped);
        kubelet.stop(&job).await?;
        lost.push(job);
    }
    until_ok(SOON, "each of the events is lost", || async {
        let log = generator.recorder.log();
        let all = log.lost == LOST as u64;
        all.then_some(())
            .ok_or_else(|| format!("{} lost; {:#?}", log.lost, generator.describe(&lost)))
    })
    .await?;
    Ok(lost)
}

/// The numbers of missed events by type, as text for messages.
fn by_kind(generator: &Generator) -> String {
    format!("{:?}", generator.pleg.counters().missed)
}

/// Reads two values from the metrics: the number of all missed events, and the relist period in seconds.
fn shown(metrics: &PrometheusHandle) -> (f64, f64) {
    let text = metrics.render();
    let sum = |name: &str| -> f64 {
        let samples = text.lines().filter(|line| line.starts_with(name));
        let values = samples.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        values.sum()
    };
    (
        sum("pleg_missed_events_total"),
        sum("pleg_relist_period_seconds"),
    )
}
