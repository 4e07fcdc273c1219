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
    /// A container runs, or a sandbox is ready.
    ContainerStarted,
    /// A container ended, or a sandbox is not ready any more.
    ContainerDied,
    /// A container or sandbox is gone.
    ContainerRemoved,
    /// A container was created, became unknown, or something about it became known later.
    ContainerChanged,
    /// Something about the pod changed that none of the others says.
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

/// Which source saw it first.
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

/// One announced change of a pod. When it is announced, the cache shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PodLifecycleEvent {
    /// What happened.
    pub event: LifecycleType,
    /// The pod.
    pub uid: PodUid,
    /// Its namespace; empty if no answer ever said.
    pub namespace: Text,
    /// Its name; empty if no answer ever said.
    pub pod_name: Text,
    /// The container or sandbox; none for `PodSync`.
    pub subject: Option<Subject>,
    /// Which source saw it first.
    pub source: Source,
    /// Whether this is no change: it existed so when the generator started, and the first complete
    /// list showed it. `happened_at` may be long ago.
    pub initial: bool,
    /// When we knew, on our monotonic clock.
    pub detected: Instant,
    /// When the runtime says that it happened, where it says so.
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
    /// How often a read has overruled what was announced of this id: each transition of an
    /// (id, incarnation) is announced at most once.
    pub incarnation: u32,
    /// The exit code, with `ContainerDied`, unless it cannot be had.
    pub exit_code: Option<i32>,
    /// The reason of the state; empty if none was given.
    pub reason: Text,
}

/// What has been announced of one incarnation of an id: a set of these bits, for there is one of it
/// for each id of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Announced(u8);

impl Announced {
    const CHANGED: u8 = 1;
    const STARTED: u8 = 1 << 1;
    const DIED: u8 = 1 << 2;
    const REMOVED: u8 = 1 << 3;
    /// Nothing is ever announced of it.
    const NEVER: u8 = 1 << 4;

    /// Of an id that was first learned as removed: nothing is ever said of it.
    pub(crate) const SILENT: Self =
        Self(Self::CHANGED | Self::STARTED | Self::DIED | Self::REMOVED | Self::NEVER);

    /// What is to be announced now, in legal order, and marks it as said.
    ///
    /// Upstream's table, with `Created` where upstream says unknown: a skipped `Running` that no
    /// observation showed is not announced (absent → exited is Died alone), a skipped `Exited`
    /// is (running → absent is Died and Removed).
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

    /// Whether nothing is ever to be said of it.
    pub(crate) const fn is_silent(self) -> bool {
        self.has(Self::NEVER)
    }

    /// A new incarnation starts at a position that reads have shown against what was recorded:
    /// Started if it runs, else ContainerChanged alone (the caller says that one).
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

    /// That it is reborn where it has ended, or was only created, is said by the caller's
    /// `ContainerChanged`; what comes after that is news again.
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
