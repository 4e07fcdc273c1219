//! The state of the event stream: whether it is open, since when, and which of its events are
//! plausible (invariant 6).

use std::time::Duration;

use crate::types::event::{Arrival, StreamEnd};
use crate::types::time::{Instant, WallTime};

/// How long a call must be open to count as confirmed.
pub(crate) const STANDS: Duration = Duration::from_secs(1);
/// An event with a timestamp older than this is a replay (containerd holds events for 5 minutes).
const OLDEST: Duration = Duration::from_secs(5 * 60);
/// How far ahead the runtime's clock may be, and how far the local clock may jump unnoticed.
const SKEW: Duration = Duration::from_secs(1);

/// The state of the event stream.
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

/// The stream as the reconciler sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stream {
    state: State,
    /// The end of the first complete list that began after the present subscribe.
    baseline: Option<Instant>,
    delivered: bool,
    delivered_sandbox_deleted: bool,
    /// The monotonic and the wall clock, read together.
    reading: Option<(Instant, WallTime)>,
    /// An event with an earlier timestamp is implausible. `None` while the wall clock is in doubt.
    plausible_from: Option<WallTime>,
    /// The wall clock stepped at this instant: a complete list begun after it ends the doubt.
    stepped: Option<Instant>,
    /// Time in which the stream was drained or none was offered, until `drained_at`.
    drained: Duration,
    drained_at: Instant,
    behind: bool,
    lost: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Off,
    Starting {
        since: Instant,
    },
    Subscribed {
        since: Instant,
    },
    Down {
        since: Instant,
        why: StreamEnd,
        retry_at: Instant,
    },
}

impl Stream {
    pub(crate) const fn new(offered: bool, now: Instant) -> Self {
        Self {
            state: if offered {
                State::Starting { since: now }
            } else {
                State::Off
            },
            baseline: None,
            delivered: false,
            delivered_sandbox_deleted: false,
            reading: None,
            plausible_from: None,
            stepped: None,
            drained: Duration::ZERO,
            drained_at: now,
            behind: false,
            lost: 0,
        }
    }

    pub(crate) fn subscribed(&mut self, at: Instant, wall: WallTime, now: Instant) {
        self.tick(now);
        self.state = State::Subscribed { since: at };
        self.baseline = None;
        self.delivered = false;
        self.delivered_sandbox_deleted = false;
        self.reading = Some((at, wall));
        self.plausible_from = Some(wall);
        self.stepped = None;
    }

    /// Returns whether an open call was lost.
    pub(crate) fn ended(
        &mut self,
        at: Instant,
        why: StreamEnd,
        retry_at: Instant,
        now: Instant,
    ) -> bool {
        self.tick(now);
        let stood = matches!(self.state, State::Subscribed { .. });
        let since = match (&self.state, stood) {
            (State::Down { since, .. }, false) => *since,
            _ => at,
        };
        self.state = State::Down {
            since,
            why,
            retry_at,
        };
        self.baseline = None;
        if stood && !self.is_not_offered() {
            self.lost = self.lost.saturating_add(1);
        }
        stood
    }

    /// An event arrived. Returns whether unknown ids that it names may be recorded.
    pub(crate) fn arrived(&mut self, arrival: &Arrival) -> bool {
        self.delivered = true;
        self.check_wall_clock(arrival);
        let stamp = WallTime::from_nanos(arrival.event.created_at);
        self.plausible_from.is_some_and(|from| {
            stamp >= from
                && stamp >= arrival.wall.before(OLDEST)
                && stamp <= arrival.wall.after(SKEW)
        })
    }

    /// If the wall clock moved by more than a second against the monotonic one, timestamps cannot
    /// be compared with earlier readings.
    fn check_wall_clock(&mut self, arrival: &Arrival) {
        if let Some((at, wall)) = self.reading.replace((arrival.arrived, arrival.wall)) {
            // Arrivals that were joined while the writer was slow are out of order.
            let drift = arrival
                .wall
                .nanos_since(wall)
                .saturating_sub(arrival.arrived.nanos_since(at));
            if drift.unsigned_abs() > SKEW.as_nanos() as u64 {
                self.plausible_from = None;
                self.stepped = Some(arrival.arrived);
            }
        }
    }

    pub(crate) const fn sandbox_deleted(&mut self) {
        self.delivered_sandbox_deleted = true;
    }

