//! The lifecycle order (invariant 2): for one id, state only moves forward.

use crate::types::event::EventType;
use crate::types::ids::Kind;
use crate::types::report::ReportedState;

/// The position of an id in the lifecycle. A sandbox has no `Created`; its READY is `Running`, its
/// NOTREADY `Exited`.
///
/// Merging two observations of an id takes the maximum, which is commutative, associative and
/// idempotent, so late, duplicate, reordered and replayed observations do no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Position {
    Created,
    Running,
    Exited,
    Removed,
}

impl Position {
    /// The position of a reported state; `None` for UNKNOWN, which is outside the order.
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

    /// The position that an event's type alone implies for its subject.
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
