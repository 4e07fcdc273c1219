//! What a runtime version really sends, as data (invariant 10).

use std::time::Duration;

/// What one runtime version's event stream can be expected to report.
///
/// Built from [`UNKNOWN`](Self::UNKNOWN), which promises only what every runtime does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct EventProfile {
    /// Every container that was started reports STARTED: before its STOPPED, or within
    /// [`grace`](Self::grace) after it. Default: false.
    pub promises_started: bool,
    /// A running id that is removed reports STOPPED: before its DELETED, or within
    /// [`grace`](Self::grace) after it. Default: false.
    pub promises_stopped: bool,
    /// Removing an id may suppress its STOPPED (CRI-O). Default: true.
    pub removal_suppresses_stopped: bool,
    /// Each event goes to one subscriber only, so a second subscriber takes events from the first
    /// (containerd 1.x, CRI-O up to 1.27). Default: false.
    pub shares_events_out: bool,
    /// A subscriber that disconnects may crash the runtime (cri-o#9004). Default: false.
    pub disconnect_may_crash: bool,
    /// How long after the end of a read, or after a later event, an event may arrive without
    /// counting as missed. Default: 5 s.
    pub grace: Duration,
}

impl EventProfile {
    /// The profile of an unknown runtime.
    pub const UNKNOWN: Self = Self {
        promises_started: false,
        promises_stopped: false,
        removal_suppresses_stopped: true,
        shares_events_out: false,
        disconnect_may_crash: false,
        grace: Duration::from_secs(5),
    };
}

impl Default for EventProfile {
    fn default() -> Self {
        Self::UNKNOWN
    }
}
