//! Event delivery, as each kind of runtime does it.
//!
//! [`Delivery::publish`] takes an event and waits only where the runtime would. Each call of
//! `GetContainerEvents` is one [`Delivery::serve`]. The channel `out` represents the client's
//! connection: a send waits while the client does not read, and fails after the client has
//! disconnected. So a disconnect is noticed only when there is an event to send.

mod broadcast;
mod queue;

use std::sync::Arc;

use pleg_cri::v1::ContainerEventResponse;
use pleg_node_model::Delivery as Kind;
use pleg_runtime::clock::Clock;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use self::{broadcast::Broadcast, queue::Queue};
use crate::injector::Injector;

pub(crate) type Event = Arc<ContainerEventResponse>;

/// Event delivery for one process of the runtime.
pub(crate) struct Delivery {
    context: Context,
    how: How,
}

enum How {
    Queue(Queue),
    Broadcast(Broadcast),
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

/// The parts of the simulator that a delivery uses.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) injector: Arc<Injector>,
    pub(crate) counts: watch::Sender<Counts>,
    pub(crate) clock: Clock,
    pub(crate) seed: u64,
    /// Cancelled when the process ends.
    pub(crate) stop: CancellationToken,
}

impl Context {
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

impl Delivery {
    pub(crate) fn new(kind: Kind, context: Context) -> Self {
        // The subscribers and the queue of the previous process are gone. Its losses remain counted.
        context.count(|counts| (counts.subscribers, counts.held) = (0, 0));
        let how = match kind {
            Kind::AllAndKept => How::Broadcast(Broadcast::new(context.seed)),
            Kind::AllOrLost => How::Queue(Queue::new(true)),
            // Without events, nothing is published.
            Kind::OneSubscriber | Kind::Disabled | Kind::Unimplemented => {
                How::Queue(Queue::new(false))
            }
        };
        Self { context, how }
    }

    /// Takes an event from the runtime.
    pub(crate) async fn publish(&self, event: Event) {
        let publishing = async {
            match &self.how {
                How::Queue(queue) => queue.publish(event, &self.context),
                How::Broadcast(broadcast) => broadcast.publish(event, &self.context).await,
            }
        };
        let stop = &self.context.stop;
        stop.run_until_cancelled(publishing).await;
    }

    /// Sends events to `out` until that fails or the process ends.
    pub(crate) async fn serve(&self, out: mpsc::Sender<Event>) {
        let serving = async {
            match &self.how {
                How::Queue(queue) => queue.serve(out, &self.context).await,
                How::Broadcast(broadcast) => broadcast.serve(out, &self.context).await,
            }
        };
        let stop = &self.context.stop;
        stop.run_until_cancelled(serving).await;
        if let (How::Queue(queue), true) = (&self.how, stop.is_cancelled()) {
            queue.end_streams();
        }
    }
}
