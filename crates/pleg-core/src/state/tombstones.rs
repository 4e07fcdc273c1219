//! Tombstones and their age (invariant 6): a removed id stays removed as long as a runtime may
//! replay an event about it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::types::ids::Id;

/// The order in which tombstones were inserted. Age counts only time in which the stream was
/// drained or none was offered, because during an outage the runtime may hold back events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tombstones {
    inserted: VecDeque<(Duration, Id)>,
}

impl Tombstones {
    pub(crate) fn insert(&mut self, drained: Duration, id: Id) {
        self.inserted.push_back((drained, id));
    }

    /// The oldest tombstone, if it is older than `age` or there are more than `most`. The flag is
    /// true if it is younger than `age` and there are too many.
    pub(crate) fn pop(
        &mut self,
        drained: Duration,
        age: Duration,
        most: usize,
    ) -> Option<(Duration, Id, bool)> {
        let (inserted, _) = self.inserted.front()?;
        let old = drained.saturating_sub(*inserted) >= age;
        let over = self.inserted.len() > most;
        if !(old || over) {
            return None;
        }
        self.inserted
            .pop_front()
            .map(|(inserted, id)| (inserted, id, !old))
    }

    /// The id of the oldest tombstone.
    pub(crate) fn oldest(&self) -> Option<&Id> {
        self.inserted.front().map(|(_, id)| id)
    }

    pub(crate) fn len(&self) -> usize {
        self.inserted.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn inserted(at: &[u64]) -> Tombstones {
        let mut tombstones = Tombstones::default();
        for &seconds in at {
            tombstones.insert(Duration::from_secs(seconds), seconds.to_string().into());
        }
        tombstones
    }

    /// The tombstones dropped at 100 s, oldest first, and whether each was dropped early.
    fn leave(mut tombstones: Tombstones, age: Duration, most: usize) -> Vec<(u64, bool)> {
        let now = Duration::from_secs(100);
        std::iter::from_fn(|| tombstones.pop(now, age, most))
            .map(|(inserted, _, dropped)| (inserted.as_secs(), dropped))
            .collect()
    }

    #[test]
    fn a_tombstone_stays_until_it_is_as_old_as_it_must_get() {
        let age = Duration::from_secs(60);
        let gone = leave(inserted(&[1, 40, 41, 99]), age, 9);
        assert_eq!(gone, [(1, false), (40, false)]);
    }

    #[test]
    fn no_more_than_the_bound_stay_and_the_oldest_of_them_are_dropped() {
        assert_eq!(leave(inserted(&[1, 2]), DAY, 2), []);
        assert_eq!(leave(inserted(&[1, 2, 3]), DAY, 2), [(1, true)]);
        let gone = leave(inserted(&[1, 2, 3, 4]), DAY, 2);
        assert_eq!(gone, [(1, true), (2, true)]);
    }
}
