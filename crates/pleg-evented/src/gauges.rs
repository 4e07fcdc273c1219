//! Gauges of the reader and of the channel to the writer, for health and metrics.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use pleg_runtime::core::{Instant, StreamQueue};

/// The reader's gauges. They can be read at any time.
#[derive(Debug)]
pub struct ReaderGauges {
    /// Observations in the queue of the reader.
    queued: AtomicUsize,
    /// Since when the oldest of them waits, in nanoseconds; zero if the queue is empty.
    queued_since: AtomicU64,
    /// The instants of the observations handed over, by number modulo the length.
    handed_at: Box<[AtomicU64]>,
    handed: AtomicU64,
    handled: AtomicU64,
    arrivals: AtomicU64,
    joined: AtomicU64,
    lost: AtomicU64,
    panics: AtomicU64,
}

impl ReaderGauges {
    /// The gauges of a channel in which `capacity` observations may wait. The writer may be
    /// handling one more.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            queued: AtomicUsize::default(),
            queued_since: AtomicU64::default(),
            handed_at: (0..=capacity).map(|_| AtomicU64::default()).collect(),
            handed: AtomicU64::default(),
            handled: AtomicU64::default(),
            arrivals: AtomicU64::default(),
            joined: AtomicU64::default(),
            lost: AtomicU64::default(),
            panics: AtomicU64::default(),
        }
    }

    /// The number of observations that the writer has not handled.
    pub fn waiting(&self) -> usize {
        let handed = self.handed.load(Relaxed);
        let in_channel = handed.saturating_sub(self.handled.load(Relaxed));
        usize::try_from(in_channel).unwrap_or(usize::MAX) + self.queued.load(Relaxed)
    }

    /// The instant of the oldest observation that the writer has not handled; `None` if it has
    /// handled all.
    pub fn waiting_since(&self) -> Option<Instant> {
        let handled = self.handled.load(Relaxed);
        // Together with the store in `handed`: a count that is read comes with its instant.
        let nanos = if self.handed.load(Acquire) > handled {
            self.handed_at[self.place(handled)].load(Relaxed)
        } else {
            self.queued_since.load(Relaxed)
        };
        (nanos > 0).then(|| Instant::from_nanos(nanos))
    }

    /// The number of events that have arrived.
    pub fn arrivals(&self) -> u64 {
        self.arrivals.load(Relaxed)
    }

    /// The number of events that were joined with another event, without loss.
    pub fn joined(&self) -> u64 {
        self.joined.load(Relaxed)
    }

    /// The number of events that were dropped.
    pub fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// How often the stream panicked and was subscribed again.
    pub fn panics(&self) -> u64 {
        self.panics.load(Relaxed)
    }

    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Relaxed);
    }

    /// The number of observations in the queue of the reader.
    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Relaxed)
    }

    /// An observation of the instant `at` is handed over, and `queued` observations stay queued.
    pub(crate) fn handed(&self, at: Instant, queued: usize) {
        self.queued.store(queued, Relaxed);
        let number = self.handed.load(Relaxed);
        self.handed_at[self.place(number)].store(at.as_nanos(), Relaxed);
        self.handed.store(number + 1, Release);
    }

    /// The writer has handled `count` observations.
    pub(crate) fn handled(&self, count: u64) {
        self.handled.store(count, Relaxed);
    }

    fn place(&self, number: u64) -> usize {
        usize::try_from(number % self.handed_at.len() as u64).unwrap_or(0)
    }

    pub(crate) fn show(&self, queue: &StreamQueue) {
        let counts = queue.counts();
        self.queued.store(queue.len(), Relaxed);
        let since = queue.oldest().map_or(0, Instant::as_nanos);
        self.queued_since.store(since, Relaxed);
        self.arrivals.store(counts.arrived, Relaxed);
        self.joined.store(counts.joined(), Relaxed);
        self.lost.store(counts.lost, Relaxed);
    }
}