    /// A complete list ended. Returns whether it is the baseline: the first one begun after the
    /// subscribe.
    pub(crate) fn listed(&mut self, began: Instant, ended: Instant) -> bool {
        if let (Some(stepped), Some((at, wall))) = (self.stepped, self.reading)
            && began > stepped
        {
            // The list's begin takes the place of the subscribe. Its wall time follows from the
            // last reading of both clocks.
            let apart = began.nanos_since(at);
            self.plausible_from = Some(WallTime::from_nanos(wall.as_nanos().saturating_add(apart)));
            self.stepped = None;
        }
        match self.state {
            State::Subscribed { since } if self.baseline.is_none() && began > since => {
                self.baseline = Some(ended);
                true
            }
            _ => false,
        }
    }

    /// Whether a read begun at that instant, or an event that arrived then, checks the stream: a
    /// call is open, and the baseline had ended.
    pub(crate) fn checks(&self, began: Instant) -> bool {
        matches!(self.state, State::Subscribed { .. }) && self.baseline.is_some_and(|b| began > b)
    }

    /// Whether a call is open.
    pub(crate) const fn is_subscribed(&self) -> bool {
        matches!(self.state, State::Subscribed { .. })
    }

    /// Whether the stream is confirmed, and whether it has delivered an event.
    pub(crate) fn trust(&self, now: Instant) -> (bool, bool) {
        let confirmed = matches!(self.state, State::Subscribed { since }
            if self.baseline.is_some() && now >= since.after(STANDS));
        (confirmed, self.delivered)
    }

    /// Whether this stream may never report the removal of a sandbox (CRI-O never does).
    pub(crate) const fn hides_removals(&self) -> bool {
        matches!(self.state, State::Subscribed { .. }) && !self.delivered_sandbox_deleted
    }

    /// The reader reports whether events wait to be applied.
    pub(crate) fn set_behind(&mut self, behind: bool, now: Instant) {
        if self.behind != behind {
            self.tick(now);
            self.behind = behind;
        }
    }

    pub(crate) const fn is_behind(&self) -> bool {
        self.behind
    }

    /// How long the stream was drained, or none was offered: the time in which tombstones age.
    pub(crate) fn drained(&mut self, now: Instant) -> Duration {
        self.tick(now);
        self.drained
    }

    fn tick(&mut self, now: Instant) {
        let counts = match &self.state {
            State::Off => true,
            State::Subscribed { .. } => !self.behind,
            State::Down { .. } => self.is_not_offered(),
            State::Starting { .. } => false,
        };
        if counts {
            self.drained = self.drained.saturating_add(now.since(self.drained_at));
        }
        self.drained_at = self.drained_at.max(now);
    }

    /// Whether the runtime offers no events.
    const fn is_not_offered(&self) -> bool {
        matches!(
            self.state,
            State::Down {
                why: StreamEnd::NeverOffered | StreamEnd::Declined | StreamEnd::Disabled,
                ..
            }
        )
    }

    /// The number of lost streams.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }

