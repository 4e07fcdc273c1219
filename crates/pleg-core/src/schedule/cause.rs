//! Why a pod is inspected.

/// Why a pod is inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// A list showed a change, whose details are read before it is announced; or an id moved to this pod.
    Changed,
    /// An event was incomplete: its sandbox status or its subject's status was missing. Or the last inspection was: it
    /// omitted an id, or could not read the status of a listed one.
    Incomplete,
    /// An event was only a hint: it was implausible, or contradicted itself.
    Hint,
    /// An id recorded from an event was not confirmed within a second.
    Provisional,
    /// A list row, an event or an inspection reported UNKNOWN.
    Unknown,
    /// A waiter needs a newer state.
    Waiter,
    /// A waiter needs newer details.
    Details,
    /// A consumer requested a relist of the pod.
    Relist,
    /// A consumer requested an inspection of the pod.
    Reinspect,
    /// A read contradicts the record.
    Contradiction,
    /// An event and an inspection have different details.
    Disputed,
    /// A list shows an id whose status call returned NotFound.
    Unsettled,
    /// The whole pod has ended, and this stream has never reported the removal of a sandbox.
    Ended,
    /// A status call that is not part of an inspection failed or hangs: a probe, or the read of a late exit
    /// reason.
    Probe,
    /// The last inspection failed.
    Retry,
}

impl Cause {
    /// All causes, in order.
    pub const ALL: [Self; 15] = [
        Self::Changed,
        Self::Incomplete,
        Self::Hint,
        Self::Provisional,
        Self::Unknown,
        Self::Waiter,
        Self::Details,
        Self::Relist,
        Self::Reinspect,
        Self::Contradiction,
        Self::Disputed,
        Self::Unsettled,
        Self::Ended,
        Self::Probe,
        Self::Retry,
    ];

    /// Whether this cause needs only the states of the pod's ids.
    pub(crate) const fn asks_for_state(self) -> bool {
        matches!(self, Self::Waiter | Self::Relist | Self::Unsettled)
    }

    /// Whether this cause needs every detail, too.
    pub(crate) const fn asks_for_details(self) -> bool {
        matches!(self, Self::Details | Self::Reinspect)
    }

    /// A short lower-case name, for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Incomplete => "incomplete",
            Self::Hint => "hint",
            Self::Provisional => "provisional",
            Self::Unknown => "unknown",
            Self::Waiter => "waiter",
            Self::Details => "details",
            Self::Relist => "relist",
            Self::Reinspect => "reinspect",
            Self::Contradiction => "contradiction",
            Self::Disputed => "disputed",
            Self::Unsettled => "unsettled",
            Self::Ended => "ended",
            Self::Probe => "probe",
            Self::Retry => "retry",
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// A set of causes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Causes(u16);

impl Causes {
    /// Whether `cause` is among them.
    pub const fn contains(self, cause: Cause) -> bool {
        self.0 & (1 << cause as u16) != 0
    }

    /// The causes, in order.
    pub fn iter(self) -> impl Iterator<Item = Cause> {
        Cause::ALL.into_iter().filter(move |&c| self.contains(c))
    }

    pub(crate) const fn insert(&mut self, cause: Cause) {
        self.0 |= 1 << cause as u16;
    }
}

impl std::fmt::Debug for Causes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}
