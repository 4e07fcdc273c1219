//! The interface through which tests and benchmarks use a PLEG.

use std::future::Future;

use pleg::{Delivery, Subscription};
use pleg_core::{Id, Instant, LifecycleType, PodUid, ReportedState};
use pleg_runtime::clock::Clock;
use tokio::sync::mpsc;

/// A running PLEG. It sends its lifecycle events to the [`Fifo`] that was created with the PLEG.
pub trait Subject: Send + Sync + 'static {
    /// The name of the generator.
    fn name(&self) -> &'static str;

    /// The clock whose instants [`newer_than`](Self::newer_than) compares.
    fn clock(&self) -> Clock;

    /// Calls `each` for every container of the pod in the cache.
    fn visit_containers(&self, uid: &PodUid, each: &mut dyn FnMut(&Id, ReportedState));

    /// The cached state of a container; `None` if the cache lacks it.
    fn state(&self, uid: &PodUid, id: &Id) -> Option<ReportedState> {
        let mut state = None;
        self.visit_containers(uid, &mut |of, shown| {
            if of == id {
                state = Some(shown);
            }
        });
        state
    }

    /// Waits without a time limit until the cached status of the pod is newer than `after`.
    fn newer_than(&self, uid: &PodUid, after: Instant) -> impl Future<Output = ()> + Send;

    /// Requests a relist of the pod. A pod worker of upstream does this after a sync that changed its pod.
    fn request_relist(&self, uid: &PodUid);

    /// Returns true if this PLEG is healthy. The kubelet's health check calls this function of upstream's PLEG.
    fn is_healthy(&self) -> bool;

    /// Stops the generator. Returns when all of its tasks have ended.
    fn shutdown(&self) -> impl Future<Output = ()> + Send;
}

/// A pod lifecycle event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The pod.
    pub uid: PodUid,
    /// The type. Ports never send ContainerChanged.
    pub event: LifecycleType,
    /// The container or sandbox that the event is about, if any.
    pub data: Option<Id>,
}

/// The receiver of lifecycle events.
#[derive(Debug)]
pub struct Fifo(pub(crate) Receiver);

#[derive(Debug)]
pub(crate) enum Receiver {
    Port(mpsc::Receiver<Event>),
    Ours(Subscription),
}

impl Fifo {
    /// The next event, or `None` after the generator has ended. Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Event> {
        match &mut self.0 {
            Receiver::Port(queue) => queue.recv().await,
            Receiver::Ours(events) => loop {
                if let Some(event) = converted(events.next().await?) {
                    return Some(event);
                }
            },
        }
    }

    /// The next event, if there is one now.
    pub fn try_next(&mut self) -> Option<Event> {
        match &mut self.0 {
            Receiver::Port(queue) => queue.try_recv().ok(),
            Receiver::Ours(events) => std::iter::from_fn(|| events.try_next()).find_map(converted),
        }
    }
}

/// Converts an item of our generator's subscription. `None` for `Synced` and `Lagged`, which are no events.
fn converted(delivery: Delivery) -> Option<Event> {
    match delivery {
        Delivery::Event(event) => Some(Event {
            uid: event.uid,
            event: event.event,
            data: event.subject.map(|subject| subject.id),
        }),
        _ => None,
    }
}
