//! The share of events that the stream loses: those expected and those missed in the last ten minutes.

use std::collections::VecDeque;
use std::time::Duration;

use crate::constants::LOSS_MINUTES;
use crate::types::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// Events that the stream should have delivered in the last ten minutes, and how many it did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct StreamLoss {
    /// STARTED and STOPPED events of containers: those that arrived for a change that a read has shown, and those missed.
    pub expected: u64,
    /// How many of them were missed.
    pub missed: u64,
}

impl StreamLoss {
    /// A loss with these counts.
    pub const fn new(expected: u64, missed: u64) -> Self {
        Self { expected, missed }
    }

    /// Returns true if the stream loses so much that the node is relisted every second: at least two events, and at
    /// least 1 % of the expected ones.
    pub const fn is_lossy(self) -> bool {
        self.missed >= 2 && self.missed.saturating_mul(100) >= self.expected
    }
}

/// The counts, minute by minute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LossWindow(VecDeque<(u64, StreamLoss)>);

impl LossWindow {
    /// An event arrived.
    pub(crate) fn arrived(&mut self, now: Instant) {
        self.minute(now).expected += 1;
    }

    /// An event was missed.
    pub(crate) fn missed(&mut self, now: Instant) {
        let minute = self.minute(now);
        minute.expected += 1;
        minute.missed += 1;
    }

    /// The counts of the last ten minutes.
    pub(crate) fn of_last_minutes(&self, now: Instant) -> StreamLoss {
        let now = minute_of(now);
        let recent = self
            .0
            .iter()
            .filter(|(minute, _)| minute + LOSS_MINUTES >= now);
        recent.fold(StreamLoss::default(), |sum, (_, loss)| StreamLoss {
            expected: sum.expected + loss.expected,
            missed: sum.missed + loss.missed,
        })
    }

    fn minute(&mut self, now: Instant) -> &mut StreamLoss {
        let now = minute_of(now);
        if self.0.back().is_none_or(|(minute, _)| *minute < now) {
            self.0.push_back((now, StreamLoss::default()));
            while self.0.len() as u64 > LOSS_MINUTES + 1 {
                self.0.pop_front();
            }
        }
        let last = self.0.len() - 1;
        &mut self.0[last].1
    }
}

fn minute_of(now: Instant) -> u64 {
    now.since(Instant::ORIGIN).as_secs() / MINUTE.as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn stream_is_lossy_from_two_misses_and_one_percent() {
        for (expected, missed, lossy) in [
            (1, 1, false),
            (2, 2, true),
            (200, 2, true),
            (201, 2, false),
            (0, 0, false),
        ] {
            assert_eq!(StreamLoss::new(expected, missed).is_lossy(), lossy);
        }
    }

    #[test]
    fn misses_leave_the_window_after_ten_minutes() {
        let mut window = LossWindow::default();
        for second in [0, 59, 60] {
            window.missed(at(second));
        }
        window.arrived(at(61));
        assert_eq!(window.of_last_minutes(at(659)), StreamLoss::new(4, 3));
        assert_eq!(window.of_last_minutes(at(660)), StreamLoss::new(2, 1));
        window.arrived(at(720));
        assert_eq!(window.of_last_minutes(at(720)), StreamLoss::new(1, 0));
    }

    #[test]
    fn window_has_every_event_of_eleven_minutes() {
        let mut window = LossWindow::default();
        for minute in 0..=LOSS_MINUTES {
            window.missed(at(60 * minute));
            window.arrived(at(60 * minute));
        }
        let loss = window.of_last_minutes(at(60 * LOSS_MINUTES));
        assert_eq!(loss, StreamLoss::new(22, 11));
    }
}
