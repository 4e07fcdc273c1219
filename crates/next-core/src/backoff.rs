//! The pause before a failed call is repeated.

use crate::constants::{BACKOFF_FIRST, BACKOFF_MOST, OUTAGE_RETRY};
use crate::types::time::Instant;

/// The failures in a row that count, and when the next attempt is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Backoff {
    failures: u32,
    pub(crate) retry_at: Instant,
}

impl Backoff {
    /// The backoff after one more failure that counts: the pause doubles.
    pub(crate) fn after(previous: Option<Self>, now: Instant) -> Self {
        let failures = previous.map_or(0, |previous| previous.failures);
        let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        let pause = BACKOFF_FIRST.saturating_mul(factor).min(BACKOFF_MOST);
        Self {
            failures: failures.saturating_add(1),
            retry_at: now.after(pause),
        }
    }

    /// The backoff after a failure that does not count, because the runtime as a whole may have failed.
    pub(crate) fn uncounted(previous: Option<Self>, now: Instant) -> Self {
        Self {
            failures: previous.map_or(0, |previous| previous.failures),
            retry_at: now.after(OUTAGE_RETRY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_doubles_from_one_second_to_a_minute() {
        let now = Instant::ORIGIN;
        let mut backoff = None;
        let pauses = (0..8).map(|_| {
            let next = Backoff::after(backoff, now);
            backoff = Some(next);
            next.retry_at.since(now).as_secs()
        });
        assert!(pauses.eq([1, 2, 4, 8, 16, 32, 60, 60]));
        let last = backoff.map(|last| Backoff {
            failures: 99,
            ..last
        });
        assert_eq!(Backoff::after(last, now).retry_at, now.after(BACKOFF_MOST));
    }

    #[test]
    fn failure_in_an_outage_is_repeated_after_a_second() {
        let now = Instant::ORIGIN;
        let twice = Backoff::after(Some(Backoff::after(None, now)), now);
        let uncounted = Backoff::uncounted(Some(twice), now);
        assert_eq!(uncounted.retry_at, now.after(OUTAGE_RETRY));
        assert_eq!(Backoff::after(Some(uncounted), now).failures, 3);
    }
}
