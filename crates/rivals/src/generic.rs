//! Upstream's generic PLEG of 1.36: lists every second, and relists one pod on demand.

use std::sync::Arc;
use std::time::Duration;

use pleg_runtime::Runtime;
use tokio_util::sync::DropGuard;

use crate::cache::Cache;
use crate::channel::{CAPACITY, Fifo};
use crate::relister::{Gate, Limits, Relister, RelisterConfig};
use crate::subject::Port;

/// The settings of [`Generic`]. The defaults are upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenericSettings {
    /// The time between the end of a relist and the start of the next (genericPlegRelistPeriod).
    pub period: Duration,
    /// The feature gate PLEGOnDemandRelist (1.36): whether a single pod can be relisted.
    pub on_demand: bool,
    /// The capacity of the channel (plegChannelCapacity).
    pub capacity: usize,
}

impl Default for GenericSettings {
    fn default() -> Self {
        Self {
            period: Limits::GENERIC.period,
            on_demand: true,
            capacity: CAPACITY,
        }
    }
}

/// Upstream's generic PLEG. Dropping it ends its tasks.
#[derive(Debug)]
pub struct Generic<R> {
    relister: Arc<Relister<R>>,
    _cancel_on_drop: DropGuard,
}

impl<R: Runtime> Generic<R> {
    /// Starts a generator that relists at once and then periodically. Must be called inside a tokio
    /// runtime.
    pub fn start(runtime: R, settings: GenericSettings) -> (Self, Fifo) {
        let (generic, fifo) = Self::without_timer(runtime, settings);
        generic.relister.start();
        (generic, fifo)
    }

    /// Creates a generator that relists only when [`relist`](Self::relist) is called.
    pub fn without_timer(runtime: R, settings: GenericSettings) -> (Self, Fifo) {
        let config = RelisterConfig {
            limits: Limits {
                period: settings.period,
                ..Limits::GENERIC
            },
            gate: Gate::off(),
            on_demand: settings.on_demand,
            capacity: settings.capacity,
        };
        let (relister, fifo) = Relister::new(runtime, config);
        let cancel_on_drop = relister.cancel.clone().drop_guard();
        let generic = Self {
            relister,
            _cancel_on_drop: cancel_on_drop,
        };
        (generic, fifo)
    }

    /// Lists the node and handles all changes. Returns when all changed pods were inspected.
    pub async fn relist(&self) {
        self.relister.relist().await;
    }

    /// The number of events that did not fit into the channel.
    #[must_use]
    pub fn discarded(&self) -> u64 {
        self.relister.channel.discarded()
    }

    /// The cache.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.relister.cache
    }
}

impl<R: Runtime> Port for Generic<R> {
    type Runtime = R;
    const NAME: &'static str = "generic";

    fn relister(&self) -> &Relister<R> {
        &self.relister
    }
}