    pub(crate) fn state(&self, now: Instant) -> StreamState {
        match &self.state {
            State::Off => StreamState::Off,
            State::Starting { since } => StreamState::Starting { since: *since },
            State::Subscribed { since } => {
                let (confirmed, proven) = self.trust(now);
                StreamState::Subscribed {
                    since: *since,
                    confirmed,
                    proven,
                }
            }
            State::Down {
                since,
                why,
                retry_at,
            } => StreamState::Down {
                since: *since,
                why: why.clone(),
                retry_at: *retry_at,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::error::{CallError, CallErrorKind};
    use crate::types::event::{EventType, RuntimeEvent};

    const WALL: i64 = 1_700_000_000_000_000_000;

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    fn wall(ms: i64) -> WallTime {
        WallTime::from_nanos(WALL + ms * 1_000_000)
    }

    fn subscribed(ms: u64) -> Stream {
        let mut stream = Stream::new(true, at(0));
        stream.subscribed(at(ms), wall(ms as i64), at(ms));
        stream
    }

    fn event(stamped: i64, arrived: u64, read: i64) -> Arrival {
        Arrival {
            event: RuntimeEvent {
                id: "c".into(),
                event: EventType::Started,
                created_at: wall(stamped).as_nanos(),
                sandbox: None,
                containers: Vec::new(),
            },
            arrived: at(arrived),
            wall: wall(read),
        }
    }

    #[test]
    fn stamps_are_plausible_from_the_subscribe_to_a_second_ahead() {
        for (stamped, plausible) in [(999, false), (1_000, true), (3_000, true), (3_001, false)] {
            let mut stream = subscribed(1_000);
            assert_eq!(
                stream.arrived(&event(stamped, 2_000, 2_000)),
                plausible,
                "{stamped}"
            );
        }
        for (stamped, plausible) in [(1_000, true), (999, false)] {
            let mut stream = subscribed(0);
            let arrived = event(stamped, 301_000, 301_000);
            assert_eq!(stream.arrived(&arrived), plausible, "{stamped}");
        }
    }

    #[test]
    fn a_step_of_more_than_a_second_makes_all_stamps_doubtful_until_a_list() {
        let mut stream = subscribed(0);
        assert!(
            stream.arrived(&event(2_000, 1_000, 2_000)),
            "a second is no step"
        );
        assert!(!stream.arrived(&event(4_001, 2_000, 4_001)));
        assert!(!stream.arrived(&event(4_101, 2_100, 4_101)));
        // A list that began at the step, or before, does not end the doubt.
        stream.listed(at(2_000), at(2_050));
        assert!(!stream.arrived(&event(4_201, 2_200, 4_201)));
        stream.listed(at(2_300), at(2_350));
        // The list's begin takes the place of the subscribe: 4301 on the wall clock.
        assert!(!stream.arrived(&event(4_300, 2_400, 4_401)));
        assert!(stream.arrived(&event(4_301, 2_400, 4_401)));
    }

    #[test]
    fn the_first_list_begun_after_the_subscribe_is_the_baseline() {
        let mut stream = subscribed(1_000);
        assert!(!stream.listed(at(1_000), at(1_100)));
        assert!(!stream.checks(at(2_000)));
        assert!(stream.listed(at(1_001), at(1_200)));
        assert!(!stream.listed(at(1_300), at(1_400)), "there is one only");
        assert!(!stream.checks(at(1_200)) && stream.checks(at(1_201)));
        assert!(!stream.trust(at(1_999)).0 && stream.trust(at(2_000)).0);
        assert!(!stream.trust(at(2_000)).1);
        stream.arrived(&event(1_500, 1_500, 1_500));
        assert!(stream.trust(at(2_000)).1);
    }

    #[test]
    fn a_standing_call_that_ends_is_lost_unless_none_was_offered() {
        let cut = || StreamEnd::Cut(CallError::new("x", CallErrorKind::Failed, "cut"));
        let mut stream = subscribed(0);
        assert!(stream.is_subscribed());
        assert!(stream.ended(at(1), cut(), at(2), at(1)));
        assert!(!stream.is_subscribed());
        assert!(
            !stream.ended(at(3), cut(), at(4), at(3)),
            "it stands no more"
        );
        assert_eq!(stream.lost(), 1);
        let since_first =
            matches!(stream.state(at(3)), StreamState::Down { since, .. } if since == at(1));
        assert!(since_first);
        stream.subscribed(at(5), wall(5), at(5));
        stream.ended(at(6), StreamEnd::Disabled, at(7), at(6));
        assert_eq!(stream.lost(), 1);
    }

    #[test]
    fn tombstones_age_while_the_stream_is_drained_or_none_is_offered() {
        let mut stream = subscribed(100);
        assert_eq!(stream.drained(at(150)), Duration::from_millis(50));
        stream.set_behind(true, at(200));
        assert!(stream.is_behind());
        stream.set_behind(true, at(250));
        stream.set_behind(false, at(300));
        assert!(!stream.is_behind());
        assert_eq!(stream.drained(at(400)), Duration::from_millis(200));
        let cut = StreamEnd::Cut(CallError::new("x", CallErrorKind::Failed, "cut"));
        stream.ended(at(400), cut, at(500), at(400));
        assert_eq!(stream.drained(at(500)), Duration::from_millis(200));
        stream.ended(at(500), StreamEnd::NeverOffered, at(900), at(500));
        assert_eq!(stream.drained(at(600)), Duration::from_millis(300));
    }

    /// CRI-O never reports the removal of a sandbox: until a stream has reported one, ended pods
    /// are inspected.
    #[test]
    fn a_stream_hides_removals_until_it_has_told_of_one() {
        let mut stream = Stream::new(true, at(0));
        assert!(!stream.hides_removals(), "none stands");
        stream.subscribed(at(1), wall(1), at(1));
        assert!(stream.hides_removals());
        stream.sandbox_deleted();
        assert!(!stream.hides_removals());
        stream.subscribed(at(2), wall(2), at(2));
        assert!(stream.hides_removals(), "it may be another runtime");
        stream.ended(at(3), StreamEnd::Disabled, at(4), at(3));
        assert!(!stream.hides_removals(), "lists tell of them");
    }
}
