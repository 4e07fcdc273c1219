//! The generators as subjects: the ports of upstream's PLEGs, and this project's.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use pleg::{ContainerState, Delivery, Pleg, Subscription};
use pleg_core::{Details, Id, Instant, LifecycleType, Mode, PodUid, ReportedState, WallTime};
use pleg_cri::CriClient;
use pleg_cri::v1::ContainerState as State;
use pleg_runtime::Runtime;
use pleg_runtime::clock::Clock;
use rivals::{Evented, EventedSettings, Fifo, Generic, GenericSettings, Hint, Subject as Rival};

use super::control::{Options, control};
use super::full_decode::FullDecode;
use super::map_events::MapEvents;
use super::receipts::Receipts;
use super::workers::Wake;
use super::{Kind, Settings};
use crate::AllocationCounter;

/// How long a pod worker waits for its status. Upstream's worker has no time limit.
const WORKER_DEADLINE: Duration = Duration::from_secs(600);

/// A container in a cache.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) id: &'a Id,
    /// The state, as a number of CRI.
    pub(super) state: i32,
    /// The time at which the container entered this state, as reported by the runtime.
    pub(super) since: Option<WallTime>,
}

/// A generator with a cache.
pub(super) trait Subject: Send + Sync + 'static {
    /// Calls `row` for every container of the pod in the cache.
    fn visit_containers(&self, uid: &PodUid, row: &mut dyn FnMut(Row<'_>));

    /// Whether the pod has evidence that was read after a wall-clock time. Always false for a subject
    /// without such evidence.
    fn verified(&self, uid: &PodUid, after: i64) -> bool;

    /// The clock of [`newer_than`](Self::newer_than).
    fn clock(&self) -> Clock;

    /// Waits until the cache has a status of the pod that is newer than `after`.
    fn newer_than(&self, uid: &PodUid, after: Instant) -> impl Future<Output = ()> + Send;

    /// Notifies the subject that a pod worker changed the pod.
    fn notify_own_change(&self, uid: &PodUid);

    /// Makes a full list and processes it.
    fn relist(&self) -> impl Future<Output = ()> + Send;

    /// Whether the subject reports that it is synced; true if it does not report this.
    fn synced(&self) -> bool {
        true
    }

    /// Returns the reported health.
    fn health_report(&self) -> HealthReport;

    /// Returns the current relist period in ns, if the subject reports it.
    fn period(&self) -> Option<u64> {
        None
    }
}

/// The health that a generator reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealthReport {
    /// No problem.
    Well,
    /// A problem that keeps the node ready.
    Degraded,
    /// A problem that makes the node not ready.
    NotReady,
}

/// An announcement.
#[derive(Debug)]
pub(super) struct Announcement {
    pub(super) uid: PodUid,
    /// The container or sandbox.
    pub(super) id: Option<Id>,
    /// Why the pod's worker runs, as in a kubelet; `None` if it does not run.
    pub(super) wake_reason: Option<Wake>,
}

const fn wake_reason(event: LifecycleType) -> Option<Wake> {
    match event {
        LifecycleType::ContainerDied => Some(Wake::Died),
        LifecycleType::ContainerChanged | LifecycleType::ContainerRemoved => None,
        _ => Some(Wake::Changed),
    }
}

/// The announcements of a generator.
pub(super) trait Announcements: Send + 'static {
    /// Waits for the next announcement.
    fn next(&mut self) -> impl Future<Output = Option<Announcement>> + Send;

    /// Reads all pending announcements without waiting. Returns the number of exits among them.
    fn count_exits(&mut self) -> u64;
}

impl Announcements for Fifo {
    async fn next(&mut self) -> Option<Announcement> {
        let event = Self::next(self).await?;
        Some(Announcement {
            wake_reason: wake_reason(event.event),
            uid: event.uid,
            id: event.data,
        })
    }

