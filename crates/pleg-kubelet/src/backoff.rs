//! The crash back-off: how long an ended container waits for its restart. The rule is that of upstream's kubelet
//! (`flowcontrol.Backoff` and `doBackOff`). Each pod, container name and hash of a container has its own delay:
//!
//! * The first restart is made at once. It sets the delay to 10 s.
//! * A later restart is made when the delay has passed since the container *ended*. It doubles the delay, up to 5 min.
//! * If the container ended more than 10 min after the last counted restart (it ran that long), it is restarted at once
//!   and the delay is 10 s again. (`flowcontrol.Backoff` resets after twice its maximum; the kubelet sets 10 min.)
//!
//! Restarts after exit code 0, or after a stop by the kubelet, wait as well. Unlike upstream's, the delay starts when
//! the generator detected the exit, on its monotonic clock, not at `finishedAt`. So wall-clock steps change no delay.

use std::collections::BTreeMap;
use std::time::Duration;

use pleg::{Instant, InvalidSetting};

/// The delays between restarts of a container, or between failed pulls of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackOffSettings {
    /// The first delay, which is also the time between two replacements of a sandbox. Default 10 s, minimum 1 ms.
    pub initial: Duration,
    /// The greatest delay. Default 5 min, maximum one day.
    pub max: Duration,
}

/// A container that ran longer than this time is restarted without a delay, and its back-off starts over.
const RESET_AFTER: Duration = Duration::from_secs(10 * 60);

impl Default for BackOffSettings {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(10),
            max: Duration::from_secs(5 * 60),
        }
    }
}

impl BackOffSettings {
    pub(crate) fn validate(self) -> Result<(), InvalidSetting> {
        let (Self { initial, max }, day) = (self, Duration::from_secs(24 * 3600));
        let (least, rule) = (Duration::from_millis(1), "it must be at least 1ms");
        InvalidSetting::unless(initial >= least, "initial", initial, rule)?;
        let rule = "it must not be shorter than initial";
        InvalidSetting::unless(max >= initial, "max", max, rule)?;
        InvalidSetting::unless(max <= day, "max", max, "it must be at most one day")
    }
}

/// The instant until which a restart or pull must wait, and the whole delay (`back-off 20s` in a container's status).
type Delayed = (Instant, Duration);

/// The back-off of one pod, for each container that was restarted and each image whose pull failed.
#[derive(Clone, Debug, Default)]
pub(crate) struct BackOff {
    pub(crate) settings: BackOffSettings,
    /// By container or image: the present delay, and the instant of the last restart or failed pull.
    keys: BTreeMap<String, (Duration, Instant)>,
}

impl BackOff {
    /// The delay of the restart of a container that ended at `ended`. `None`: the container may restart now.
    pub(crate) fn delayed(&self, key: &str, ended: Instant, now: Instant) -> Option<Delayed> {
        let delay = self.delay(key, ended)?;
        let until = ended.after(delay);
        (now < until).then_some((until, delay))
    }

    /// The delay of the next pull of an image. `None`: the image may be pulled now.
    pub(crate) fn delayed_retry(&self, key: &str, now: Instant) -> Option<Delayed> {
        let (_, counted) = self.keys.get(key)?;
        self.delayed(key, *counted, now)
    }

    /// Counts a restart, made at `now`, of a container that ended at `ended`.
    pub(crate) fn restarted(&mut self, key: &str, ended: Instant, now: Instant) {
        let BackOffSettings { initial, max } = self.settings;
        let doubled = self.delay(key, ended).map(|delay| delay.saturating_mul(2));
        let delay = doubled.unwrap_or(initial).min(max);
        self.keys.insert(key.to_owned(), (delay, now));
    }

    /// The present delay. `None` if the back-off of a container that ended at `ended` starts over.
    fn delay(&self, key: &str, ended: Instant) -> Option<Duration> {
        let (delay, counted) = self.keys.get(key)?;
        (ended.since(*counted) <= RESET_AFTER).then_some(*delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation::at;

    const SECOND: Duration = Duration::from_secs(1);

    /// Restarts a container that ends as soon as it was started. Returns the delays in seconds.
    fn crash_loop(back_off: &mut BackOff, restarts: usize) -> Vec<u64> {
        let (mut now, mut delays) = (at(1), Vec::new());
        for _ in 0..restarts {
            let ended = now;
            if let Some((until, delay)) = back_off.delayed("c", ended, now) {
                assert_eq!(until, ended.after(delay));
                now = until;
            }
            assert_eq!(back_off.delayed("c", ended, now), None);
            back_off.restarted("c", ended, now);
            delays.push(now.since(ended).as_secs());
        }
        delays
    }

    #[test]
    fn first_restart_is_immediate_and_delays_double_to_the_maximum() {
        let delays = crash_loop(&mut BackOff::default(), 9);
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300, 300]);
        let mut back_off = BackOff::default();
        (back_off.settings.initial, back_off.settings.max) = (SECOND, 3 * SECOND);
        let delays = crash_loop(&mut back_off, 5);
        assert_eq!(delays, [0, 1, 2, 3, 3]);
    }

    #[test]
    fn container_that_ran_past_the_reset_time_restarts_at_once() {
        let mut back_off = BackOff::default();
        back_off.restarted("c", at(1), at(1));
        back_off.restarted("c", at(2), at(12));
        let ended = at(12 + 600);
        assert!(back_off.delayed("c", ended, ended).is_some());
        let ended = at(12 + 601);
        assert_eq!(back_off.delayed("c", ended, ended), None);
        back_off.restarted("c", ended, ended);
        let (_, delay) = back_off.delayed("c", ended, ended).unwrap();
        assert_eq!(delay, 10 * SECOND);
        assert_eq!(back_off.delayed("d", ended, ended), None);
    }

    #[test]
    fn back_off_settings_out_of_bounds_are_an_error() {
        let (zero, day) = (Duration::ZERO, Duration::from_secs(24 * 3600));
        for (initial, max, setting) in [
            (zero, SECOND, "initial"),
            (2 * SECOND, SECOND, "max"),
            (SECOND, day + SECOND, "max"),
        ] {
            let refused = BackOffSettings { initial, max }.validate().err();
            assert_eq!(refused.map(|error| error.setting), Some(setting));
        }
    }
}
