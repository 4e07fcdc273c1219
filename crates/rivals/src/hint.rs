//! Upstream's evented PLEG of 1.37 ("hint"): an event that something stopped asks for a relist of
//! its pod, and that is all; the generic PLEG stays as it is (reference, 2.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pleg_core::{EventType, Instant, PodUid, WallTime};
use pleg_runtime::Runtime;
use pleg_runtime::clock::Clock;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

use crate::channel::{CAPACITY, Fifo};
use crate::relister::{Gate, Limits, Relister, Setup};
use crate::stream::{ATTEMPTS, RECEIVED, receive};
use crate::subject::{Answer, Subject, Unhealthy};

/// The defaults are upstream's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintSettings {
    /// From the end of one relist of the node to the begin of the next.
    pub period: Duration,
    /// Without a successful list for longer, the node is not ready.
    pub threshold: Duration,
    /// How often the stream is asked for in all, each time at once.
    pub attempts: u32,
}

impl Default for HintSettings {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(1),
            threshold: Duration::from_secs(180),
            attempts: ATTEMPTS,
        }
    }
}

/// Upstream's hint design with the generic PLEG beside it. When it is dropped, its tasks end.
#[derive(Debug)]
pub struct Hint<R> {
    relister: Arc<Relister<R>>,
    calls: Arc<AtomicU64>,
    _ends: DropGuard,
}

impl<R: Runtime> Hint<R> {
    /// Starts it. Call it within a tokio runtime.
    pub fn start(runtime: R, settings: &HintSettings) -> (Self, Fifo) {
        let setup = Setup {
            limits: Limits {
                period: settings.period,
                threshold: settings.threshold,
            },
            gate: Gate::off(),
            on_demand: true,
            capacity: CAPACITY,
        };
        let (relister, fifo) = Relister::new(runtime, setup);
        relister.start();
        let calls = Arc::new(AtomicU64::new(0));
        let (send, mut received) = mpsc::channel(RECEIVED);
        let (runtime, counts, attempts) =
            (relister.runtime.clone(), calls.clone(), settings.attempts);
        relister.spawn(async move {
            // No pause, and no attempt is ever given back (A7, B15).
            for _ in 0..attempts {
                counts.fetch_add(1, Ordering::Relaxed);
                receive(&*runtime, &send).await;
            }
        });
        let asks = relister.clone();
        relister.spawn(async move {
            while let Some(event) = received.recv().await {
                let pod = event.sandbox.and_then(|s| s.identity.pod);
                if let (EventType::Stopped, Some(uid)) = (event.event, pod) {
                    asks.request_relist(&uid);
                }
            }
        });
        let ends = relister.end.clone().drop_guard();
        let hint = Self {
            relister,
            calls,
            _ends: ends,
        };
        (hint, fifo)
    }

    /// How often the stream was asked for.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

impl<R: Runtime> Subject for Hint<R> {
    fn name(&self) -> &'static str {
        "hint"
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
