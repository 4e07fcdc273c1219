//! Upstream's generic PLEG as of 1.36: lists every second, and on demand one pod at once.

use std::sync::Arc;
use std::time::Duration;

use pleg_core::{Instant, PodUid, WallTime};
use pleg_runtime::Runtime;
use pleg_runtime::clock::Clock;
use tokio_util::sync::DropGuard;

use crate::cache::Cache;
use crate::channel::{CAPACITY, Fifo};
use crate::relister::{Gate, Limits, Relister, Setup};
use crate::subject::{Answer, Subject, Unhealthy};

/// The defaults are upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenericSettings {
    /// From the end of one relist to the begin of the next (genericPlegRelistPeriod).
    pub period: Duration,
    /// Without a successful list for longer, the node is not ready (genericPlegRelistThreshold).
    pub threshold: Duration,
    /// Gate PLEGOnDemandRelist (1.36): whether a pod can be relisted alone.
    pub on_demand: bool,
    /// How many events the channel holds (plegChannelCapacity).
    pub capacity: usize,
}

impl Default for GenericSettings {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(1),
            threshold: Duration::from_secs(180),
            on_demand: true,
            capacity: CAPACITY,
        }
    }
}

/// Upstream's generic PLEG. When it is dropped, its tasks end.
#[derive(Debug)]
pub struct Generic<R> {
    relister: Arc<Relister<R>>,
    _ends: DropGuard,
}

impl<R: Runtime> Generic<R> {
    /// One that relists by itself, at once and then every period. Call it within a tokio runtime.
    pub fn start(runtime: R, settings: GenericSettings) -> (Self, Fifo) {
        let (generic, fifo) = Self::by_hand(runtime, settings);
        generic.relister.start();
        (generic, fifo)
    }

    /// One that relists only when it is told to.
    pub fn by_hand(runtime: R, settings: GenericSettings) -> (Self, Fifo) {
        let setup = Setup {
            limits: Limits {
                period: settings.period,
                threshold: settings.threshold,
            },
            gate: Gate::off(),
            on_demand: settings.on_demand,
            capacity: settings.capacity,
        };
        let (relister, fifo) = Relister::new(runtime, setup);
        let ends = relister.end.clone().drop_guard();
        let generic = Self {
            relister,
            _ends: ends,
        };
        (generic, fifo)
    }

    /// Lists the node and acts on what has changed; returns when everything was inspected.
    pub async fn relist(&self) {
        self.relister.relist().await;
    }

    /// Its cache.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.relister.cache
    }
}

impl<R: Runtime> Subject for Generic<R> {
    fn name(&self) -> &'static str {
        "generic"
    }

    fn clock(&self) -> Clock {
        self.relister.clock.clock()
    }

    fn wall(&self) -> WallTime {
        self.relister.clock.wall()
    }

    fn get(&self, uid: &PodUid) -> Answer {
        self.relister.cache.get(uid)
    }

    async fn newer_than(&self, uid: &PodUid, after: Instant) -> Answer {
        let after = self.relister.clock.time(after);
        self.relister.cache.newer_than(uid, after).await
    }

    fn request_relist(&self, uid: &PodUid) {
        self.relister.request_relist(uid);
    }

    fn request_reinspect(&self, uid: &PodUid) {
        self.relister.request_reinspect(uid);
    }

    fn healthy(&self) -> Result<(), Unhealthy> {
        self.relister.healthy()
    }

    fn discarded(&self) -> Option<u64> {
        Some(self.relister.channel.discarded())
    }

    async fn shutdown(&self) {
        self.relister.shutdown().await;
    }
}
