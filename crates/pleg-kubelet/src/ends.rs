//! Ends of containers and sandboxes: each is reported once, and then acknowledged, so that the
//! container can be removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pleg::{Consumer, Id, Instant, PodUid, TerminalRecord};

use crate::decision::Decision;

/// The ends that a kubelet has reported.
#[derive(Debug)]
pub struct Ends {
    consumer: Consumer,
    reported: Mutex<BTreeMap<PodUid, BTreeSet<(Id, Instant)>>>,
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

    /// The ends of a decision that were not reported yet. One whose exit code may still become known comes later.
    #[must_use]
    pub fn unreported(&self, decision: &Decision) -> Vec<TerminalRecord> {
        let mut new = self.unreported_of(&decision.view.status.uid, &decision.ends);
        new.retain(|record| !decision.unread.contains(&record.id));
        new
    }

    /// The ends among these records of a pod that were not reported yet: for a pod that is gone
    /// ([`Decider::ends`](crate::decision::Decider::ends)).
    #[must_use]
    pub fn unreported_of(&self, uid: &PodUid, records: &[TerminalRecord]) -> Vec<TerminalRecord> {
        let mut all = self.reported();
        let reported = all.entry(uid.clone()).or_default();
        reported.retain(|end| records.iter().any(|record| end_of(record) == *end));
        let is_new = |r: &&TerminalRecord| !reported.contains(&end_of(r));
        records.iter().filter(is_new).cloned().collect()
    }

    /// Acknowledges ends that were reported.
    ///
    /// # Cancel safety
    /// Those that were not acknowledged come again.
    pub async fn acknowledge(&self, uid: &PodUid, ended: &[TerminalRecord]) {
        for record in ended {
            self.consumer.acknowledge(record).await;
            let mut all = self.reported();
            let reported = all.entry(uid.clone()).or_default();
            reported.insert(end_of(record));
        }
    }

    /// Drops what is kept of a pod that is gone.
    pub fn forget(&self, uid: &PodUid) {
        self.reported().remove(uid);
    }

    fn reported(&self) -> MutexGuard<'_, BTreeMap<PodUid, BTreeSet<(Id, Instant)>>> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end_of(record: &TerminalRecord) -> (Id, Instant) {
    (record.id.clone(), record.detected)
}
