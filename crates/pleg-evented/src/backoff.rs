//! Computes the instant of the next dial (connect) from failed dials and from starts and ends of subscribe calls.
//!
//! This module reads no clock: the callers pass all instants.

use std::collections::VecDeque;
use std::time::Duration;

use oorandom::Rand64;
use pleg_runtime::core::{Instant, StreamEnd};

use crate::policy::{ReconnectPolicy, ReconnectSettings};

/// The back-off of dials (connects to the socket) and of subscribe calls.
///
/// Dials and calls are counted separately. A failed dial costs the runtime nothing, and after a restart the socket
/// returns within seconds, so dials are frequent. A call that ends early costs the runtime a subscriber each time, so
/// calls are rare. Failed dials and short calls do not lengthen each other's pauses.
#[derive(Debug)]
pub(crate) struct Backoff {
    settings: ReconnectSettings,
    rng: Rand64,
    /// The instants of the last subscribe calls, at most `subscribes_per_minute`.
    issued: VecDeque<Instant>,
    dialing: Option<Dialing>,
    /// The number of subscribe calls that ended since `probe`, or a call open for `reset_after`, reset the back-off.
    short_lives: u32,
}

/// Failed dials in a row.
#[derive(Debug)]
struct Dialing {
    since: Instant,
    backed_off: u32,
}

impl Backoff {
    pub(crate) fn new(policy: &ReconnectPolicy) -> Self {
        let settings = policy.settings().clone();
        let rng = Rand64::new(settings.seed.into());
        Self {
            settings,
            rng,
            issued: VecDeque::new(),
            dialing: None,
            short_lives: 0,
        }
    }

    /// Notes that a subscribe call was issued.
    pub(crate) fn issued(&mut self, at: Instant) {
        self.dialing = None;
        if self.issued.len() >= usize::from(self.settings.subscribes_per_minute) {
            self.issued.pop_front();
        }
        self.issued.push_back(at);
    }

    /// Notes that a dial failed. Returns the instant of the next dial.
    pub(crate) fn after_dial(&mut self, now: Instant, end: &StreamEnd) -> Instant {
        if matches!(end, StreamEnd::Declined(_)) {
            return self.probe(now);
        }
        let dialing = self.dialing.get_or_insert(Dialing {
            since: now,
            backed_off: 0,
        });
        let pause = if now.since(dialing.since) < self.settings.dial_every_for {
            self.settings.dial_every
        } else {
            let before = dialing.backed_off;
            dialing.backed_off = before.saturating_add(1);
            self.backoff(before)
        };
        self.within_the_limit(now.after(pause))
    }

    /// Notes that the subscribe call issued at `at` has ended. Returns the instant of the next dial.
    pub(crate) fn after_call(&mut self, at: Instant, now: Instant, end: &StreamEnd) -> Instant {
        if matches!(end, StreamEnd::NeverOffered | StreamEnd::Disabled) {
            return self.probe(now);
        }
        if now.since(at) >= self.settings.reset_after {
            self.short_lives = 0;
        }
        let pause = match self.short_lives {
            0 => Duration::ZERO,
            n => self.backoff(n - 1),
        };
        self.short_lives = self.short_lives.saturating_add(1);
        self.within_the_limit(now.after(pause))
    }

    /// The instant of the next dial if there is no stream or the reader declined it. No failure: resets the back-off.
    fn probe(&mut self, now: Instant) -> Instant {
        self.short_lives = 0;
        self.dialing = None;
        self.within_the_limit(now.after(self.settings.probe_every))
    }

    fn backoff(&mut self, before: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(before);
        let longest = self.settings.backoff_from.saturating_mul(doubled);
        let longest = longest.min(self.settings.backoff_to);
        let percent = f64::from(self.settings.jitter_percent) / 100.0;
        longest - longest.mul_f64(percent * self.rng.rand_float())
    }

    fn within_the_limit(&self, at: Instant) -> Instant {
        const MINUTE: Duration = Duration::from_secs(60);
        match self.issued.front() {
            Some(first)
                if self.issued.len() >= usize::from(self.settings.subscribes_per_minute) =>
            {
                at.max(first.after(MINUTE))
            }
            _ => at,
        }
    }
}

#[cfg(test)]
mod tests {
    use pleg_runtime::core::{CallError, CallErrorKind};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn pace(change: impl FnOnce(&mut ReconnectSettings)) -> Backoff {
        let mut settings = ReconnectSettings {
            jitter_percent: 0,
            ..ReconnectSettings::default()
        };
        change(&mut settings);
        Backoff::new(&ReconnectPolicy::new(settings).unwrap())
    }

