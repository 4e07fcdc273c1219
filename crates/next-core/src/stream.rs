//! The state of the event stream: whether it is open, and whether relists have confirmed it.

use crate::constants::{END_IS_FINAL_FOR, STREAM_STANDS};
use crate::types::event::{StreamChange, StreamEnd};
use crate::types::time::Instant;

/// The event stream, for health reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum StreamState {
    /// Not in use: polling mode.
    Off,
    /// No call was issued yet.
    Starting {
        /// Since when.
        since: Instant,
    },
    /// A call is open. Runtimes do not signal that they have accepted it before the first event.
    Subscribed {
        /// When it was issued.
        since: Instant,
        /// It has been open for a second, and a complete list was begun after it.
        confirmed: bool,
        /// It has delivered an event.
        proven: bool,
    },
    /// No call is open.
    Down {
        /// Since when.
        since: Instant,
        /// How the last one ended.
        why: StreamEnd,
        /// When the next one will be issued at the earliest.
        retry_at: Instant,
    },
}

/// The present stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    /// `confirmed` and `proven` of it are computed by [`state`](Self::state).
    state: StreamState,
    /// A relist that began after the subscribe is complete.
    is_relisted: bool,
    has_delivered: bool,
    pub(crate) lost: u64,
}

impl Stream {
    pub(crate) const fn new(state: StreamState) -> Self {
        Self {
            state,
            is_relisted: false,
            has_delivered: false,
            lost: 0,
        }
    }

    /// The stream began or ended.
    pub(crate) fn changed(&mut self, change: StreamChange) {
        let open = self.since();
        let lost = self.lost;
        let state = match change {
            StreamChange::Subscribed { at, .. } => StreamState::Subscribed {
                since: at,
                confirmed: false,
                proven: false,
            },
            StreamChange::Ended { at, why, retry_at } => StreamState::Down {
                since: match self.state {
                    StreamState::Down { since, .. } => since,
                    _ => at,
                },
                why,
                retry_at,
            },
        };
        *self = Self::new(state);
        let offered = !matches!(
            self.state,
            StreamState::Down {
                why: StreamEnd::NeverOffered | StreamEnd::Declined | StreamEnd::Disabled,
                ..
            }
        );
        self.lost = lost + u64::from(open.is_some() && self.since().is_none() && offered);
    }

    /// An event arrived.
    pub(crate) const fn delivered(&mut self) {
        self.has_delivered = true;
    }

    /// A complete relist has ended.
    pub(crate) fn relisted(&mut self, began: Instant) {
        self.is_relisted |= self.since().is_some_and(|since| began > since);
    }

    /// Since when a call is open.
    pub(crate) const fn since(&self) -> Option<Instant> {
        match &self.state {
            StreamState::Subscribed { since, .. } => Some(*since),
            _ => None,
        }
    }

    /// Returns true if the stream reports a change of a view as of that instant. A read shortly after the subscribe may lag,
    /// and show what happened before it.
    pub(crate) fn reports(&self, as_of: Option<Instant>) -> bool {
        self.since()
            .is_some_and(|since| as_of >= Some(since.after(END_IS_FINAL_FOR)))
    }

    pub(crate) fn is_confirmed(&self, now: Instant) -> bool {
        let stands = self
            .since()
            .is_some_and(|since| now >= since.after(STREAM_STANDS));
        stands && self.is_relisted
    }

    pub(crate) const fn is_proven(&self) -> bool {
        self.has_delivered
    }

    pub(crate) fn state(&self, now: Instant) -> StreamState {
        match self.state {
            StreamState::Subscribed { since, .. } => StreamState::Subscribed {
                since,
                confirmed: self.is_confirmed(now),
                proven: self.has_delivered,
            },
            ref other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::types::time::WallTime;

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    fn subscribed(ms: u64) -> StreamChange {
        let wall = WallTime::from_nanos(0);
        StreamChange::Subscribed { at: at(ms), wall }
    }

    fn ended(ms: u64, why: StreamEnd) -> StreamChange {
        let retry_at = at(ms + 100);
        StreamChange::Ended {
            at: at(ms),
            why,
            retry_at,
        }
    }

    #[test]
    fn stream_is_confirmed_after_a_second_and_a_relist() {
        let mut stream = Stream::new(StreamState::Starting { since: at(0) });
        stream.relisted(at(1));
        stream.changed(subscribed(1_000));
        stream.relisted(at(1_000));
        assert!(!stream.is_confirmed(at(2_000)));
        stream.relisted(at(1_001));
        assert!(!stream.is_confirmed(at(1_999)) && stream.is_confirmed(at(2_000)));
        assert!(!stream.reports(Some(at(10_999))) && stream.reports(Some(at(11_000))));
    }

    #[test]
    fn stream_that_was_open_and_offered_is_lost() {
        let mut stream = Stream::new(StreamState::Starting { since: at(0) });
        for (end, lost) in [
            (StreamEnd::Ended(None), 1),
            (StreamEnd::Disabled, 1),
            (StreamEnd::Ended(None), 2),
        ] {
            stream.changed(subscribed(1));
            stream.delivered();
            stream.changed(ended(2, end.clone()));
            stream.changed(ended(3, end));
            assert_eq!(stream.lost, lost);
            assert!(!stream.is_proven());
            let down_since =
                matches!(stream.state(at(9)), StreamState::Down { since, .. } if since == at(2));
            assert!(down_since);
        }
    }
}
