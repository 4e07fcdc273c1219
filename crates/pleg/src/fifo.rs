//! A queue of lifecycle events that behaves like the event channel of upstream's kubelet: it is bounded, and drops an
//! event that does not fit.

use pleg_core::{Id, LifecycleType, PodLifecycleEvent, PodUid};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::metrics;

/// The capacity of the channel in upstream's kubelet.
const CAPACITY: usize = 1000;

/// A pod lifecycle event as upstream's kubelet sends it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct FifoEvent {
    /// The pod.
    pub uid: PodUid,
    /// The type of change. Upstream never sends ContainerChanged.
    pub event: LifecycleType,
    /// The id of the container or sandbox; none for PodSync.
    pub data: Option<Id>,
}

/// A queue of lifecycle events that behaves like the channel of upstream's kubelet: it holds 1000 events, in order. An
/// event that does not fit is dropped, counted in `kubelet_pleg_discard_events`, and never sent again (upstream
/// k#136408). Prefer [`Subscription`](crate::Subscription), which never loses the last Died or Removed of an id without
/// reporting [`Lagged`](crate::Delivery::Lagged).
#[derive(Debug)]
#[must_use]
pub struct Fifo {
    queue: mpsc::Receiver<FifoEvent>,
}

impl Fifo {
    /// The next event, or `None` once the generator has shut down.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<FifoEvent> {
        self.queue.recv().await
    }

    /// The next event if one is available now. Does not wait.
    pub fn try_next(&mut self) -> Option<FifoEvent> {
        self.queue.try_recv().ok()
    }
}

/// The driver's end of the queue.
#[derive(Debug)]
pub(crate) struct FifoSender(mpsc::Sender<FifoEvent>);

pub(crate) fn fifo() -> (FifoSender, Fifo) {
    let (sender, queue) = mpsc::channel(CAPACITY);
    (FifoSender(sender), Fifo { queue })
}

impl FifoSender {
    pub(crate) fn announce(&self, announced: &PodLifecycleEvent) {
        let Some(event) = as_upstream_sends(announced) else {
            return;
        };
        if let Err(TrySendError::Full(_)) = self.0.try_send(event) {
            metrics::discarded();
        }
    }
}

/// Converts an announcement to the event that upstream sends: none for ContainerChanged. If an exited container runs
/// again, upstream sends Started, and so does the generator.
fn as_upstream_sends(announced: &PodLifecycleEvent) -> Option<FifoEvent> {
    if announced.event == LifecycleType::ContainerChanged {
        return None;
    }
    Some(FifoEvent {
        uid: announced.uid.clone(),
        event: announced.event,
        data: announced.subject.as_ref().map(|s| s.id.clone()),
    })
}
