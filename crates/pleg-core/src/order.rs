//! The lifecycle order (invariant 2): for one id, state only moves forward.

use crate::ids::Kind;
use crate::observed::{EventType, ReportedState};

/// How far an id has come. A sandbox has no `Created`; its READY is `Running`, its NOTREADY
/// `Exited`.
///
/// Merging two observations of one id is the maximum: commutative, associative, idempotent, so
/// that late, doubled, swapped and replayed observations do no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Position {
    Created,
    Running,
    Exited,
    Removed,
}

impl Position {
    /// The position that a runtime shows; nothing for UNKNOWN, which is outside the order.
    pub(crate) const fn shown(kind: Kind, shown: ReportedState) -> Option<Self> {
        match (shown, kind) {
            (ReportedState::Created, Kind::Container) => Some(Self::Created),
            (ReportedState::Created, Kind::Sandbox) | (ReportedState::Running, _) => {
                Some(Self::Running)
            }
            (ReportedState::Exited, _) => Some(Self::Exited),
            (ReportedState::Unknown, _) => None,
        }
    }

    /// The position that an event tells of its subject by its type alone.
    pub(crate) const fn of_event(kind: Kind, event: EventType) -> Option<Self> {
        match (event, kind) {
            (EventType::Created, Kind::Container) => Some(Self::Created),
            (EventType::Created, Kind::Sandbox) | (EventType::Started, _) => Some(Self::Running),
            (EventType::Stopped, _) => Some(Self::Exited),
            (EventType::Deleted, _) => Some(Self::Removed),
            (EventType::Other(_), _) => None,
        }
    }
}
