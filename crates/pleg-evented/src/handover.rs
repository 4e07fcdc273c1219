//! The map through which the event stream reader hands events to the receiver: the task that runs the reconciler.
//!
//! The reader merges each event into the hint of its id, and the receiver takes all hints at once. So a slow receiver
//! gets fewer hints than there were events, and the reader never waits for the receiver.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pleg_runtime::core::{Arrival, Hint, HintMap, Id, Instant, StreamChange, WallTime};
use tokio::sync::Notify;

use crate::ReaderGauges;

/// The maximum number of stream changes that wait for the receiver. At this limit the reader drops the oldest one,
/// because a later subscribe call or stream end makes it irrelevant.
const MOST_CHANGES: usize = 16;

/// The maximum number of event latencies that wait for the receiver. A histogram does not need more.
const MOST_LATENCIES: usize = 1000;

/// Makes the two ends of a handover: the end of the event stream reader, and the end of the receiver.
pub fn handover() -> (HintSender, Hints) {
    let shared = Arc::new(Shared::default());
    (HintSender(shared.clone()), Hints(shared))
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Notified when the reader added an event or a stream change.
    added: Notify,
    /// Notified when the receiver's end is dropped.
    closed: Notify,
    gauges: Arc<ReaderGauges>,
}

#[derive(Debug, Default)]
struct Waiting {
    changes: VecDeque<StreamChange>,
    hints: HintMap,
    latencies: Vec<Duration>,
    /// The number of events since the last `take`, including those that the full hint map dropped.
    events: usize,
    since: Option<Instant>,
    /// The wall clock at the last subscribe call.
    subscribed: Option<WallTime>,
    is_closed: bool,
}

impl Shared {
    /// Locks the map. Callers hold the lock only to add one event or stream change, or to take everything.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn add_latency(&mut self, arrival: &Arrival) {
        // A runtime may replay events from before the subscribe call; their latency would mean nothing.
        let created_at = WallTime::claimed(arrival.event.created_at);
        if created_at < self.subscribed || self.latencies.len() >= MOST_LATENCIES {
            return;
        }
        let nanos = arrival.wall.as_nanos();
        let nanos = nanos.saturating_sub(arrival.event.created_at);
        // If the runtime's clock is ahead, the latency is not known and not recorded.
        let latency = u64::try_from(nanos).map(Duration::from_nanos);
        self.latencies.extend(latency);
    }
}

/// The reader's end.
#[derive(Debug)]
pub struct HintSender(Arc<Shared>);

impl HintSender {
    pub(crate) fn event(&self, arrival: Arrival) {
        let event = arrival.event.event;
        let mut waiting = self.0.lock();
        waiting.add_latency(&arrival);
        waiting.events += 1;
        let since = *waiting.since.get_or_insert(arrival.arrived);
        waiting.hints.push(arrival);
        self.0.gauges.arrived(event, waiting.events, since);
        drop(waiting);
        self.0.added.notify_one();
    }

    pub(crate) fn change(&self, change: StreamChange) {
        let mut waiting = self.0.lock();
        if let StreamChange::Subscribed { at, wall } = change {
            waiting.hints.subscribed(at);
            waiting.subscribed = Some(wall);
        }
        let since = *waiting.since.get_or_insert(change.at());
        self.0.gauges.waits(waiting.events, since);
        if waiting.changes.len() >= MOST_CHANGES {
            waiting.changes.pop_front();
        }
        waiting.changes.push_back(change);
        drop(waiting);
        self.0.added.notify_one();
    }

    pub(crate) fn panicked(&self) {
        self.0.gauges.panicked();
    }

    /// Completes when the receiver's end is dropped. Cancel safe.
    pub(crate) async fn closed(&self) {
        let closed = self.0.closed.notified();
        if !self.0.lock().is_closed {
            closed.await;
        }
    }
}

/// The batch that the receiver takes at once: stream changes, hints and event latencies.
#[derive(Debug, Default)]
pub struct Batch {
    /// Subscribe calls and stream ends, in order. Handle them before `hints`: each makes the reconciler forget arrived
    /// events, so those of the new stream would count as missed. (An old stream's event may count for the new stream.)
    pub changes: VecDeque<StreamChange>,
    /// The events, merged into one hint for each sandbox or container.
    pub hints: BTreeMap<Id, Hint>,
    /// The number of events that were dropped, because the map was full and had no hint of the event's id.
    pub lost: u64,
    /// Time from the runtime's timestamp to the arrival, for up to 1000 events stamped after the subscribe call.
    pub latencies: Vec<Duration>,
}

/// The receiver's end.
#[derive(Debug)]
pub struct Hints(Arc<Shared>);

impl Hints {
    /// Completes when an event or a stream change waits. Cancel safe.
    pub async fn wait(&self) {
        self.0.added.notified().await;
    }

    /// Takes all events and stream changes that wait.
    pub fn take(&self) -> Batch {
        let mut waiting = self.0.lock();
        let events = std::mem::take(&mut waiting.events) as u64;
        let (hints, lost) = waiting.hints.take();
        waiting.since = None;
        self.0
            .gauges
            .taken(events.saturating_sub(lost + hints.len() as u64));
        Batch {
            changes: std::mem::take(&mut waiting.changes),
            hints,
            lost,
            latencies: std::mem::take(&mut waiting.latencies),
        }
    }

    /// The gauges of the reader.
    pub fn gauges(&self) -> Arc<ReaderGauges> {
        self.0.gauges.clone()
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.closed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use pleg_runtime::core::{EventType, RuntimeEvent};

    use super::*;

    #[test]
    fn event_latency_is_the_time_from_timestamp_to_arrival() {
        let (to, out) = handover();
        let wall = |s: i64| WallTime::from_nanos((1_700_000_000 + s) * 1_000_000_000);
        let at = Instant::ORIGIN;
        to.change(StreamChange::Subscribed { at, wall: wall(10) });
        // Events with four timestamps: before the subscribe call, a second ago, in the future, and none.
        for stamp in [wall(9), wall(11), wall(13), WallTime::from_nanos(0)] {
            let mut event = RuntimeEvent::new("c", EventType::Started);
            event.created_at = stamp.as_nanos();
            let (arrived, wall) = (at, wall(12));
            to.event(Arrival {
                event,
                arrived,
                wall,
            });
        }
        assert_eq!(out.take().latencies, [Duration::from_secs(1)]);
    }
}
