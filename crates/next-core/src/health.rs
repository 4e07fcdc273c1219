//! Health: instants and states, from which the reader computes readiness.
//!
//! A dead writer cannot look ready: it publishes when its next work is due, not that it is ready.

use std::fmt;
use std::time::Duration;

use crate::constants::{OVERDUE, POD_SLOW, RELIST_SLOW};
use crate::loss::StreamLoss;
use crate::stream::StreamState;
use crate::types::error::CallError;
use crate::types::event::StreamEnd;
use crate::types::go_duration::GoDuration;
use crate::types::ids::PodUid;
use crate::types::status::Text;
use crate::types::time::Instant;

/// The state of the generator's health. Its instants are of the generator's clock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Health {
    /// When the writer's next work is due: a timer, the deadline of a call in flight, or an
    /// unhandled input. Something is always due.
    pub due: Instant,
    /// When the last complete list began.
    pub last_list: Option<Instant>,
    /// Since when the present full list is in flight.
    pub list_in_flight: Option<Instant>,
    /// The error of the last full list, if it failed.
    pub list_error: Option<CallError>,
    /// When the first probe was sent that the runtime left unanswered, if nothing else has been
    /// answered since.
    pub silent_since: Option<Instant>,
    /// The present relist period.
    pub period: Duration,
    /// The event stream.
    pub stream: StreamState,
    /// Since when events wait to be applied, if any do.
    pub behind_since: Option<Instant>,
    /// Inspections that are overdue.
    pub overdue: usize,
    /// When the oldest overdue inspection was requested.
    pub oldest_overdue: Option<Instant>,
    /// The pods of the overdue inspections, oldest first, at most [`NAMED`](Self::NAMED).
    pub overdue_pods: Vec<PodName>,
    /// Pods whose last inspection failed, or that have an unsettled id. They are inspected again
    /// with a backoff.
    pub failing: usize,
    /// Those pods, at most [`NAMED`](Self::NAMED).
    pub failing_pods: Vec<PodName>,
    /// Registered consumers that have not acknowledged ends. The driver sets it: it keeps the exit
    /// records.
    pub unacknowledged: Vec<Unacknowledged>,
    /// Missed events of all kinds since the start.
    pub missed: u64,
    /// Expected and missed events of the last ten minutes.
    pub loss: StreamLoss,
    /// Each event of this runtime goes to one subscriber only.
    pub splits_events_between_subscribers: bool,
    /// A complete list was read and everything that it showed has been inspected.
    pub synced: bool,
    /// The node is not ready after this time without a complete list.
    pub unready_after: Duration,
}

/// A registered consumer has not acknowledged an end of a container or sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Unacknowledged {
    /// The name of the consumer.
    pub consumer: Text,
    /// When the end was detected.
    pub since: Instant,
}

impl Unacknowledged {
    /// A consumer of that name, and the detection of the earliest end that it has not acknowledged.
    pub fn new(consumer: impl Into<Text>, since: Instant) -> Self {
        Self {
            consumer: consumer.into(),
            since,
        }
    }
}

/// The identification of a pod in health reports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct PodName {
    /// Its uid.
    pub uid: PodUid,
    /// Its namespace; empty if it is not known.
    pub namespace: Text,
    /// Its name; empty if it is not known.
    pub name: Text,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            write!(f, "{}", self.uid)
        } else {
            write!(f, "{}/{} ({})", self.namespace, self.name, self.uid)
        }
    }
}

impl Health {
    /// The maximum number of pods named in each list.
    pub const NAMED: usize = 5;

    /// An inspection that is in flight for this long hangs.
    pub const HUNG_AFTER: Duration = POD_SLOW;

    /// An end that a consumer has not acknowledged for this long is a degraded reason.
    pub const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(600);

    /// Whether the generator is ready, and if not, why, in upstream's words.
    ///
    /// Ready means that the last complete list began recently enough and that the writer is alive.
    /// A lost stream, a backlog or a hung pod never makes the node unready.
    ///
    /// # Errors
    /// The reason, if it is not ready.
    pub fn ready(&self, now: Instant) -> Result<(), NotReady> {
        let overdue = now.since(self.due);
        if overdue > OVERDUE {
            return Err(NotReady::Stalled { overdue });
        }
        let Some(last) = self.last_list else {
            return Err(NotReady::NeverListed);
        };
        let elapsed = now.since(last);
        if elapsed > self.unready_after {
            return Err(NotReady::Stale {
                elapsed,
                threshold: self.unready_after,
            });
        }
        Ok(())
    }