    fn count_exits(&mut self) -> u64 {
        let mut exits = 0;
        while let Some(event) = self.try_next() {
            exits += u64::from(event.event == LifecycleType::ContainerDied);
        }
        exits
    }
}

impl Announcements for Subscription {
    async fn next(&mut self) -> Option<Announcement> {
        loop {
            // A lagging consumer finds missed changes when it reads the cache.
            if let Delivery::Event(event) = Self::next(self).await? {
                return Some(Announcement {
                    wake_reason: wake_reason(event.event),
                    uid: event.uid,
                    id: event.subject.map(|s| s.id),
                });
            }
        }
    }

    fn count_exits(&mut self) -> u64 {
        let mut exits = 0;
        while let Some(delivery) = self.try_next() {
            let event = match delivery {
                Delivery::Event(event) => event.event,
                _ => continue,
            };
            exits += u64::from(event == LifecycleType::ContainerDied);
        }
        exits
    }
}

impl Subject for Pleg {
    fn visit_containers(&self, uid: &PodUid, row: &mut dyn FnMut(Row<'_>)) {
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
        // The worker reads the pod afterwards, which also contains the error.
        let _ = Self::newer_than(self, uid, after, WORKER_DEADLINE).await;
    }

    /// Does nothing, because [`newer_than`](Pleg::newer_than) reads the pod.
    fn notify_own_change(&self, _: &PodUid) {}

    async fn relist(&self) {
        // The runtime counts a failed relist too, and its duration is measured.
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
}

/// A port of an upstream PLEG, with functions that the common trait lacks.
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
    fn visit_containers(&self, uid: &PodUid, row: &mut dyn FnMut(Row<'_>)) {
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

    fn notify_own_change(&self, uid: &PodUid) {
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

/// A port without relists on demand.
async fn no_relist<S>(_: Arc<S>) {}

/// A port without evidence.
const fn not_verified<S>(_: &S, _: i64) -> bool {
    false
}

/// Runs the generator until the harness closes stdin.
pub(super) async fn run(settings: &Settings, allocated: AllocationCounter) -> Result<()> {
    let runtime = settings.runtime()?;
    let client = runtime.client();
    match settings.kind {
        Kind::Polling | Kind::Ours => {
            Box::pin(start_with_runtime(runtime, client, settings, allocated)).await
        }
        _ => {
            Box::pin(start_with_runtime(
                FullDecode(runtime),
                client,
                settings,
                allocated,
            ))
            .await
        }
    }
}

async fn start_with_runtime<R: Runtime>(
    runtime: R,
    client: CriClient,
    settings: &Settings,
    allocated: AllocationCounter,
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
    allocated: AllocationCounter,
) -> Result<()> {
    let options = Options {
        receipts,
        stalled: settings.stalled,
        allocated,
        workers: settings.workers,
        client,
    };
    match settings.kind {
        Kind::Generic => {
            let start = if settings.without_timer {
                Generic::without_timer
            } else {
                Generic::start
            };
            let (generic, announcements) = start(runtime, GenericSettings::default());
            let subject = Arc::new(generic);
            if settings.without_timer {
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
                relist: no_relist,
                verified: not_verified,
            };
            control(port, announcements, options).await
        }
        Kind::Hint => {
            let (hint, announcements) = Hint::start(runtime);
            let subject = Arc::new(hint);
            let port = Port {
                subject,
                relist: no_relist,
                verified: not_verified,
            };
            control(port, announcements, options).await
        }
        _ => {
            let mode = match settings.kind {
                Kind::Polling => Mode::Polling,
                _ => Mode::Evented,
            };
            let mut builder = Pleg::builder(runtime).mode(mode);
            if settings.probing {
                let mut core_settings = pleg::core::Settings::default();
                core_settings.mode = mode;
                core_settings.probe_period = Duration::from_secs(1);
                builder = builder.settings(core_settings);
            }
            let announcements = builder.subscribe();
            let pleg = builder.spawn()?;
            control(pleg, announcements, options).await
        }
    }
}
