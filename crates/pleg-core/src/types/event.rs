//! The observations of the event stream. Plain data, in domain types.

use std::fmt;

use crate::types::error::CallError;
use crate::types::ids::Id;
use crate::types::report::Report;
use crate::types::time::{Instant, WallTime};

/// The type of a container event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EventType {
    /// CONTAINER_CREATED_EVENT
    Created,
    /// CONTAINER_STARTED_EVENT
    Started,
    /// CONTAINER_STOPPED_EVENT
    Stopped,
    /// CONTAINER_DELETED_EVENT
    Deleted,
    /// An unknown event type: only a hint that something changed.
    Other(i32),
}

/// One message of the event stream, as the runtime sent it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct RuntimeEvent {
    /// The sandbox or container that the event is about.
    pub id: Id,
    /// What happened to it.
    pub event: EventType,
    /// The runtime's timestamp of the event, in raw nanoseconds, any value. The runtime sets it
    /// after it has read the statuses. Used for plausibility and latency only, never for order.
    pub created_at: i64,
    /// The sandbox status in the event, if any.
    pub sandbox: Option<Report>,
    /// The container statuses in the event.
    pub containers: Vec<Report>,
}

impl RuntimeEvent {
    /// An event about `id`, without statuses, with the timestamp 0.
    pub fn new(id: impl Into<Id>, event: EventType) -> Self {
        Self {
            id: id.into(),
            event,
            created_at: 0,
            sandbox: None,
            containers: Vec::new(),
        }
    }
}

/// An event with the reader's stamps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// The event.
    pub event: RuntimeEvent,
    /// When the reader received it.
    pub arrived: Instant,
    /// The local wall clock at that moment.
    pub wall: WallTime,
}

/// Why a stream ended, or could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub enum StreamEnd {
    /// The runtime does not implement the call.
    NeverOffered,
    /// The implementation of the runtime decided not to subscribe, so no call was issued.
    Declined,
    /// The runtime ended the call at once with OK: events are disabled (CRI-O).
    Disabled,
    /// The socket refuses connections, or the runtime refuses the call while it starts.
    Refused(CallError),
    /// The stream broke before anything arrived on it.
    Cut(CallError),
    /// The stream ended after an event had arrived, or after some time.
    Ended(Option<CallError>),
}

impl fmt::Display for StreamEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverOffered => f.write_str("the runtime does not implement events"),
            Self::Declined => f.write_str("not subscribed to on purpose"),
            Self::Disabled => f.write_str("events are disabled in the runtime"),
            Self::Refused(error) => write!(f, "refused: {error}"),
            Self::Cut(error) => write!(f, "broke before the first event: {error}"),
            Self::Ended(Some(error)) => error.fmt(f),
            Self::Ended(None) => f.write_str("ended by the runtime"),
        }
    }
}

/// An observation of the stream side other than an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StreamChange {
    /// A call was issued. Whether the runtime has accepted it is not known yet.
    Subscribed {
        /// Stamped before the call was issued.
        at: Instant,
        /// The local wall clock at that moment.
        wall: WallTime,
    },
    /// The call has ended, or could not be issued.
    Ended {
        /// When the reader saw the end.
        at: Instant,
        /// How it ended.
        why: StreamEnd,
        /// When the next call will be issued at the earliest.
        retry_at: Instant,
    },
}

impl StreamChange {
    /// When it happened.
    pub const fn at(&self) -> Instant {
        match self {
            Self::Subscribed { at, .. } | Self::Ended { at, .. } => *at,
        }
    }
}

/// An observation of the stream side, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all of them are the large one"
)]
pub enum StreamObservation {
    /// The stream began or ended.
    Change(StreamChange),
    /// An event arrived on it.
    Event(Arrival),
}

impl StreamObservation {
    /// When it was made.
    pub const fn at(&self) -> Instant {
        match self {
            Self::Change(change) => change.at(),
            Self::Event(arrival) => arrival.arrived,
        }
    }
}