    /// Whether `other` is equal except for `due`.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        *self
            == Self {
                due: self.due,
                ..other.clone()
            }
    }

    /// The degraded reasons: problems that do not make the node unready.
    pub fn degraded(&self, now: Instant) -> Vec<Degraded> {
        let mut out = Vec::new();
        match &self.stream {
            // Polling on purpose is no problem.
            StreamState::Down {
                why: StreamEnd::Declined,
                ..
            } => {}
            StreamState::Down { since, .. } => {
                out.push(Degraded::StreamDown { since: *since });
            }
            // The first connection hangs.
            StreamState::Starting { since } if now.since(*since) >= POD_SLOW => {
                out.push(Degraded::StreamDown { since: *since });
            }
            _ => {}
        }
        if self.loss.is_lossy() {
            out.push(Degraded::StreamLossy {
                loss: self.loss,
                splits_events_between_subscribers: self.splits_events_between_subscribers,
            });
        }
        if let Some(since) = self.behind_since.filter(|&s| now.since(s) >= POD_SLOW) {
            out.push(Degraded::Backlog { since });
        }
        if let Some(since) = self.list_in_flight.filter(|&s| now.since(s) >= RELIST_SLOW) {
            out.push(Degraded::ListSlow { since });
        }
        if let Some(error) = &self.list_error {
            out.push(Degraded::ListFailed {
                error: error.clone(),
            });
        }
        if let Some(since) = self.silent_since {
            out.push(Degraded::RuntimeSilent { since });
        }
        if let Some(since) = self.oldest_overdue.filter(|&s| now.since(s) >= POD_SLOW) {
            out.push(Degraded::PodsHung {
                overdue: self.overdue,
                since,
                pods: self.overdue_pods.clone(),
            });
        }
        if self.failing > 0 {
            out.push(Degraded::PodsFailing {
                failing: self.failing,
                pods: self.failing_pods.clone(),
            });
        }
        let owing = self.unacknowledged.iter();
        let owing = owing.filter(|u| now.since(u.since) >= Self::ACKNOWLEDGED_WITHIN);
        if let Some(since) = owing.clone().map(|u| u.since).min() {
            out.push(Degraded::Unacknowledged {
                consumers: owing.map(|u| u.consumer.clone()).collect(),
                since,
            });
        }
        out
    }
}

/// Why the generator is not ready. Displayed in upstream's words where upstream has the same
/// reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum NotReady {
    /// No list has succeeded yet.
    NeverListed,
    /// The last complete list is too old.
    Stale {
        /// How long ago it began.
        elapsed: Duration,
        /// How long ago it may have begun at most.
        threshold: Duration,
    },
    /// The writer's work is overdue.
    Stalled {
        /// How long it has been overdue.
        overdue: Duration,
    },
    /// The generator has shut down.
    Closed,
}

impl NotReady {
    /// The codes of all reasons. They are stable; `docs/runbook.md` explains each.
    pub const CODES: [&str; 4] = ["never_listed", "stale", "stalled", "closed"];

    /// Its code.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NeverListed => "never_listed",
            Self::Stale { .. } => "stale",
            Self::Stalled { .. } => "stalled",
            Self::Closed => "closed",
        }
    }
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverListed => f.write_str("pleg has yet to be successful"),
            Self::Closed => f.write_str("pleg has shut down"),
            Self::Stale { elapsed, threshold } => write!(
                f,
                "pleg was last seen active {} ago; threshold is {}",
                GoDuration(*elapsed),
                GoDuration(*threshold)
            ),
            Self::Stalled { overdue } => {
                write!(f, "pleg's work is overdue by {}", GoDuration(*overdue))
            }
        }
    }
}

impl std::error::Error for NotReady {}

