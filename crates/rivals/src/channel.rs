//! The channel of lifecycle events. It is bounded, and events that do not fit are lost (C3).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pleg_core::{Id, LifecycleType, PodUid};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// The capacity of the channel (plegChannelCapacity).
pub(crate) const CAPACITY: usize = 1000;

/// A pod lifecycle event in the form of upstream's kubelet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Event {
    /// The pod.
    pub uid: PodUid,
    /// What happened. ContainerChanged is never sent.
    pub event: LifecycleType,
    /// The container or sandbox; `None` for PodSync.
    pub data: Option<Id>,
}

/// The receiver of lifecycle events.
#[derive(Debug)]
pub struct Fifo(Receiver);

#[derive(Debug)]
enum Receiver {
    Port(mpsc::Receiver<Event>),
    Ours(pleg::Fifo),
}

impl Fifo {
    /// The next event, or `None` after the generator has ended. Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Event> {
        match &mut self.0 {
            Receiver::Port(queue) => queue.recv().await,
            Receiver::Ours(fifo) => fifo.next().await.map(Event::from),
        }
    }

    /// The next event, if there is one now.
    pub fn try_next(&mut self) -> Option<Event> {
        match &mut self.0 {
            Receiver::Port(queue) => queue.try_recv().ok(),
            Receiver::Ours(fifo) => fifo.try_next().map(Event::from),
        }
    }

    pub(crate) const fn ours(fifo: pleg::Fifo) -> Self {
        Self(Receiver::Ours(fifo))
    }
}

impl From<pleg::FifoEvent> for Event {
    fn from(event: pleg::FifoEvent) -> Self {
        Self {
            uid: event.uid,
            event: event.event,
            data: event.data,
        }
    }
}

/// The sender of lifecycle events. Clones send to the same channel, as upstream's two generators do.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    queue: mpsc::Sender<Event>,
    discarded: Arc<AtomicU64>,
}

pub(crate) fn channel(capacity: usize) -> (Channel, Fifo) {
    let (queue, receiver) = mpsc::channel(capacity);
    let channel = Channel {
        queue,
        discarded: Arc::default(),
    };
    (channel, Fifo(Receiver::Port(receiver)))
}

impl Channel {
    /// Never waits: an event that does not fit is counted and lost.
    pub(crate) fn send(&self, event: Event) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(event) {
            self.discarded.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.queue.capacity() == 0
    }

    pub(crate) fn discarded(&self) -> u64 {
        self.discarded.load(Ordering::Relaxed)
    }
}
