//! Reads the node for some time, as an agent does.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt as _;
use pleg::core::{CallError, Id, Instant, PodView, SandboxState, Settings, WallTime};
use pleg::runtime::{Runtime as _, Scope};
use pleg::{Delivery, Pleg, Subscription};
use pleg_cri::v1::{NamespaceMode, PodSandboxStatusRequest, PodSandboxStatusResponse};
use pleg_cri::{CriClient, CriConfig, CriRuntime};

use super::lists::{self, DEADLINE, RECEIVED};
use super::pods::Pods;
use super::statuses::{Problem, Statuses, is_slow};
use super::wall_clock::WallClock;
use super::{Conditions, Evidence, Failure, Unusable};
use crate::args::EventsPolicy;
use crate::connect::Target;
use crate::meter::{Key, LIST_CONTAINERS, LIST_SANDBOXES, Meter, SANDBOX_STATUS, Timing};
use crate::picture::generator::Generator;

/// How long the generator may take to read the node at first, and again at the end.
const READ: Duration = Duration::from_secs(4);
/// How often health is looked at.
const LOOK: Duration = Duration::from_millis(250);
/// The generator relists at least this often, to check the stream.
const RELIST: Duration = Duration::from_secs(2);
/// How often it probes the runtime.
const PROBE: Duration = Duration::from_secs(5);
/// How many pods are read at once, or asked whether they are on the host's network.
const PARALLEL: usize = 4;

/// A generator that reads the node.
pub(crate) struct Session {
    pleg: Pleg,
    events: Subscription,
    meter: Meter,
    runtime: CriRuntime,
    client: CriClient,
    /// What the wall clock showed at the origin of instants, as it was set at the start.
    origin: WallTime,
    before: Vec<PodView>,
    evidence: Evidence,
}

impl Session {
    /// Starts to read the node. Returns when all of it has been read, or some seconds later.
    pub(crate) async fn start(
        target: &Target,
        events: EventsPolicy,
        origin: WallTime,
    ) -> anyhow::Result<Self> {
        let mut settings = Settings::default();
        settings.relist_period_max = RELIST;
        settings.relist_period_unproven = RELIST;
        settings.probe_period = PROBE;
        let meter = target.meter();
        meter.keep_each();
        let mut builder = target.builder(events, settings)?;
        let events = builder.subscribe();
        let pleg = builder.spawn()?;
        // If it fails, there is nothing to compare with.
        let _late = tokio::time::timeout(READ, pleg.wait_until_synced()).await;
        let endpoint = target.endpoint()?;
        let config = CriConfig::new(endpoint.clone())
            .with_message_limit(RECEIVED)
            .with_unary_lists()
            .with_call_deadline(DEADLINE);
        Ok(Self {
            runtime: CriRuntime::new(config)?,
            client: target.client(DEADLINE)?,
            before: pleg.snapshot(),
            evidence: Evidence {
                endpoint: endpoint.to_string(),
                simulated: target.is_embedded(),
                ..Evidence::default()
            },
            pleg,
            events,
            meter,
            origin,
        })
    }

    /// Reads the node for this time.
    pub(crate) async fn watch(&mut self, duration: Duration) {
        let (pleg, runtime) = (&self.pleg, &self.runtime);
        let until = pleg.now().after(duration);
        let (found, conditions, lists, (), ()) = tokio::join!(
            runtime.diagnose(),
            self.client.status(),
            lists::collect(runtime, until),
            watch(pleg, &mut self.events, &mut self.evidence.stream, until),
            read_statuses(pleg, &self.before, until),
        );
        match found {
            Ok(version) => {
                self.evidence.name = version.name;
                self.evidence.version = version.version;
            }
            Err(error) => self.evidence.unusable = Some(Unusable::from(error)),
        }
        match conditions {
            Ok(answer) => self.evidence.conditions = Conditions::from(answer),
            Err(error) => self.evidence.conditions.failure = Some(Failure::from(&error)),
        }
        self.evidence.lists = lists;
    }