    fn at(ms: u32) -> Instant {
        Instant::from_origin(MS * ms)
    }

    fn refused() -> StreamEnd {
        StreamEnd::Refused(CallError::new("", CallErrorKind::Unavailable, ""))
    }

    /// The pauses after subscribe calls that each end after `life`.
    fn pauses(pace: &mut Backoff, life: Duration, calls: usize) -> Vec<Duration> {
        let mut now = at(0);
        let mut pauses = Vec::new();
        for _ in 0..calls {
            pace.issued(now);
            let ended = now.after(life);
            let next = pace.after_call(now, ended, &StreamEnd::Ended(None));
            pauses.push(next.since(ended));
            now = next;
        }
        pauses
    }

    #[test]
    fn short_subscribe_calls_double_the_pause_up_to_the_maximum() {
        let mut pace = pace(|s| s.subscribes_per_minute = 600);
        let millis: Vec<_> = pauses(&mut pace, MS, 13)
            .iter()
            .map(Duration::as_millis)
            .collect();
        let doubling = [0, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 51200];
        assert_eq!(millis[..11], doubling);
        assert_eq!(millis[11..], [60_000, 60_000]);
    }

    #[test]
    fn subscribe_call_open_for_a_minute_resets_the_backoff() {
        let mut pace = pace(|_| ());
        assert_eq!(
            pauses(&mut pace, 59_999 * MS, 3),
            [Duration::ZERO, 100 * MS, 200 * MS]
        );
        assert_eq!(pauses(&mut pace, 60_000 * MS, 3), [Duration::ZERO; 3]);
        assert_eq!(pauses(&mut pace, MS, 2), [100 * MS, 200 * MS]);
    }

    #[test]
    fn subscribe_calls_per_minute_do_not_exceed_the_limit() {
        let mut pace = pace(|s| s.backoff_to = 100 * MS);
        let mut calls = Vec::new();
        let mut now = at(0);
        for _ in 0..40 {
            pace.issued(now);
            calls.push(now);
            now = pace.after_call(now, now.after(MS), &refused());
        }
        for window in calls.windows(11) {
            assert!(window[10].since(window[0]) >= 60_000 * MS);
        }
        assert_eq!(calls[10], at(60_000));
    }

    #[test]
    fn failed_dials_repeat_often_without_counting_as_subscribe_calls() {
        let mut pace = pace(|_| ());
        let mut now = at(0);
        let mut dials = Vec::new();
        for _ in 0..104 {
            dials.push(now);
            now = pace.after_dial(now, &refused());
        }
        let often: Vec<_> = (0..=100).map(|n| at(n * 50)).collect();
        assert_eq!(dials[..101], often);
        assert_eq!(dials[101..], [at(5100), at(5300), at(5700)]);
        // Now a dial succeeds, but its call fails: the next dial follows at once and, if it fails, another 50 ms later.
        pace.issued(now);
        assert_eq!(pace.after_call(now, now, &refused()), now);
        assert_eq!(pace.after_dial(now, &refused()), now.after(50 * MS));
    }

    #[test]
    fn unimplemented_disabled_or_declined_stream_is_tried_once_a_minute() {
        let mut pace = pace(|_| ());
        for end in [StreamEnd::NeverOffered, StreamEnd::Disabled] {
            pace.issued(at(0));
            assert_eq!(pace.after_call(at(0), at(5), &end), at(60_005));
        }
        let declined = CallError::new("GetContainerEvents", CallErrorKind::Unimplemented, "no");
        let declined = StreamEnd::Declined(declined);
        assert_eq!(pace.after_dial(at(7), &declined), at(60_007));
    }

    #[test]
    fn jitter_only_shortens_pauses_and_depends_only_on_its_seed() {
        let jittered = |seed| {
            let change = |s: &mut ReconnectSettings| {
                (s.jitter_percent, s.seed, s.subscribes_per_minute) = (50, seed, 600);
            };
            pauses(&mut pace(change), MS, 40)
        };
        let (first, plain) = (
            jittered(1),
            pauses(&mut pace(|s| s.subscribes_per_minute = 600), MS, 40),
        );
        for (jittered, plain) in first.iter().zip(&plain) {
            assert!(*jittered <= *plain && *jittered * 2 >= *plain);
        }
        assert_ne!(first, plain);
        assert_eq!(first, jittered(1));
        assert_ne!(first, jittered(2));
    }
}
