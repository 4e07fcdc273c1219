//! How events reach subscribers: the seam, and what its three kinds share.
//!
//! What is told goes in by [`Delivery::publish`], which waits only where the runtime itself
//! would; each call of `GetContainerEvents` is one [`Delivery::serve`]. The channel `out` stands
//! for the client's connection: sending into it waits while the client does not read, and fails
//! once it is gone, which shows only when there is something to send.

mod broadcast;
mod competing;
mod draining;

use std::{fmt, sync::Arc};

use pleg_cri::v1::ContainerEventResponse;
use pleg_runtime::clock::Clock;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{broadcast::Broadcast, competing::Competing, draining::Draining};
use crate::habits::StreamHabit;

/// What the queues of containerd 1.7 and CRI-O hold.
const QUEUE: usize = 1000;

pub(crate) type Event = Arc<ContainerEventResponse>;

/// One machinery, for one life of the runtime.
#[tonic::async_trait]
pub(crate) trait Delivery: fmt::Debug + Send + Sync + 'static {
    /// Takes an event from the runtime.
    async fn publish(&self, event: Event);

    /// Passes events on to `out` until that fails, or the runtime ends.
    async fn serve(&self, out: mpsc::Sender<Event>);
}

/// How many there are, for tests and displays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Subscribers that the runtime believes in, dead ones included.
    pub(crate) subscribers: usize,
    /// Events that wait for a subscriber.
    pub(crate) held: usize,
    /// Events thrown away because nobody came for them in time.
    pub(crate) discarded: u64,
    /// Events thrown away because the queue was full, or because nobody listened any more.
    pub(crate) dropped: u64,
}

/// What a machinery may touch.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub(crate) counts: watch::Sender<Counts>,
    pub(crate) clock: Clock,
    pub(crate) tasks: TaskTracker,
    pub(crate) seed: u64,
    /// The end of this life of the runtime.
    pub(crate) stop: CancellationToken,
}

impl Surroundings {
    fn now(&self) -> Instant {
        self.clock.tokio(self.clock.now())
    }

    /// Counts, unless this life is over: the next one counts anew.
    fn count(&self, how: impl FnOnce(&mut Counts)) {
        self.counts.send_if_modified(|counts| {
            let before = *counts;
            if !self.stop.is_cancelled() {
                how(counts);
            }
            *counts != before
        });
    }
}

/// The machinery of that habit. Where nobody is ever served, events go nowhere.
pub(crate) fn start(habit: StreamHabit, around: Surroundings) -> Arc<dyn Delivery> {
    // What the last life believed is forgotten; what was lost stays lost.
    around.counts.send_modify(|counts| {
        counts.subscribers = 0;
        counts.held = 0;
    });
    match habit {
        StreamHabit::Competing => Arc::new(Competing::new(around)),
        StreamHabit::Broadcast => Arc::new(Broadcast::new(around)),
        StreamHabit::Draining => Arc::new(Draining::new(around)),
        StreamHabit::Disabled | StreamHabit::Unimplemented => Arc::new(Nowhere),
    }
}

/// For runtimes without events.
#[derive(Debug)]
struct Nowhere;

#[tonic::async_trait]
impl Delivery for Nowhere {
    async fn publish(&self, _: Event) {}

    async fn serve(&self, _: mpsc::Sender<Event>) {}
}
