//! Which lifecycle events follow from the recorded positions of an id: upstream's table (invariant 9).

use crate::state::order::Position;
use crate::types::lifecycle::LifecycleType;

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
            Position::Exited => Self(Self::DIED),
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
