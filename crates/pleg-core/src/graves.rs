//! Tombstones and their age (law 6): an id that was removed stays removed for as long as any
//! runtime may replay an event about it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ids::Id;

/// The order in which tombstones were laid. Age counts only time in which the stream was drained
/// or none was offered: during an outage the runtime may hold events back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Graves {
    laid: VecDeque<(Duration, Id)>,
}

impl Graves {
    pub(crate) fn lay(&mut self, drained: Duration, id: Id) {
        self.laid.push_back((drained, id));
    }

    /// The oldest tombstone, if it is older than `age` or there are more than `most`; the flag
    /// says that it is over the number
    /// and younger.
    pub(crate) fn pop(
        &mut self,
        drained: Duration,
        age: Duration,
        most: usize,
    ) -> Option<(Duration, Id, bool)> {
        let (laid, _) = self.laid.front()?;
        let old = drained.saturating_sub(*laid) >= age;
        let over = self.laid.len() > most;
        if !(old || over) {
            return None;
        }
        self.laid.pop_front().map(|(laid, id)| (laid, id, !old))
    }

    pub(crate) fn len(&self) -> usize {
        self.laid.len()
    }
}
