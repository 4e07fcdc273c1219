//! What is known of the event stream: whether it stands, since when, and which events on it are
//! plausible news (law 6).

use std::time::Duration;

use crate::audit::Trust;
use crate::observed::{Arrival, StreamEnd};
use crate::time::{Instant, WallTime};

/// How long a call must have stood to count as confirmed.
pub(crate) const STANDS: Duration = Duration::from_secs(1);
/// An event stamped longer ago than this is a replay (containerd holds events for 5 minutes).
const OLDEST: Duration = Duration::from_secs(5 * 60);
/// How far ahead of us a runtime's clock may be, and how far ours may jump unnoticed.
const SKEW: Duration = Duration::from_secs(1);

/// The state of the event stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamState {
    /// Not in use: polling mode.
    Off,
    /// No call was issued yet.
    Starting {
        /// Since when.
        since: Instant,
    },
    /// A call stands. Runtimes give no sign that they have taken it before the first event.
    Subscribed {
        /// When it was issued.
        since: Instant,
        /// It has stood for a second and a complete list was begun after it.
        confirmed: bool,
        /// It has delivered an event.
        proven: bool,
    },
    /// No call stands.
    Down {
        /// Since when.
        since: Instant,
        /// How the last one ended.
        why: StreamEnd,
        /// When the next one is issued at the earliest.
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
    /// Our two clocks, read together.
    reading: Option<(Instant, WallTime)>,
    /// Events stamped before this are old news; none while our wall clock is in doubt.
    plausible_from: Option<WallTime>,
    /// The wall clock stepped: a complete list begun after this ends the doubt.
    stepped: Option<Instant>,
    /// Time in which the stream was drained or none was offered, up to `drained_at`.
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

    /// Whether a standing call was lost.
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

    /// An event arrived. Returns whether unknown ids that it names may be believed.
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

    /// If the wall clock moved by more than a second against the monotonic one, no stamp can be
    /// compared with what was read before.
    fn check_wall_clock(&mut self, arrival: &Arrival) {
        if let Some((at, wall)) = self.reading.replace((arrival.arrived, arrival.wall)) {
            // Arrivals that were joined while the writer was slow come out of order.
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

    /// A complete list. Whether it is the baseline: the first one begun after the subscribe.
    pub(crate) fn listed(&mut self, began: Instant, ended: Instant) -> bool {
        if let (Some(stepped), Some((at, wall))) = (self.stepped, self.reading)
            && began > stepped
        {
            // The list's begin now stands for the subscribe; its wall time follows from the last
            // reading of both clocks.
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

    /// Whether a read begun at `began` audits the stream.
    pub(crate) fn audits(&self, began: Instant) -> bool {
        matches!(self.state, State::Subscribed { .. }) && self.baseline.is_some_and(|b| began > b)
    }

    pub(crate) fn trust(&self, now: Instant) -> Trust {
        let confirmed = matches!(self.state, State::Subscribed { since }
            if self.baseline.is_some() && now >= since.after(STANDS));
        Trust {
            confirmed,
            proven: self.delivered,
        }
    }

    /// Whether the removal of a sandbox may never be told on this stream (CRI-O never does).
    pub(crate) const fn hides_removals(&self) -> bool {
        matches!(self.state, State::Subscribed { .. }) && !self.delivered_sandbox_deleted
    }

    /// The reader says whether events wait to be applied.
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
                why: StreamEnd::NeverOffered | StreamEnd::Disabled,
                ..
            }
        )
    }

    /// Standing calls that were lost.
    pub(crate) const fn lost(&self) -> u64 {
        self.lost
    }

    pub(crate) fn state(&self, now: Instant) -> StreamState {
        match &self.state {
            State::Off => StreamState::Off,
            State::Starting { since } => StreamState::Starting { since: *since },
            State::Subscribed { since } => {
                let trust = self.trust(now);
                StreamState::Subscribed {
                    since: *since,
                    confirmed: trust.confirmed,
                    proven: trust.proven,
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
