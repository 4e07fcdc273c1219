//! Reads the node for some time, as an agent does.

use pleg::{Delivery, Pleg, Subscription};
use pleg_cri::v1::{NamespaceMode, PodSandboxStatusRequest, PodSandboxStatusResponse};

use super::lists::{DEADLINE, RECEIVED};
use super::statuses::is_slow;
use super::*;
use crate::args::EventsPolicy;
use crate::connect::Target;

/// The generator gets this much time to read the node at the start, and again at the end.
const READ: Duration = Duration::from_secs(4);
const LOOK: Duration = Duration::from_millis(250);
/// The generator relists at least this often, to check the stream.
const RELIST: Duration = Duration::from_secs(2);
const PROBE: Duration = Duration::from_secs(5);
const PARALLEL: usize = 4;

/// Reads the node, watches it while `host` runs, and reads it again.
pub(crate) async fn collect<T>(
    target: &Target,
    events: EventsPolicy,
    duration: Duration,
    host: impl Future<Output = T>,
) -> anyhow::Result<(Evidence, T)> {
    let mut settings = Settings::default();
    settings.relist_period_max = RELIST;
    settings.relist_period_unproven = RELIST;
    settings.probe_period = PROBE;
    let (client, endpoint) = (target.client(DEADLINE)?, target.runtime.endpoint()?);
    target.meter.keep_each();
    let config = CriConfig::new(endpoint.clone()).with_message_limit(RECEIVED);
    let runtime = CriRuntime::new(config.with_unary_lists().with_call_deadline(DEADLINE))?;
    let (pleg, events) = target.spawn(events, settings)?;
    // If the first relist fails, go on: pods missing from `before` are neither read again nor compared with `views`.
    let _late = tokio::time::timeout(READ, pleg.wait_until_synced()).await;
    let (clock, before) = (pleg.clock(), pleg.snapshot());
    let until = clock.now().after(duration);
    let (host, found, conditions, lists, mut stream, ()) = tokio::join!(
        host,
        runtime.diagnose(),
        client.status(),
        lists::collect(&runtime, until),
        watch(&pleg, events, until),
        read_statuses(&pleg, &before, until),
    );
    // If this relist fails, `views` below is old, and the generator's health has the reason.
    let _late = tokio::time::timeout(READ, pleg.relist_now()).await;
    let (health, counters, views) = (pleg.health(), pleg.counters(), pleg.snapshot());
    let problems = Problem::all(&health.pod_problems(), clock.now());
    stream.end(&health.current(), &counters, clock.now());
    // The generator's shutdown cancels its calls that hang, and so the meter records their durations.
    pleg.shutdown().await;
    let mut calls = target.meter.each();
    repeat_slow(&runtime, &mut calls).await;
    let mut pods = Pods::new(&before, &views, clock.wall());
    pods.without_address = without_address(&client, &views).await;
    let origin = target.meter.wall_at_origin;
    let step = clock.wall_at(Instant::ORIGIN).nanos_since(origin);
    let mut evidence = Evidence {
        endpoint: endpoint.to_string(),
        simulated: target.runtime.is_embedded,
        lists,
        statuses: Statuses::new(&calls, &views, problems),
        stream,
        pods,
        wall_clock: WallClock::new(step, clock.wall(), &views),
        ..Evidence::default()
    };
    match found {
        Ok(found) => (evidence.name, evidence.version) = (found.name, found.version),
        Err(error) => evidence.unusable = Some(Unusable::from(error)),
    }
    match conditions {
        Ok(answer) => evidence.conditions = Conditions::from(answer),
        Err(error) => evidence.conditions.failure = Some(Failure::from(&error)),
    }
    Ok((evidence, host))
}

