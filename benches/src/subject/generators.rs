//! The generators as subjects: upstream's ports, and ours.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::StreamExt as _;
use pleg::{ContainerState, Delivery, Pleg, Subscription};
use pleg_core::{Cause, Details, Id, LifecycleType, Mode, PodUid, ReportedState, WallTime};
use pleg_cri::v1::ContainerState as State;
use pleg_runtime::{MapEvents, Runtime};
use rivals::{
    Evented, EventedSettings, Fifo, Generic, GenericSettings, Hint, HintSettings, Subject as Rival,
};

use super::control::{How, control};
use super::plain::Plain;
use super::receipts::Receipts;
use super::{Kind, Settings};
use crate::Allocated;

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

    /// A full list, and all that is done with it.
    fn relist(&self) -> impl Future<Output = ()> + Send;

    /// Whether it says of itself that it knows what exists, where it does say.
    fn synced(&self) -> bool {
        true
    }

    /// What it says of its health.
    fn says(&self) -> Says;

    /// How often it lists everything at present, in ns, where it says so.
    fn period(&self) -> Option<u64> {
        None
    }

    /// What it counts itself, by name: reads by cause, and what was odd.
    fn counts(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// What a generator says of its health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    /// Nothing is wrong.
    Well,
    /// Something is, but the node may go on.
    Degraded,
    /// The node may not go on.
    NotReady,
}

/// What tells of changes: the pod, and the container or sandbox.
pub(super) trait Told: Send + 'static {
    fn next(&mut self) -> impl Future<Output = Option<(PodUid, Option<Id>)>> + Send;

    /// Takes everything that is there without waiting; of how many containers' ends that tells.
    fn take_ends(&mut self) -> u64;
}

impl Told for Fifo {
    async fn next(&mut self) -> Option<(PodUid, Option<Id>)> {
        Self::next(self).await.map(|event| (event.uid, event.data))
    }

    fn take_ends(&mut self) -> u64 {
        let mut ends = 0;
        while let Some(event) = self.try_next() {
            ends += u64::from(event.event == LifecycleType::ContainerDied);
        }
        ends
    }
}

impl Told for Subscription {
    async fn next(&mut self) -> Option<(PodUid, Option<Id>)> {
        loop {
            // What it missed, should it lag, is found by looking.
            if let Delivery::Event(event) = Self::next(self).await? {
                return Some((event.uid, event.subject.map(|s| s.id)));
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

    async fn relist(&self) {
        // One that fails is counted by the runtime nonetheless, and shows in what it took.
        let _ = self.relist_now().await;
    }

    fn synced(&self) -> bool {
        self.health().current().synced
    }

    fn says(&self) -> Says {
        let health = self.health();
        match (health.ready(), health.degraded().is_empty()) {
            (Err(_), _) => Says::NotReady,
            (Ok(()), false) => Says::Degraded,
            (Ok(()), true) => Says::Well,
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

    fn relist(&self) -> impl Future<Output = ()> + Send {
        (self.relist)(self.subject.clone())
    }

    fn says(&self) -> Says {
        self.subject
            .healthy()
            .map_or(Says::NotReady, |()| Says::Well)
    }
}

async fn nothing<S>(_: Arc<S>) {}

const fn never<S>(_: &S, _: i64) -> bool {
    false
}

/// Runs that generator until the harness closes its end.
pub(super) async fn run(settings: &Settings, allocated: Allocated) -> Result<()> {
    let runtime = settings.runtime()?;
    match settings.kind {
        Kind::BestGeneric | Kind::Ours => over(runtime, settings, allocated).await,
        _ => over(Plain(runtime), settings, allocated).await,
    }
}

async fn over<R: Runtime>(runtime: R, settings: &Settings, allocated: Allocated) -> Result<()> {
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
        start(stamped, settings, Some(receipts), allocated).await
    } else {
        start(runtime, settings, None, allocated).await
    }
}

async fn start<R: Runtime>(
    runtime: R,
    settings: &Settings,
    receipts: Option<Receipts>,
    allocated: Allocated,
) -> Result<()> {
    let how = How {
        receipts,
        stalled: settings.stalled,
        allocated,
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
            let (generic, told) = start(runtime, as_of_136);
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
            control(port, told, how).await
        }
        Kind::Evented => {
            let (evented, told) = Evented::start(runtime, &EventedSettings::default());
            let subject = Arc::new(evented);
            let port = Port {
                subject,
                relist: nothing,
                verified: never,
            };
            control(port, told, how).await
        }
        Kind::Hint => {
            let (hint, told) = Hint::start(runtime, &HintSettings::default());
            let subject = Arc::new(hint);
            let port = Port {
                subject,
                relist: nothing,
                verified: never,
            };
            control(port, told, how).await
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
            let told = builder.subscribe();
            let pleg = builder.spawn()?;
            control(pleg, told, how).await
        }
    }
}
