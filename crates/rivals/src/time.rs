//! Upstream's time. It compares times of the kubelet's clock with timestamps of the runtime's wall
//! clock, which is the cause of A3, A4, A6 and B4.

use pleg_core::{Instant, WallTime};
use pleg_runtime::clock::{Clock, wall};

/// A time of either clock, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

impl Time {
    /// Go's zero time, which upstream uses for a missing time. It is before all other times.
    pub const ZERO: Self = Self(i64::MIN);

    /// Creates a time from nanoseconds since the epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
}

/// The kubelet's clock. It starts with the time of the wall clock and advances with tokio's clock,
/// so that it stands still in paused time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KubeletClock {
    clock: Clock,
    /// The wall clock's time at the clock's origin.
    origin: i64,
}

impl KubeletClock {
    /// Creates a clock that starts now.
    pub(crate) fn start() -> Self {
        let clock = Clock::start();
        let since_origin = clock.now().since(Instant::ORIGIN);
        Self {
            clock,
            origin: wall().before(since_origin).as_nanos(),
        }
    }

    /// The current time.
    pub(crate) fn now(&self) -> Time {
        self.time(self.clock.now())
    }

    /// Converts an instant of [`clock`](Self::clock).
    pub(crate) fn time(&self, at: Instant) -> Time {
        let since = i64::try_from(at.as_nanos()).unwrap_or(i64::MAX);
        Time(self.origin.saturating_add(since))
    }

    /// The current wall clock time.
    pub(crate) fn wall(&self) -> WallTime {
        WallTime::from_nanos(self.now().as_nanos())
    }

    /// The clock for instants.
    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }
}
