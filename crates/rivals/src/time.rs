//! Upstream's one notion of time, in which the kubelet's own instants and the runtime's wall clock
//! are compared as if they were the same (the fault behind A3, A4, A6 and B4).

use pleg_core::{Instant, WallTime};
use pleg_runtime::clock::{Clock, wall};

/// What upstream has where a time is meant, whoever read it on whichever clock: nanoseconds since
/// the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(i64);

impl Time {
    /// Before everything: what upstream stores where nobody said a time.
    pub const ZERO: Self = Self(i64::MIN);

    /// So many nanoseconds after the epoch, whoever says so.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }
}

/// A kubelet's clock: it starts at the wall clock's time and goes on with tokio's clock, so that
/// under paused time both stand still together.
#[derive(Clone, Copy, Debug)]
pub struct KubeletClock {
    clock: Clock,
    /// The wall clock's time at the clock's origin.
    origin: i64,
}

impl KubeletClock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        let clock = Clock::start();
        let since_origin = clock.now().since(Instant::ORIGIN);
        Self {
            clock,
            origin: wall().before(since_origin).as_nanos(),
        }
    }

    /// Now, as upstream compares it.
    #[must_use]
    pub fn now(&self) -> Time {
        self.time(self.clock.now())
    }

    /// An instant of [`clock`](Self::clock), as upstream compares it.
    #[must_use]
    pub fn time(&self, at: Instant) -> Time {
        let since = i64::try_from(at.as_nanos()).unwrap_or(i64::MAX);
        Time(self.origin.saturating_add(since))
    }

    /// Now, as the wall clock beside it shows.
    #[must_use]
    pub fn wall(&self) -> WallTime {
        WallTime::from_nanos(self.now().as_nanos())
    }

    /// The clock that tells instants.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }
}
