//! What an observation did to a record.

use crate::state::order::Position;
use crate::types::time::Instant;

/// What an observation did to a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) transition: Transition,
    pub(crate) details: DetailsChange,
    /// A status of the recorded state differs from the record, and neither is newer.
    pub(crate) disputed: bool,
}

/// What an observation did to the position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Transition {
    /// It showed no position, or one that does not count: an earlier one in an event, or in a read
    /// that began before the position was recorded.
    #[default]
    None,
    /// It showed the recorded position.
    Same,
    /// The position moved forward.
    Advanced(Position),
    /// UNKNOWN was published for the first time in this incarnation.
    BecameUnknown,
    /// A read showed an earlier position. The recorded one stands, and this kind of call is to be
    /// repeated at that instant, unless it has already shown an earlier position twice.
    Contradicted { ask_again: Option<Instant> },
    /// Reads overruled the recorded position.
    Overruled,
}

/// What an observation did to the details and the identity. A later value covers the ones before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DetailsChange {
    #[default]
    None,
    /// A detail changed, a field of the identity became known, or UNKNOWN was cleared.
    Changed,
    /// The exit code became known after Died was announced.
    LateExitCode,
}

impl From<bool> for DetailsChange {
    fn from(changed: bool) -> Self {
        if changed { Self::Changed } else { Self::None }
    }
}

impl Effect {
    /// The combined effect of this and a later observation.
    pub(crate) fn and(self, later: Self) -> Self {
        Self {
            transition: match later.transition {
                Transition::None => self.transition,
                transition => transition,
            },
            details: self.details.max(later.details),
            disputed: self.disputed || later.disputed,
        }
    }

    /// Whether the position moved forward.
    pub(crate) const fn advanced(&self) -> bool {
        matches!(self.transition, Transition::Advanced(_))
    }
}
