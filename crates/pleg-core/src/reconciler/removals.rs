//! Ids that are removed: what follows for their pods, and how long their tombstones stay
//! (invariant 6).

use super::Reconciler;
use crate::state::reports::ExpectedEvent;
use crate::types::ids::{Id, PodUid};
use crate::types::lifecycle::Source;
use crate::types::time::Instant;

/// How many tombstones more than allowed may stay for the reads in flight.
const WHILE_READING: usize = 100_000;

impl Reconciler {
    /// An id is gone: it stays as its tombstone.
    pub(super) fn removed(&mut self, now: Instant, uid: &PodUid, id: &Id) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.members.remove(id);
            pod.contradicted.remove(id);
        }
        if let Some(record) = self.records.get(id) {
            let (kind, sandbox) = (record.kind(), record.identity.sandbox.clone());
            self.void_suppressed(id, kind);
            if let Some(sandbox) = sandbox {
                self.forget_awaited_sandbox(id, &sandbox);
            }
        }
        self.decide_verdicts(now);
        self.insert_tombstone(now, id);
    }

    /// Inserts the tombstone of an id that is recorded as removed.
    pub(super) fn insert_tombstone(&mut self, now: Instant, id: &Id) {
        let drained = self.stream.drained(now);
        if let Some(record) = self.records.get_mut(id) {
            record.removal_mut().inserted = drained;
            self.tombstones.insert(drained, id.clone());
        }
    }

    /// Drops tombstones that have lived long enough, or are too many.
    pub(super) fn drop_old_tombstones(&mut self, now: Instant) {
        let drained = self.stream.drained(now);
        let (age, most) = (self.settings.tombstone_age, self.settings.tombstones_max);
        let list = self.relist.in_flight().map(|(_, since)| since);
        let reading = list.into_iter().chain(self.scheduler.oldest()).min();
        loop {
            // A read that began before the removal may still show what it removed: this one stays
            // until the read has ended (found by seed 183049), within a bound of its own.
            let oldest = self.tombstones.oldest().and_then(|id| self.records.get(id));
            let is_needed = oldest.is_some_and(|r| {
                r.is_removed() && reading.is_some_and(|began| r.recorded_since() >= began)
            });
            let most = if is_needed {
                most.saturating_add(WHILE_READING)
            } else {
                most
            };
            let Some((inserted, id, dropped)) = self.tombstones.pop(drained, age, most) else {
                break;
            };
            let Some(record) = self.records.get(&id) else {
                continue;
            };
            let removal = record.removal();
            if !record.is_removed() || removal.inserted != inserted {
                continue;
            }
            if removal.listed.is_some() && removal.listed == self.relist.complete() && !dropped {
                self.insert_tombstone(now, &id);
                continue;
            }
            self.counters.tombstones_dropped += u64::from(dropped);
            let (uid, never_ran) = (record.identity.pod.clone(), record.may_never_have_run());
            if never_ran {
                // Nothing will be known of it when the event is due.
                self.pending.void(&id, ExpectedEvent::ContainerStopped);
            }
            self.records.remove(&id);
            self.unsettled.remove(&id);
            self.unlabelled.remove(&id);
            if let Some(uid) = uid {
                self.drop_reappeared(&uid, &id, Source::Relist);
            }
        }
    }
}
