//! What a runtime version really sends, as data (invariant 10).

use std::time::Duration;

/// What can be expected of one runtime version's event stream.
///
/// Built from [`UNKNOWN`](Self::UNKNOWN), of which nothing is expected that some runtime does not
/// do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct EventProfile {
    /// A container that was started reports STARTED, whatever becomes of it: before its STOPPED or
    /// within [`grace`](Self::grace) after it. Default: false.
    pub promises_started: bool,
    /// A running id that is removed reports STOPPED: before its DELETED or within
    /// [`grace`](Self::grace) after it. Default: false.
    pub promises_stopped: bool,
    /// Removing an id may suppress its STOPPED (CRI-O). Default: true.
    pub removal_suppresses_stopped: bool,
    /// Each event goes to one subscriber only: a second one takes events from this one
    /// (containerd 1.x, CRI-O up to 1.27). Default: false.
    pub splits_events_between_subscribers: bool,
    /// A subscriber that disconnects may crash the runtime (cri-o#9004). Default: false.
    pub disconnect_may_crash: bool,
    /// How long after the end of a read, or after a later event, an event may arrive and not count
    /// as missed. Default: 5 s.
    pub grace: Duration,
}

impl EventProfile {
    /// The profile of a runtime of which nothing is known.
    pub const UNKNOWN: Self = Self {
        promises_started: false,
        promises_stopped: false,
        removal_suppresses_stopped: true,
        splits_events_between_subscribers: false,
        disconnect_may_crash: false,
        grace: Duration::from_secs(5),
    };
}

impl Default for EventProfile {
    fn default() -> Self {
        Self::UNKNOWN
    }
}
