//! Gauges of the event stream reader, for health and metrics.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use pleg_runtime::core::{EventCounts, EventType, Instant};

/// The gauges of the event stream reader. They can be read at any time.
#[derive(Debug, Default)]
pub struct ReaderGauges {
    waiting: AtomicUsize,
    /// `Instant::as_nanos` of the arrival of the oldest event or stream change not taken by the receiver; zero if none.
    waiting_since: AtomicU64,
    /// Events by type: created, started, stopped, deleted, other.
    events: [AtomicU64; 5],
    joined: AtomicU64,
    panics: AtomicU64,
}

impl ReaderGauges {
    /// The number of events that have arrived, but that the receiver has not taken yet.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// The arrival of the oldest event or stream change that the receiver has not taken; `None` if it has taken all.
    pub fn waiting_since(&self) -> Option<Instant> {
        let nanos = self.waiting_since.load(Relaxed);
        (nanos > 0).then(|| Instant::from_nanos(nanos))
    }

    /// The events that have arrived, by type.
    pub fn events(&self) -> EventCounts {
        let [created, started, stopped, deleted, other] = &self.events;
        let mut counts = EventCounts::default();
        counts.created = created.load(Relaxed);
        counts.started = started.load(Relaxed);
        counts.stopped = stopped.load(Relaxed);
        counts.deleted = deleted.load(Relaxed);
        counts.other = other.load(Relaxed);
        counts
    }

    /// The number of events that were merged, without loss, into a hint of the same id that was already waiting.
    pub fn joined(&self) -> u64 {
        self.joined.load(Relaxed)
    }

    /// The number of times that the stream panicked and was subscribed again.
    pub fn panics(&self) -> u64 {
        self.panics.load(Relaxed)
    }

    pub(crate) fn arrived(&self, event: EventType, waiting: usize, since: Instant) {
        let place = match event {
            EventType::Created => 0,
            EventType::Started => 1,
            EventType::Stopped => 2,
            EventType::Deleted => 3,
            _ => 4,
        };
        self.events[place].fetch_add(1, Relaxed);
        self.waits(waiting, since);
    }

    pub(crate) fn waits(&self, waiting: usize, since: Instant) {
        self.waiting.store(waiting, Relaxed);
        self.waiting_since.store(since.as_nanos(), Relaxed);
    }

    pub(crate) fn taken(&self, joined: u64) {
        self.waiting.store(0, Relaxed);
        self.waiting_since.store(0, Relaxed);
        self.joined.fetch_add(joined, Relaxed);
    }

    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Relaxed);
    }
}
