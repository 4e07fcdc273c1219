//! The only module that reads a clock.
//!
//! Instants come from tokio's clock, so that all code follows the paused time of a test. The wall clock is read once
//! per subscribe call, once per received event (to compute the event's age), and to display times.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pleg_core::{Instant, WallTime};
use tokio::runtime::Handle;

/// A clock that is cheap to copy. All clocks of a process count from one origin, and the clocks of one tokio runtime
/// never return the same instant twice, so any two of their instants have an order.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: tokio::time::Instant,
    /// The last instant that a clock of this tokio runtime returned.
    last: &'static AtomicU64,
    /// The wall-clock time at the origin, if the wall clock is simulated and advances with the instants.
    wall: Option<WallTime>,
}

/// The origin of all instants: an hour before the first clock started, because the paused time of a tokio runtime may
/// be earlier than that start.
#[allow(clippy::disallowed_methods, reason = "this is the clock")]
fn origin() -> std::time::Instant {
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    *ORIGIN.get_or_init(|| {
        let now = std::time::Instant::now();
        let earlier = now.checked_sub(Duration::from_secs(3600));
        earlier.unwrap_or(now)
    })
}

/// The last instant that was returned in this tokio runtime; threads outside of tokio runtimes share one. Each runtime
/// has its own, because paused time advances in one runtime only. Leaks 8 bytes per runtime, so that clocks are `Copy`.
fn last() -> &'static AtomicU64 {
    type OfRuntimes = HashMap<Option<tokio::runtime::Id>, &'static AtomicU64>;
    static LAST: OnceLock<Mutex<OfRuntimes>> = OnceLock::new();
    let runtime = Handle::try_current().ok().map(|handle| handle.id());
    let all = LAST.get_or_init(Mutex::default);
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    all.entry(runtime)
        .or_insert_with(|| Box::leak(Box::default()))
}

impl Clock {
    /// A new clock. Every instant that it returns is after [`Instant::ORIGIN`].
    #[must_use]
    pub fn start() -> Self {
        Self {
            origin: origin().into(),
            last: last(),
            wall: None,
        }
    }

    /// A clock whose wall clock shows `wall` now and advances with the clock's instants, independently of the host's
    /// clock.
    ///
    /// For tests and simulations on paused time: the host's clock keeps running, so by it an event sent right after
    /// the subscribe call of its stream would look older than that call.
    #[must_use]
    pub fn start_at(wall: WallTime) -> Self {
        let clock = Self::start();
        let shown = wall.before(clock.now().since(Instant::ORIGIN));
        Self {
            wall: Some(shown),
            ..clock
        }
    }

    /// The present instant. No instant is returned twice, so any two returned instants have an order.
    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    #[must_use]
    pub fn now(&self) -> Instant {
        let shown = tokio::time::Instant::now().saturating_duration_since(self.origin);
        let shown = Instant::from_origin(shown).as_nanos();
        let last = self.last.fetch_max(shown, Relaxed);
        if last < shown {
            return Instant::from_nanos(shown);
        }
        // Time has not advanced since the last call: time is paused, or another thread has taken this instant.
        Instant::from_nanos(self.last.fetch_add(1, Relaxed) + 1)
    }

    /// Converts an instant for tokio's timers. Returns at most the instant 30 years after the origin.
    #[allow(clippy::disallowed_methods, reason = "this is the clock")]
    #[must_use]
    pub fn tokio(&self, at: Instant) -> tokio::time::Instant {
        const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
        let since_origin = Duration::from_nanos(at.as_nanos());
        self.origin
            .checked_add(since_origin.min(FAR))
            .unwrap_or(self.origin)
    }

    /// Completes at the instant `at`. Cancel safe.
    pub async fn sleep_until(&self, at: Instant) {
        tokio::time::sleep_until(self.tokio(at)).await;
    }

    /// The local wall clock.
    #[must_use]
    pub fn wall(&self) -> WallTime {
        match self.wall {
            Some(at_origin) => at_origin.after(Duration::from_nanos(self.now().as_nanos())),
            None => wall(),
        }
    }

    /// The local wall-clock time of the instant `at`, for display. Wrong if somebody has set the wall clock since `at`.
    #[must_use]
    pub fn wall_at(&self, at: Instant) -> WallTime {
        let nanos = |at: Instant| Duration::from_nanos(at.as_nanos());
        let at_origin = self
            .wall
            .unwrap_or_else(|| wall().before(nanos(self.now())));
        at_origin.after(nanos(at))
    }
}

/// The host's wall clock.
#[allow(clippy::disallowed_methods, reason = "this is the clock")]
#[must_use]
pub fn wall() -> WallTime {
    std::time::SystemTime::now().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_clock_set_by_start_at_advances_with_the_instants() {
        let given = WallTime::from_nanos(1_700_000_000_000_000_000);
        let earliest = Clock::start().now();
        let clock = Clock::start_at(given);
        let began = clock.now();
        for _ in 0..3 {
            let (before, wall, after) = (clock.now(), clock.wall(), clock.now());
            assert!(wall >= given.after(before.since(began)));
            assert!(wall <= given.after(after.since(earliest)));
            assert!(clock.wall_at(before) <= wall && wall <= clock.wall_at(after));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clock_returns_no_instant_twice() {
        let clock = Clock::start();
        let copy = clock;
        let first = clock.now();
        let second = copy.now();
        assert!(first < second && second < clock.now());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(clock.now().since(first).as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn instants_of_two_clocks_have_an_order() {
        let first = Clock::start();
        let earlier = [first.now(), first.now(), first.now()];
        let second = Clock::start();
        assert!(earlier[2] < second.now() && second.now() < first.now());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(second.now().since(earlier[0]).as_secs(), 5);
    }

    #[test]
    fn default_wall_clock_shows_the_time_of_the_host() {
        let (before, shown, after) = (wall(), Clock::start().wall(), wall());
        assert!(before <= shown && shown <= after);
    }
}
