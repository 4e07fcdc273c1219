//! The generators as subjects: upstream's ports, and ours.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use pleg::{ContainerState, Delivery, Pleg, Subscription};
use pleg_core::{
    Cause, Details, Id, Instant, LifecycleType, Mode, PodUid, ReportedState, WallTime,
};
use pleg_cri::CriClient;
use pleg_cri::v1::ContainerState as State;
use pleg_runtime::clock::Clock;
use pleg_runtime::{MapEvents, Runtime};
use rivals::{
    Evented, EventedSettings, Fifo, Generic, GenericSettings, Hint, HintSettings, Subject as Rival,
};

use super::control::{Options, control};
use super::plain::Plain;
use super::receipts::Receipts;
use super::workers::Wake;
use super::{Kind, Settings};
use crate::Allocated;

/// How long a pod worker waits for its status. Upstream's waits for ever.
const WORKER_DEADLINE: Duration = Duration::from_secs(600);

/// A container as a cache shows it.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) id: &'a Id,
    /// As CRI numbers it.
    pub(super) state: i32,
    /// When it came into that state, as the runtime says.
    pub(super) since: Option<WallTime>,
}

/// A generator with a cache.
pub(super) trait Subject: Send + Sync + 'static {
    /// What it shows of the pod.
    fn shows(&self, uid: &PodUid, row: &mut dyn FnMut(Row<'_>));

    /// Whether evidence begun after that moment of the wall clock stands for the pod; a subject that
    /// keeps no such evidence says no.
    fn verified(&self, uid: &PodUid, after: i64) -> bool;

    /// The clock of [`newer_than`](Self::newer_than).
    fn clock(&self) -> Clock;

    /// Waits until the cache has a status of the pod that is newer than that.
    fn newer_than(&self, uid: &PodUid, after: Instant) -> impl Future<Output = ()> + Send;

    /// A pod worker has changed the pod.
    fn has_changed(&self, uid: &PodUid);

    /// A full list, and all that is done with it.
    fn relist(&self) -> impl Future<Output = ()> + Send;

    /// Whether it says of itself that it knows what exists, where it does say.
    fn synced(&self) -> bool {
        true
    }

    /// Its health.
    fn health_report(&self) -> HealthReport;

    /// How often it lists everything at present, in ns, if it reports that.
    fn period(&self) -> Option<u64> {
        None
    }

    /// What it counts itself, by name: reads by cause, and what was odd.
    fn counts(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// The health that a generator reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealthReport {
    /// Nothing is wrong.
    Well,
    /// Something is, but the node may go on.
    Degraded,
    /// The node may not go on.
    NotReady,
}

/// An announcement.
#[derive(Debug)]
pub(super) struct Announced {
    pub(super) uid: PodUid,
    /// The container or sandbox.
    pub(super) id: Option<Id>,
    /// Whether it causes a run of the pod's worker, as in a kubelet.
    pub(super) wakes: Option<Wake>,
}

const fn wakes(event: LifecycleType) -> Option<Wake> {
    match event {
        LifecycleType::ContainerDied => Some(Wake::Died),
        LifecycleType::ContainerChanged | LifecycleType::ContainerRemoved => None,
        _ => Some(Wake::Changed),
    }
}

/// The announcements of a generator.
pub(super) trait Announcements: Send + 'static {
    fn next(&mut self) -> impl Future<Output = Option<Announced>> + Send;

    /// Takes everything that is there without waiting; the number of containers that it announces as exited.
    fn take_ends(&mut self) -> u64;
}

impl Announcements for Fifo {
    async fn next(&mut self) -> Option<Announced> {
        let event = Self::next(self).await?;
        Some(Announced {
            wakes: wakes(event.event),
            uid: event.uid,
            id: event.data,
        })
    }

    fn take_ends(&mut self) -> u64 {
        let mut ends = 0;
        while let Some(event) = self.try_next() {
            ends += u64::from(event.event == LifecycleType::ContainerDied);
        }
        ends
    }
}

impl Announcements for Subscription {
    async fn next(&mut self) -> Option<Announced> {
        loop {
            // What it missed, should it lag, is found by looking.
            if let Delivery::Event(event) = Self::next(self).await? {
                return Some(Announced {
                    wakes: wakes(event.event),
                    uid: event.uid,
                    id: event.subject.map(|s| s.id),
                });
            }
        }
    }

    fn take_ends(&mut self) -> u64 {
        let mut ends = 0;
        while let Some(delivery) = self.try_next() {
            let event = match delivery {
                Delivery::Event(event) => event.event,
                _ => continue,
            };
            ends += u64::from(event == LifecycleType::ContainerDied);
        }
        ends
    }
}

impl Subject for Pleg {
    fn shows(&self, uid: &PodUid, row: &mut dyn FnMut(Row<'_>)) {
        for container in &self.get(uid).status.containers {
            let details = &container.details;
            let (state, since) = match container.state {
                ContainerState::Created => (State::ContainerCreated, container.created_at),
                ContainerState::Running => (State::ContainerRunning, details.started_at),
                ContainerState::Exited => (State::ContainerExited, details.finished_at),
                _ => (State::ContainerUnknown, None),
            };
            row(Row {
                id: &container.id,
                state: state.into(),
                since,
            });
        }
    }

    fn verified(&self, uid: &PodUid, after: i64) -> bool {
        let ago = self.clock().wall().as_nanos() - after;
        let as_of = self.get(uid).as_of;
        as_of.is_some_and(|as_of| self.now().nanos_since(as_of) < ago)
    }

    fn clock(&self) -> Clock {
        Self::clock(self)
    }

    async fn newer_than(&self, uid: &PodUid, after: Instant) {
        // A worker decides by the view, which shows the error.
        let _ = Self::newer_than(self, uid, after, WORKER_DEADLINE).await;
    }

    /// Nothing: [`newer_than`](Pleg::newer_than) reads.
    fn has_changed(&self, _: &PodUid) {}

    async fn relist(&self) {
        // One that fails is counted by the runtime nonetheless, and shows in what it took.
        let _ = self.relist_now().await;
    }

    fn synced(&self) -> bool {
        self.health().current().synced
    }

    fn health_report(&self) -> HealthReport {
        let health = self.health();
        match (health.ready(), health.degraded().is_empty()) {
            (Err(_), _) => HealthReport::NotReady,
            (Ok(()), false) => HealthReport::Degraded,
            (Ok(()), true) => HealthReport::Well,
        }
    }

    fn period(&self) -> Option<u64> {
        u64::try_from(self.health().current().period.as_nanos()).ok()
    }

    fn counts(&self) -> BTreeMap<String, u64> {
        let counters = self.counters();
        let by_cause = Cause::ALL.iter().map(|&cause| {
            let name = format!("inspected_{cause:?}").to_lowercase();
            (name, counters.inspections_by_cause[cause])
        });
        let others = [
            ("exit_reads", counters.exit_reads),
            ("events_taken", counters.events.total()),
            ("events_incomplete", counters.events_incomplete),
            ("events_implausible", counters.events_implausible),
            ("missed", counters.missed.total()),
            ("contradictions", counters.contradictions),
            ("overruled", counters.overruled),
            ("relists", counters.lists),
            ("inspections", counters.inspections),
            ("streams_lost", counters.streams_lost),
        ];
        let others = others.map(|(name, n)| (name.to_owned(), n));
        by_cause.chain(others).filter(|(_, n)| *n > 0).collect()
    }
}

/// A port of one of upstream's, with what it can do beyond the common trait.
struct Port<S, A, V> {
    subject: Arc<S>,
    relist: A,
    verified: V,
}

impl<S, A, F, V> Subject for Port<S, A, V>
where
    S: Rival,
    A: Fn(Arc<S>) -> F + Send + Sync + 'static,
    F: Future<Output = ()> + Send,
    V: Fn(&S, i64) -> bool + Send + Sync + 'static,
{
    fn shows(&self, uid: &PodUid, row: &mut dyn FnMut(Row<'_>)) {
        for report in &self.subject.get(uid).status.containers {
            let Details::Container(details) = &report.details else {
                continue;
            };
            let (state, since) = match report.shown {
                ReportedState::Created => (State::ContainerCreated, report.identity.created_at),
                ReportedState::Running => (State::ContainerRunning, details.started_at),
                ReportedState::Exited => (State::ContainerExited, details.finished_at),
                ReportedState::Unknown => (State::ContainerUnknown, None),
            };
            row(Row {
                id: &report.id,
                state: state.into(),
                since,
            });
        }
    }

    fn verified(&self, _: &PodUid, after: i64) -> bool {
        (self.verified)(&self.subject, after)
    }

    fn clock(&self) -> Clock {
        self.subject.clock()
    }

    async fn newer_than(&self, uid: &PodUid, after: Instant) {
        self.subject.newer_than(uid, after).await;
    }

    fn has_changed(&self, uid: &PodUid) {
        self.subject.request_relist(uid);
    }

    fn relist(&self) -> impl Future<Output = ()> + Send {
        (self.relist)(self.subject.clone())
    }

    fn health_report(&self) -> HealthReport {
        self.subject
            .healthy()
            .map_or(HealthReport::NotReady, |()| HealthReport::Well)
    }
}

async fn nothing<S>(_: Arc<S>) {}

const fn never<S>(_: &S, _: i64) -> bool {
    false
}

/// Runs that generator until the harness closes its end.
pub(super) async fn run(settings: &Settings, allocated: Allocated) -> Result<()> {
    let runtime = settings.runtime()?;
    let client = runtime.client();
    match settings.kind {
        Kind::BestGeneric | Kind::Ours => {
            Box::pin(over(runtime, client, settings, allocated)).await
        }
        _ => Box::pin(over(Plain(runtime), client, settings, allocated)).await,
    }
}

async fn over<R: Runtime>(
    runtime: R,
    client: CriClient,
    settings: &Settings,
    allocated: Allocated,
) -> Result<()> {
    if settings.stamp {
        let receipts = Receipts::default();
        let recorded = receipts.clone();
        let stamped = MapEvents::new(runtime, move |events: R::Events| {
            let receipts = recorded.clone();
            events.inspect(move |event| {
                if let Ok(event) = event {
                    receipts.received(event);
                }
            })
        });
        start(stamped, client, settings, Some(receipts), allocated).await
    } else {
        start(runtime, client, settings, None, allocated).await
    }
}

async fn start<R: Runtime>(
    runtime: R,
    client: CriClient,
    settings: &Settings,
    receipts: Option<Receipts>,
    allocated: Allocated,
) -> Result<()> {
    let options = Options {
        receipts,
        stalled: settings.stalled,
        allocated,
        workers: settings.workers,
        client,
    };
    match settings.kind {
        Kind::Generic | Kind::GenericPlain => {
            let as_of_136 = GenericSettings {
                on_demand: settings.kind == Kind::Generic,
                ..GenericSettings::default()
            };
            let start = if settings.by_hand {
                Generic::by_hand
            } else {
                Generic::start
            };
            let (generic, announcements) = start(runtime, as_of_136);
            let subject = Arc::new(generic);
            if settings.by_hand {
                subject.relist().await;
            }
            let relist = |of: Arc<Generic<R>>| async move { of.relist().await };
            let verified =
                |of: &Generic<R>, after| of.cache().global().is_some_and(|t| t.as_nanos() > after);
            let port = Port {
                subject,
                relist,
                verified,
            };
            control(port, announcements, options).await
        }
        Kind::Evented => {
            let (evented, announcements) = Evented::start(runtime, &EventedSettings::default());
            let subject = Arc::new(evented);
            let port = Port {
                subject,
                relist: nothing,
                verified: never,
            };
            control(port, announcements, options).await
        }
        Kind::Hint => {
            let (hint, announcements) = Hint::start(runtime, &HintSettings::default());
            let subject = Arc::new(hint);
            let port = Port {
                subject,
                relist: nothing,
                verified: never,
            };
            control(port, announcements, options).await
        }
        _ => {
            let mode = match settings.kind {
                Kind::BestGeneric => Mode::Polling,
                _ => Mode::Evented,
            };
            let mut builder = Pleg::builder(runtime).mode(mode);
            if settings.probing {
                let mut often = pleg::core::Settings::default();
                often.mode = mode;
                often.probe_period = Duration::from_secs(1);
                builder = builder.settings(often);
            }
            let announcements = builder.subscribe();
            let pleg = builder.spawn()?;
            control(pleg, announcements, options).await
        }
    }
}
