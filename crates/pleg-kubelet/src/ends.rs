//! Ends of containers and sandboxes: each is reported once, and then acknowledged, so that the
//! container can be removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pleg::{Consumer, Id, PodUid, PodView, TerminalRecord};

use crate::decision::is_final;

/// The ends that a kubelet has reported.
#[derive(Debug)]
pub struct Ends {
    consumer: Consumer,
    reported: Mutex<BTreeMap<PodUid, BTreeSet<Id>>>,
}

impl Ends {
    /// The ends for that consumer. Register it before the generator starts, so that it misses none.
    #[must_use]
    pub fn new(consumer: Consumer) -> Self {
        Self {
            consumer,
            reported: Mutex::default(),
        }
    }

    /// The ends among these records that were not reported yet. One whose exit code may still become
    /// known comes later.
    #[must_use]
    pub fn unreported(&self, view: &PodView, records: &[TerminalRecord]) -> Vec<TerminalRecord> {
        let mut all = self.reported();
        let reported = all.entry(view.status.uid.clone()).or_default();
        reported.retain(|id| records.iter().any(|record| record.id == *id));
        let is_new = |r: &&TerminalRecord| !reported.contains(&r.id) && is_final(view, r);
        records.iter().filter(is_new).cloned().collect()
    }

    /// Acknowledges ends that were reported.
    ///
    /// # Cancel safety
    /// Those that were not acknowledged come again.
    pub async fn acknowledge(&self, uid: &PodUid, ended: &[TerminalRecord]) {
        for record in ended {
            self.consumer.acknowledge(&record.id).await;
            let mut all = self.reported();
            let reported = all.entry(uid.clone()).or_default();
            reported.insert(record.id.clone());
        }
    }

    /// Drops what is kept of a pod that is gone.
    pub fn forget(&self, uid: &PodUid) {
        self.reported().remove(uid);
    }

    fn reported(&self) -> MutexGuard<'_, BTreeMap<PodUid, BTreeSet<Id>>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
