//! What the reader shows of itself while it runs, for health and metrics.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use pleg_runtime::core::Instant;

/// The reader's gauges: written by it alone, read by anyone at any time.
#[derive(Debug, Default)]
pub struct ReaderGauges {
    waiting: AtomicUsize,
    /// In nanoseconds; zero if nothing waits.
    waiting_since: AtomicU64,
    arrivals: AtomicU64,
    joined: AtomicU64,
    lost: AtomicU64,
    panics: AtomicU64,
}

impl ReaderGauges {
    /// How many observations wait for the writer to take them.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Since when the one waits that the writer takes next; nothing if none does.
    pub fn waiting_since(&self) -> Option<Instant> {
        match self.waiting_since.load(Relaxed) {
            0 => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    /// How many events have arrived.
    pub fn arrivals(&self) -> u64 {
        self.arrivals.load(Relaxed)
    }

    /// How many of them are told by another one with which they were joined.
    pub fn joined(&self) -> u64 {
        self.joined.load(Relaxed)
    }

    /// How many of them are told by none.
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

    pub(crate) fn show(&self, tally: &Tally, waiting: usize, since: Option<Instant>) {
        self.waiting.store(waiting, Relaxed);
        self.waiting_since
            .store(since.map_or(0, Instant::as_nanos), Relaxed);
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
    /// Whoever was neither taken nor lost and does not wait was joined with somebody else.
    const fn joined(&self) -> u64 {
        self.arrived
            .saturating_sub(self.taken + self.lost + self.held)
    }
}
