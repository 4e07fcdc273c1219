//! Upstream's evented PLEG of 1.37 ("hint"): a STOPPED event only requests a relist of its pod. The
//! generic PLEG is unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pleg_core::EventType;
use pleg_runtime::Runtime;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

use crate::channel::{CAPACITY, Fifo};
use crate::relister::{Gate, Limits, Relister, RelisterConfig};
use crate::stream::{MAX_ATTEMPTS, QUEUE_CAPACITY, receive};
use crate::subject::Port;

/// Upstream's hint design, with the generic PLEG. Dropping it ends its tasks.
#[derive(Debug)]
pub struct Hint<R> {
    relister: Arc<Relister<R>>,
    subscribes: Arc<AtomicU64>,
    _cancel_on_drop: DropGuard,
}

impl<R: Runtime> Hint<R> {
    /// Starts the generator. Must be called inside a tokio runtime.
    pub fn start(runtime: R) -> (Self, Fifo) {
        Self::with_attempts(runtime, MAX_ATTEMPTS)
    }

    /// Starts a generator that subscribes so often in total, without pauses.
    pub fn with_attempts(runtime: R, attempts: u32) -> (Self, Fifo) {
        let config = RelisterConfig {
            limits: Limits::GENERIC,
            gate: Gate::off(),
            on_demand: true,
            capacity: CAPACITY,
        };
        let (relister, fifo) = Relister::new(runtime, config);
        relister.start();
        let subscribes = Arc::new(AtomicU64::new(0));
        let (send, mut received) = mpsc::channel(QUEUE_CAPACITY);
        let (runtime, counter) = (relister.runtime.clone(), subscribes.clone());
        relister.spawn(async move {
            // There is no pause, and a successful attempt counts, too (A7, B15).
            for _ in 0..attempts {
                counter.fetch_add(1, Ordering::Relaxed);
                receive(&*runtime, &send).await;
            }
        });
        let requester = relister.clone();
        relister.spawn(async move {
            while let Some(event) = received.recv().await {
                let pod = event.sandbox.and_then(|s| s.identity.pod);
                if let (EventType::Stopped, Some(uid)) = (event.event, pod) {
                    requester.request_relist(&uid);
                }
            }
        });
        let cancel_on_drop = relister.cancel.clone().drop_guard();
        let hint = Self {
            relister,
            subscribes,
            _cancel_on_drop: cancel_on_drop,
        };
        (hint, fifo)
    }

    /// How often the generator has subscribed.
    #[must_use]
    pub fn subscribes(&self) -> u64 {
        self.subscribes.load(Ordering::Relaxed)
    }
}

impl<R: Runtime> Port for Hint<R> {
    type Runtime = R;
    const NAME: &'static str = "hint";

    fn relister(&self) -> &Relister<R> {
        &self.relister
    }
}
