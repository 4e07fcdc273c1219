//! Event delivery: one trait, and one implementation for each kind of runtime.
//!
//! [`Delivery::publish`] takes an event and waits only where the runtime would. Each call of
//! `GetContainerEvents` is one [`Delivery::serve`]. The channel `out` represents the client's
//! connection: a send waits while the client does not read, and fails after the client has
//! disconnected. So a disconnect is noticed only when there is an event to send.

mod broadcast;
mod competing;
mod draining;

use std::{fmt, sync::Arc};

use pleg_cri::v1::ContainerEventResponse;
use pleg_node_model::Delivery as Kind;
use pleg_runtime::clock::Clock;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{broadcast::Broadcast, competing::Competing, draining::Draining};
use crate::fault_profile::Injector;

/// The queue capacity of containerd 1.7 and CRI-O.
const QUEUE_CAPACITY: usize = 1000;

pub(crate) type Event = Arc<ContainerEventResponse>;

/// Event delivery for one process of the runtime.
#[tonic::async_trait]
pub(crate) trait Delivery: fmt::Debug + Send + Sync + 'static {
    /// Takes an event from the runtime.
    async fn publish(&self, event: Event);

    /// Sends events to `out` until that fails or the process ends.
    async fn serve(&self, out: mpsc::Sender<Event>);
}

/// The numbers of subscribers and of undelivered events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Subscribers that the runtime has not removed, including dead ones.
    pub subscribers: usize,
    /// Events that wait for a subscriber.
    pub held: usize,
    /// Events that were discarded because no subscriber came within five minutes.
    pub discarded: u64,
    /// Events that were dropped because the queue was full or there was no subscriber.
    pub dropped: u64,
}

/// What a delivery needs from the simulator.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) injector: Arc<Injector>,
    pub(crate) counts: watch::Sender<Counts>,
    pub(crate) clock: Clock,
    pub(crate) tasks: TaskTracker,
    pub(crate) seed: u64,
    /// Cancelled when the process ends.
    pub(crate) stop: CancellationToken,
}

impl Context {
    fn now(&self) -> Instant {
        self.clock.tokio(self.clock.now())
    }

    /// Updates the counters, unless the process has ended: the next process uses the same counters.
    fn count(&self, update: impl FnOnce(&mut Counts)) {
        self.counts.send_if_modified(|counts| {
            let before = *counts;
            if !self.stop.is_cancelled() {
                update(counts);
            }
            *counts != before
        });
    }
}

/// Creates the delivery of that kind.
pub(crate) fn start(kind: Kind, context: Context) -> Arc<dyn Delivery> {
    // The subscribers and the queue of the previous process are gone. Its losses remain counted.
    context.counts.send_modify(|counts| {
        counts.subscribers = 0;
        counts.held = 0;
    });
    match kind {
        Kind::OneSubscriber => Arc::new(Competing::new(context)),
        Kind::AllAndKept => Arc::new(Broadcast::new(context)),
        Kind::AllOrLost => Arc::new(Draining::new(context)),
        Kind::Disabled | Kind::Unimplemented => Arc::new(Discard),
    }
}

/// For runtimes without events.
#[derive(Debug)]
struct Discard;

#[tonic::async_trait]
impl Delivery for Discard {
    async fn publish(&self, _: Event) {}

    async fn serve(&self, _: mpsc::Sender<Event>) {}
}