/// A degraded reason: a problem that does not make the node unready.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum Degraded {
    /// There is no event stream. The node is relisted every second.
    StreamDown {
        /// Since when.
        since: Instant,
    },
    /// The event stream loses events. The node is relisted every second.
    StreamLossy {
        /// Expected and missed events of the last ten minutes.
        loss: StreamLoss,
        /// Each event of this runtime goes to one subscriber only. Another one, such as a kubelet
        /// with EventedPLEG or a second agent, is the likely cause.
        splits_events_between_subscribers: bool,
    },
    /// Events wait to be applied.
    Backlog {
        /// Since when.
        since: Instant,
    },
    /// A full list takes long.
    ListSlow {
        /// Since when.
        since: Instant,
    },
    /// The last full list failed.
    ListFailed {
        /// Its error.
        error: CallError,
    },
    /// The runtime as a whole does not answer: neither a status call nor `Version`.
    RuntimeSilent {
        /// When the first unanswered call was sent.
        since: Instant,
    },
    /// Inspections of single pods hang.
    PodsHung {
        /// The number of overdue inspections.
        overdue: usize,
        /// Since when the oldest is in flight.
        since: Instant,
        /// Their pods, at most [`Health::NAMED`].
        pods: Vec<PodName>,
    },
    /// Single pods cannot be inspected.
    PodsFailing {
        /// The number of pods.
        failing: usize,
        /// The pods, at most [`Health::NAMED`].
        pods: Vec<PodName>,
    },
    /// Registered consumers do not acknowledge ends, so dead containers wait for them.
    Unacknowledged {
        /// The names of the consumers.
        consumers: Vec<Text>,
        /// When the earliest end was detected that one of them has not acknowledged.
        since: Instant,
    },
}

impl Degraded {
    /// The codes of all degraded reasons. They are stable; `docs/runbook.md` explains each.
    pub const CODES: [&str; 9] = [
        "stream_down",
        "stream_lossy",
        "backlog",
        "list_slow",
        "list_failed",
        "runtime_silent",
        "pods_hung",
        "pods_failing",
        "unacknowledged",
    ];

    /// Its code: a short lower-case name, for metrics, logs and lists.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::StreamDown { .. } => "stream_down",
            Self::StreamLossy { .. } => "stream_lossy",
            Self::Backlog { .. } => "backlog",
            Self::ListSlow { .. } => "list_slow",
            Self::ListFailed { .. } => "list_failed",
            Self::RuntimeSilent { .. } => "runtime_silent",
            Self::PodsHung { .. } => "pods_hung",
            Self::PodsFailing { .. } => "pods_failing",
            Self::Unacknowledged { .. } => "unacknowledged",
        }
    }

    /// Since when, if it is known.
    pub const fn since(&self) -> Option<Instant> {
        match self {
            Self::StreamDown { since }
            | Self::Backlog { since }
            | Self::ListSlow { since }
            | Self::RuntimeSilent { since }
            | Self::PodsHung { since, .. }
            | Self::Unacknowledged { since, .. } => Some(*since),
            Self::StreamLossy { .. } | Self::ListFailed { .. } | Self::PodsFailing { .. } => None,
        }
    }
}

impl fmt::Display for Degraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StreamDown { .. } => f.write_str("no event stream; only lists update the cache"),
            Self::StreamLossy {
                loss: StreamLoss { expected, missed },
                splits_events_between_subscribers,
            } => {
                let percent = 100.0 * *missed as f64 / (*expected).max(1) as f64;
                write!(
                    f,
                    "the event stream lost {missed} of {expected} events in 10 min ({percent:.1} %); \
                     relisting every second"
                )?;
                if *splits_events_between_subscribers {
                    f.write_str(
                        "; this runtime sends each event to one subscriber only, so another \
                         subscriber is the likely cause",
                    )?;
                }
                Ok(())
            }
            Self::Backlog { .. } => f.write_str("events wait to be applied"),
            Self::ListSlow { .. } => f.write_str("a full list takes longer than 3 s"),
            Self::ListFailed { error } => write!(f, "the last full list failed: {error}"),
            Self::RuntimeSilent { .. } => f.write_str("the runtime does not answer"),
            Self::PodsHung { overdue, pods, .. } => {
                match overdue {
                    1 => f.write_str("1 inspection does not answer")?,
                    _ => write!(f, "{overdue} inspections do not answer")?,
                }
                write_pods(f, pods, *overdue)
            }
            Self::PodsFailing { failing, pods } => {
                match failing {
                    1 => f.write_str("1 pod cannot be inspected")?,
                    _ => write!(f, "{failing} pods cannot be inspected")?,
                }
                write_pods(f, pods, *failing)
            }
            Self::Unacknowledged { consumers, .. } => write!(
                f,
                "dead containers wait for 10 min to be acknowledged by the registered consumer {}",
                consumers.join(" and ")
            ),
        }
    }
}

fn write_pods(f: &mut fmt::Formatter<'_>, pods: &[PodName], all: usize) -> fmt::Result {
    for (n, pod) in pods.iter().enumerate() {
        let separator = if n == 0 { ": " } else { ", " };
        write!(f, "{separator}{pod}")?;
    }
    if all > pods.len() && !pods.is_empty() {
        f.write_str(", …")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
