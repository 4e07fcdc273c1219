//! Reads the node for some time, as an agent does.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use pleg::core::{Id, Instant, Kind, PodView, SandboxState, Settings};
use pleg::runtime::clock::Clock;
use pleg::runtime::{Runtime as _, Scope};
use pleg::{Delivery, Pleg, Subscription};
use pleg_cri::v1::{NamespaceMode, PodSandboxStatusRequest, PodSandboxStatusResponse};
use pleg_cri::{CriClient, CriConfig, CriRuntime, diagnose};

use super::lists::{self, RECEIVED};
use super::pods::Pods;
use super::statuses::{Problem, Statuses, is_slow};
use super::wall_clock::{Reading, WallClock};
use super::{Conditions, Evidence, Unusable};
use crate::args::EventsPolicy;
use crate::connect::Target;
use crate::meter::{Key, Meter, Subject, Timing};
use crate::picture::generator::Generator;
use crate::runtime_calls::LIST_SANDBOXES;

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
    clock: Clock,
    events: Subscription,
    meter: Meter,
    runtime: CriRuntime,
    client: CriClient,
    began: Reading,
    before: Vec<PodView>,
    evidence: Evidence,
}

impl Session {
    /// Starts to read the node. Returns when all of it has been read, or some seconds later.
    pub(crate) async fn start(
        target: &Target,
        events: EventsPolicy,
        began: Reading,
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
        let endpoint = target.endpoint()?;
        let config = CriConfig::new(endpoint.clone())
            .with_message_limit(RECEIVED)
            .with_unary_lists();
        let session = Self {
            runtime: CriRuntime::new(config.with_call_deadline(lists::DEADLINE))?,
            client: target.client(lists::DEADLINE)?,
            clock: pleg.clock(),
            pleg,
            events,
            meter,
            began,
            before: Vec::new(),
            evidence: Evidence {
                endpoint: endpoint.to_string(),
                simulated: target.is_embedded(),
                ..Evidence::default()
            },
        };
        Ok(session.read().await)
    }

    async fn read(mut self) -> Self {
        // If it fails, there is nothing to compare with.
        let _late = tokio::time::timeout(READ, self.pleg.wait_until_synced()).await;
        self.before = self.pleg.snapshot();
        self
    }

    /// Reads the node for this time.
    pub(crate) async fn watch(&mut self, duration: Duration) {
        let until = self.clock.now().after(duration);
        let endpoint = self.runtime.config().endpoint.clone();
        let (pleg, clock) = (&self.pleg, self.clock);
        let stream = &mut self.evidence.stream;
        let (found, conditions, lists, (), ()) = tokio::join!(
            diagnose(&endpoint),
            self.client.status(),
            lists::collect(&self.runtime, clock, until),
            watch(pleg, &mut self.events, stream, until),
            read_statuses(pleg, &self.before, until),
        );
        match found {
            Ok(version) => {
                self.evidence.name = version.name;
                self.evidence.version = version.version;
            }
            Err(error) => self.evidence.unusable = Some(Unusable::from(error)),
        }
        self.evidence.conditions = Conditions::from(conditions);
        self.evidence.lists = lists;
    }

    /// Reads the node once more, and returns what was found.
    pub(crate) async fn end(mut self) -> Evidence {
        // If it fails, what is known is old, and health says so.
        let _late = tokio::time::timeout(READ, self.pleg.relist_now()).await;
        let (now, views) = (self.clock.now(), self.pleg.snapshot());
        let health = self.pleg.health();
        let problems = health.pod_problems();
        let problems = problems.iter().map(|p| Problem::new(p, now)).collect();
        let mut evidence = std::mem::take(&mut self.evidence);
        let mut calls = self.meter.each();
        self.repeat_slow(&mut calls).await;
        evidence.statuses = Statuses::new(&calls, &views, problems);
        evidence
            .stream
            .end(&health.current(), &self.pleg.counters(), now);
        evidence.wall_clock = WallClock::new(self.began, &views);
        evidence.pods = Pods::new(&self.before, &views, self.clock.wall());
        evidence.pods.without_address = self.without_address(&views).await;
        self.pleg.shutdown().await;
        evidence
    }

    /// Makes the slowest calls about single pods once more, one after the other. What is fast then was slow only
    /// because the whole node was read at once.
    async fn repeat_slow(&self, calls: &mut BTreeMap<Key, Timing>) {
        let mut slow: Vec<_> = calls
            .iter_mut()
            .filter(|(_, timing)| is_slow(timing))
            .collect();
        slow.sort_by_key(|(_, timing)| Reverse(timing.longest));
        let repeat = async {
            for (key, timing) in slow {
                let began = self.clock.now();
                let answered = read(&self.runtime, key).await;
                if answered {
                    timing.longest = timing.longest.min(self.clock.now().since(began));
                }
            }
        };
        let _late = tokio::time::timeout(READ, repeat).await;
    }

    /// The pods with a ready sandbox that has no address and is not on the host's network.
    async fn without_address(&self, views: &[PodView]) -> Vec<String> {
        let ready = |view: &&PodView| {
            let sandbox = view.status.sandboxes.first();
            sandbox.is_some_and(|s| s.state == SandboxState::Ready && s.details.ips.is_empty())
        };
        let asked = views.iter().filter(ready).filter_map(|view| {
            let sandbox = view.status.sandboxes.first()?;
            Some(async {
                let lacks = self.lacks_address(&sandbox.id).await;
                lacks.then(|| view.status.uid.to_string())
            })
        });
        let mut answers = futures::stream::iter(asked).buffer_unordered(PARALLEL);
        let mut pods = Vec::new();
        let collect = async {
            while let Some(pod) = answers.next().await {
                pods.extend(pod);
            }
        };
        let _late = tokio::time::timeout(READ, collect).await;
        pods.sort();
        pods
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

/// Makes a call of the log again. Returns whether it was answered.
async fn read(runtime: &CriRuntime, (operation, subject): &Key) -> bool {
    match subject {
        Subject::Node | Subject::Runtime => false,
        Subject::Id(id) if *operation == Kind::Sandbox.status_operation() => {
            runtime.sandbox_status(id).await.is_ok()
        }
        Subject::Id(id) => runtime.container_status(id).await.is_ok(),
        Subject::Pod(uid) => {
            let scope = Scope::Pod(uid.clone());
            match *operation {
                LIST_SANDBOXES => runtime.list_sandboxes(&scope, &mut |_| ()).await.is_ok(),
                _ => runtime.list_containers(&scope, &mut |_| ()).await.is_ok(),
            }
        }
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