    /// Reads the node once more, and returns what was found.
    pub(crate) async fn end(mut self) -> Evidence {
        let (pleg, clock) = (&self.pleg, self.pleg.clock());
        // If it fails, what is known is old, and health says so.
        let _late = tokio::time::timeout(READ, pleg.relist_now()).await;
        let (health, counters, views) = (pleg.health(), pleg.counters(), pleg.snapshot());
        let problems = Problem::all(&health.pod_problems(), clock.now());
        let stream = &mut self.evidence.stream;
        stream.end(&health.current(), &counters, clock.now());
        // This ends the calls that hang, so that they are measured.
        pleg.shutdown().await;
        let mut calls = self.meter.each();
        self.repeat_slow(&mut calls).await;
        let mut pods = Pods::new(&self.before, &views, clock.wall());
        pods.without_address = self.without_address(&views).await;
        let step = clock.wall_at(Instant::ORIGIN).nanos_since(self.origin);
        Evidence {
            statuses: Statuses::new(&calls, &views, problems),
            wall_clock: WallClock::new(step, clock.wall(), &views),
            pods,
            ..self.evidence
        }
    }

    /// Makes the slowest calls about single pods once more, one after the other. What is fast then was slow only
    /// because the whole node was read at once.
    async fn repeat_slow(&self, calls: &mut BTreeMap<Key, Timing>) {
        let clock = self.pleg.clock();
        let slow = calls.iter_mut().filter(|(_, timing)| is_slow(timing));
        let mut slow: Vec<(&Key, &mut Timing)> = slow.collect();
        slow.sort_by_key(|(_, timing)| Reverse(timing.longest));
        let repeat = async {
            for (key, timing) in slow {
                let began = clock.now();
                if repeat(&self.runtime, key).await.is_ok() {
                    timing.longest = timing.longest.min(clock.now().since(began));
                }
            }
        };
        let _late = tokio::time::timeout(READ, repeat).await;
    }

    /// The pods with a ready sandbox that has no address and is not on the host's network.
    async fn without_address(&self, views: &[PodView]) -> Vec<String> {
        let mut pods = BTreeSet::new();
        let reads = views.iter().filter_map(|view| {
            let sandbox = view.status.sandboxes.first()?;
            let is_asked = sandbox.state == SandboxState::Ready && sandbox.details.ips.is_empty();
            is_asked.then_some(async {
                let lacks = self.lacks_address(&sandbox.id).await;
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

    async fn lacks_address(&self, id: &Id) -> bool {
        let request = PodSandboxStatusRequest {
            pod_sandbox_id: id.to_string(),
            verbose: false,
        };
        let path = "/runtime.v1.RuntimeService/PodSandboxStatus";
        let answer = self.client.call(path, request).await;
        let status = answer.ok().and_then(|a: PodSandboxStatusResponse| a.status);
        let Some(status) = status else { return false };
        let options = status.linux.and_then(|linux| linux.namespaces?.options);
        let on_host = options.is_some_and(|options| options.network() == NamespaceMode::Node);
        let has_address = status.network.is_some_and(|network| !network.ip.is_empty());
        !on_host && !has_address
    }
}

/// Makes a call again.
async fn repeat(runtime: &CriRuntime, (operation, id): &Key) -> Result<(), CallError> {
    let (scope, id) = (Scope::Pod(id.as_str().into()), Id::from(id.as_str()));
    match *operation {
        LIST_SANDBOXES => runtime.list_sandboxes(&scope, &mut |_| ()).await,
        LIST_CONTAINERS => runtime.list_containers(&scope, &mut |_| ()).await,
        SANDBOX_STATUS => runtime.sandbox_status(&id).await.map(drop),
        _ => runtime.container_status(&id).await.map(drop),
    }
}

/// Reads every status once. The generator reads none that an event has carried, so it may not notice that a pod hangs.
async fn read_statuses(pleg: &Pleg, pods: &[PodView], until: Instant) {
    let reads = pods.iter().map(|view| {
        let now = pleg.now();
        pleg.details_newer_than(&view.status.uid, now, until.since(now))
    });
    let reads = futures::stream::iter(reads).buffer_unordered(PARALLEL);
    // What fails is in the log of calls.
    reads.for_each(async |_| ()).await;
}

/// Looks at health again and again, and counts what changes.
async fn watch(pleg: &Pleg, events: &mut Subscription, stream: &mut Generator, until: Instant) {
    let (clock, health) = (pleg.clock(), pleg.health());
    let mut looks = tokio::time::interval(LOOK);
    let end = clock.sleep_until(until);
    tokio::pin!(end);
    loop {
        tokio::select! {
            () = &mut end => return,
            _ = looks.tick() => stream.watch(&health.current(), clock.now()),
            Some(delivery) = events.next() => match delivery {
                Delivery::Event(event) if !event.initial => stream.changes += 1,
                _ => {}
            },
        }
    }
}
