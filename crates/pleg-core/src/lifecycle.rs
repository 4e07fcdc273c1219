//! Lifecycle events: upstream's types and table, computed from transitions of the merged state.

use std::fmt;

use crate::ids::{Id, Kind, PodUid};
use crate::order::Position;
use crate::status::Text;
use crate::time::{Instant, WallTime};

/// Upstream's types (kubelet, pkg/kubelet/pleg).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LifecycleType {
    /// A container is running, or a sandbox is ready.
    ContainerStarted,
    /// A container exited, or a sandbox is no longer ready.
    ContainerDied,
    /// A container or sandbox was removed.
    ContainerRemoved,
    /// A container was created, its state became unknown, or its exit code became known later.
    ContainerChanged,
    /// Another detail of the pod changed.
    PodSync,
}

impl LifecycleType {
    /// Upstream's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ContainerStarted => "ContainerStarted",
            Self::ContainerDied => "ContainerDied",
            Self::ContainerRemoved => "ContainerRemoved",
            Self::ContainerChanged => "ContainerChanged",
            Self::PodSync => "PodSync",
        }
    }
}

impl fmt::Display for LifecycleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The source that showed a change first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The event stream.
    Stream,
    /// A full list.
    Relist,
    /// The inspection of the pod.
    Inspection,
}

impl Source {
    /// A short lower-case name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Relist => "relist",
            Self::Inspection => "inspection",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One announced change of a pod. The cache shows it when it is announced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PodLifecycleEvent {
    /// What happened.
    pub event: LifecycleType,
    /// The pod.
    pub uid: PodUid,
    /// Its namespace; empty if it is not known.
    pub namespace: Text,
    /// Its name; empty if it is not known.
    pub pod_name: Text,
    /// The container or sandbox; none for `PodSync`.
    pub subject: Option<Subject>,
    /// The source that showed it first.
    pub source: Source,
    /// Whether this is not a change: it was so when the generator started, and the first complete
    /// list showed it. `happened_at` may be long ago.
    pub initial: bool,
    /// When the generator detected it, on its monotonic clock.
    pub detected: Instant,
    /// When it happened according to the runtime, if known.
    pub happened_at: Option<WallTime>,
}

/// The container or sandbox that a lifecycle event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Subject {
    /// Its id.
    pub id: Id,
    /// Sandbox or container.
    pub kind: Kind,
    /// A container's name; empty for a sandbox.
    pub name: Text,
    /// How often reads have overruled the recorded state of this id. Each transition of an (id,
    /// incarnation) is announced at most once.
    pub incarnation: u32,
    /// The exit code, with `ContainerDied`, unless the runtime did not report it.
    pub exit_code: Option<i32>,
    /// The reason of the state; empty if none was given.
    pub reason: Text,
}

/// What was announced of one incarnation of an id. A set of bits, because there is one for each id
/// of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Announced(u8);

impl Announced {
    const CHANGED: u8 = 1;
    const STARTED: u8 = 1 << 1;
    const DIED: u8 = 1 << 2;
    const REMOVED: u8 = 1 << 3;
    /// Nothing is ever announced.
    const NEVER: u8 = 1 << 4;

    /// Of an id that was first learned as removed: nothing is ever announced.
    pub(crate) const SILENT: Self =
        Self(Self::CHANGED | Self::STARTED | Self::DIED | Self::REMOVED | Self::NEVER);

    /// Returns what is to be announced now, in legal order, and marks it as announced.
    ///
    /// This is upstream's table, with `Created` where upstream has unknown. A skipped `Running`
    /// that no observation showed is not announced (absent → exited is Died alone); a skipped
    /// `Exited` is announced (running → absent is Died and Removed).
    pub(crate) fn next(
        &mut self,
        position: Option<Position>,
        seen_running: bool,
    ) -> impl Iterator<Item = LifecycleType> + use<> {
        let started = position.is_some() && seen_running && !self.has(Self::DIED);
        let only_created = position == Some(Position::Created) && !seen_running;
        let (ended, gone) = (
            position >= Some(Position::Exited),
            position == Some(Position::Removed),
        );
        [
            (Self::STARTED, started, LifecycleType::ContainerStarted),
            (Self::DIED, ended, LifecycleType::ContainerDied),
            (Self::REMOVED, gone, LifecycleType::ContainerRemoved),
            (Self::CHANGED, only_created, LifecycleType::ContainerChanged),
        ]
        .map(|(bit, due, what)| {
            let first = due && !self.has(bit);
            self.0 |= if first { bit } else { 0 };
            first.then_some(what)
        })
        .into_iter()
        .flatten()
    }

    const fn has(self, bit: u8) -> bool {
        self.0 & bit != 0
    }

    /// Whether Died was announced.
    pub(crate) const fn has_died(self) -> bool {
        self.has(Self::DIED) && !self.is_silent()
    }

    /// Whether nothing is ever to be announced.
    pub(crate) const fn is_silent(self) -> bool {
        self.has(Self::NEVER)
    }

    /// The start of a new incarnation at a position that reads have shown against the record:
    /// Started if it runs, otherwise only ContainerChanged, which the caller announces.
    pub(crate) const fn reborn(at: Position) -> Self {
        match at {
            Position::Exited => Self(Self::CHANGED | Self::STARTED | Self::DIED),
            _ => Self(Self::CHANGED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A new incarnation that is created or exited is announced by the caller's `ContainerChanged`.
    /// Later transitions are announced as usual.
    #[test]
    fn a_new_incarnation_announces_only_what_happens_in_it() {
        use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted};
        for (at, at_once, when_gone) in [
            (
                Position::Created,
                vec![],
                vec![ContainerDied, ContainerRemoved],
            ),
            (
                Position::Running,
                vec![ContainerStarted],
                vec![ContainerDied, ContainerRemoved],
            ),
            (Position::Exited, vec![], vec![ContainerRemoved]),
        ] {
            let mut said = Announced::reborn(at);
            let runs = at == Position::Running;
            assert!(said.next(Some(at), runs).eq(at_once), "at {at:?}");
            assert!(said.next(Some(at), runs).eq([]), "once at {at:?}");
            let gone = said.next(Some(Position::Removed), runs);
            assert!(gone.eq(when_gone), "gone from {at:?}");
        }
    }
}
