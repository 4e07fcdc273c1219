//! What the reader and the channel to the writer show of themselves, for health and metrics.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use pleg_runtime::core::Instant;

use crate::queue::Queue;

/// The reader's gauges: read by anyone at any time.
#[derive(Debug)]
pub struct ReaderGauges {
    /// In the queue of the reader.
    queued: AtomicUsize,
    /// In nanoseconds; zero if the queue is empty.
    queued_since: AtomicU64,
    /// The instants of what was handed over, by number modulo the capacity of the channel.
    handed_at: Box<[AtomicU64]>,
    handed: AtomicU64,
    handled: AtomicU64,
    arrivals: AtomicU64,
    joined: AtomicU64,
    lost: AtomicU64,
    panics: AtomicU64,
}

impl ReaderGauges {
    /// Those of a channel in which `capacity` observations may wait. One more may be in the
    /// writer's hands.
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

    /// How many observations the writer has not handled.
    pub fn waiting(&self) -> usize {
        let handed = self.handed.load(Relaxed);
        let in_channel = handed.saturating_sub(self.handled.load(Relaxed));
        usize::try_from(in_channel).unwrap_or(usize::MAX) + self.queued.load(Relaxed)
    }

    /// When the oldest observation was made that the writer has not handled; none if it has
    /// handled all.
    pub fn waiting_since(&self) -> Option<Instant> {
        let handled = self.handled.load(Relaxed);
        let nanos = if self.handed.load(Relaxed) > handled {
            self.handed_at[self.place(handled)].load(Relaxed)
        } else {
            self.queued_since.load(Relaxed)
        };
        (nanos > 0).then(|| Instant::from_nanos(nanos))
    }

    /// How many events have arrived.
    pub fn arrivals(&self) -> u64 {
        self.arrivals.load(Relaxed)
    }

    /// How many of them were joined with another one that tells what they told.
    pub fn joined(&self) -> u64 {
        self.joined.load(Relaxed)
    }

    /// How many of them were dropped, and are told by no other.
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

    /// How many observations are in the queue of the reader.
    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Relaxed)
    }

    /// An observation that was made at that instant is handed over. So many stay queued.
    pub(crate) fn handed(&self, at: Instant, queued: usize) {
        self.queued.store(queued, Relaxed);
        let number = self.handed.load(Relaxed);
        self.handed_at[self.place(number)].store(at.as_nanos(), Relaxed);
        self.handed.store(number + 1, Relaxed);
    }

    /// The writer has handled so many observations.
    pub(crate) fn handled(&self, count: u64) {
        self.handled.store(count, Relaxed);
    }

    fn place(&self, number: u64) -> usize {
        usize::try_from(number % self.handed_at.len() as u64).unwrap_or(0)
    }

    pub(crate) fn show(&self, queue: &Queue) {
        let tally = queue.tally();
        self.queued.store(queue.len(), Relaxed);
        let since = queue.oldest().map_or(0, Instant::as_nanos);
        self.queued_since.store(since, Relaxed);
        self.arrivals.store(tally.arrived, Relaxed);
        self.joined.store(tally.joined(), Relaxed);
        self.lost.store(tally.lost, Relaxed);
    }
}

/// What became of the events so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) arrived: u64,
    pub(crate) taken: u64,
    pub(crate) lost: u64,
    /// Still waiting.
    pub(crate) held: u64,
}

impl Tally {
    /// Whoever was neither taken nor lost and does not wait was joined with another.
    const fn joined(&self) -> u64 {
        self.arrived
            .saturating_sub(self.taken + self.lost + self.held)
    }
}