/// Repeats slow calls about single pods, one by one: they may have been slow because the whole node was read at once.
async fn repeat_slow(runtime: &CriRuntime, calls: &mut Timings) {
    let clock = runtime.clock();
    let slow = calls.iter_mut().filter(|(_, timing)| is_slow(timing));
    let repeat = async {
        for (key, timing) in slow.sorted_by_key(|(_, timing)| Reverse(timing.longest)) {
            let began = clock.now();
            if repeat(runtime, key).await.is_ok() {
                timing.longest = timing.longest.min(clock.now().since(began));
            }
        }
    };
    let _late = tokio::time::timeout(READ, repeat).await;
}

/// The pods with a ready sandbox that has no address and is not on the host's network.
async fn without_address(client: &CriClient, views: &[PodView]) -> Vec<String> {
    let mut pods = BTreeSet::new();
    let reads = views.iter().filter_map(|view| {
        let sandbox = view.status.sandboxes.first()?;
        let is_read = sandbox.state == SandboxState::Ready && sandbox.details.ips.is_empty();
        is_read.then_some(async {
            let lacks = lacks_address(client, &sandbox.id).await;
            lacks.then(|| view.status.uid.to_string())
        })
    });
    let answers = futures::stream::iter(reads).buffer_unordered(PARALLEL);
    let collect = answers.for_each(|pod| {
        pods.extend(pod);
        std::future::ready(())
    });
    let _late = tokio::time::timeout(READ, collect).await;
    pods.into_iter().collect()
}

async fn lacks_address(client: &CriClient, id: &Id) -> bool {
    let request = PodSandboxStatusRequest {
        pod_sandbox_id: id.to_string(),
        verbose: false,
    };
    let path = "/runtime.v1.RuntimeService/PodSandboxStatus";
    let answer = client.call(path, request).await;
    let status = answer.ok().and_then(|a: PodSandboxStatusResponse| a.status);
    let Some(status) = status else { return false };
    let options = status.linux.and_then(|linux| linux.namespaces?.options);
    let on_host = options.is_some_and(|options| options.network() == NamespaceMode::Node);
    let has_address = status.network.is_some_and(|network| !network.ip.is_empty());
    !on_host && !has_address
}

async fn repeat(runtime: &CriRuntime, (operation, id): &Key) -> Result<(), CallError> {
    let (scope, id) = (Scope::Pod(id.as_str().into()), Id::from(id.as_str()));
    match *operation {
        LIST_SANDBOXES => runtime.list_sandboxes(&scope, &mut |_| ()).await,
        LIST_CONTAINERS => runtime.list_containers(&scope, &mut |_| ()).await,
        SANDBOX_STATUS => runtime.sandbox_status(&id).await.map(drop),
        _ => runtime.container_status(&id).await.map(drop),
    }
}

/// Makes the generator read each status, to find calls that hang: by itself, it reads no status that an event carried.
async fn read_statuses(pleg: &Pleg, pods: &[PodView], until: Instant) {
    let reads = pods.iter().map(|view| {
        let now = pleg.now();
        pleg.details_newer_than(&view.status.uid, now, until.since(now))
    });
    let reads = futures::stream::iter(reads).buffer_unordered(PARALLEL);
    // Results are ignored: the meter also counts calls that fail.
    reads.for_each(async |_| ()).await;
}

/// Until the instant `until`, records degraded reasons, and counts lifecycle events other than the initial ones.
async fn watch(pleg: &Pleg, mut events: Subscription, until: Instant) -> Generator {
    let (mut stream, health, clock) = (Generator::default(), pleg.health(), pleg.clock());
    let mut looks = tokio::time::interval(LOOK);
    let mut end = Box::pin(clock.sleep_until(until));
    loop {
        tokio::select! {
            () = &mut end => return stream,
            _ = looks.tick() => stream.watch(&health.current(), clock.now()),
            Some(delivery) = events.next() => {
                let is_change = matches!(delivery, Delivery::Event(event) if !event.initial);
                stream.changes += u64::from(is_change);
            }
        }
    }
}
