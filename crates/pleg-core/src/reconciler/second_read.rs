//! The second read of a pod whose lists and status calls disagree, and ids that stay unsettled after it
//! (invariant 3).

use std::time::Duration;

use super::Reconciler;
use super::timers::Timer;
use crate::schedule::waiters::Waiter;
use crate::state::pod::FirstRead;
use crate::types::ids::{Id, PodUid};
use crate::types::lifecycle::Source;
use crate::types::reads::Inspection;
use crate::types::time::Instant;

/// If lists and status calls disagree, the pod is read again this long after the read.
const SECOND_READ_AFTER: Duration = Duration::from_millis(100);

impl Reconciler {
    /// Returns whether the inspection answers waiters. If a list showed an id and its status call
    /// returned NotFound, the pod is read once more first, at least 100 ms later. If the second
    /// read returns the same, the id is unsettled until a status succeeds or a read shows it gone. So is an id for which
    /// only the second read does: waiters wait for one repetition, not for another one of each new id.
    pub(super) fn settle_second_read(
        &mut self,
        now: Instant,
        uid: &PodUid,
        inspection: &Inspection,
    ) -> bool {
        let open = inspection.unsettled.iter().filter(|row| {
            let record = self.records.get(&row.id);
            record.is_some_and(|r| !r.unsettled)
        });
        let open: Vec<Id> = open.map(|row| row.id.clone()).collect();
        let Some(pod) = self.pods.get_mut(uid) else {
            return true;
        };
        if open.is_empty() {
            pod.first_read = None;
            return true;
        }
        if let Some(first) = &pod.first_read {
            let second = inspection.began >= first.ended.after(SECOND_READ_AFTER);
            if second {
                pod.first_read = None;
                self.mark_unsettled(&open);
            }
            return second;
        }
        let again = now.max(inspection.ended.after(SECOND_READ_AFTER));
        let look = FirstRead {
            ticket: inspection.ticket,
            began: inspection.began,
            ended: inspection.ended,
            open,
        };
        pod.first_read = Some(Box::new(look));
        self.timers.set(again, Timer::SecondRead(uid.clone()));
        false
    }

    pub(super) fn mark_unsettled(&mut self, ids: &[Id]) {
        let records = &self.records;
        self.unsettled
            .retain(|id| records.get(id).is_some_and(|r| r.unsettled));
        for id in ids {
            if let Some(record) = self.records.get_mut(id) {
                record.unsettled = true;
                self.unsettled.insert(id.clone());
            }
        }
    }

    /// Whether an id of the pod is unsettled.
    pub(super) fn is_unsettled(&self, uid: &PodUid) -> bool {
        let members = self.pods.get(uid).into_iter().flat_map(|pod| &pod.members);
        let mut records = members.filter_map(|id| self.records.get(id));
        records.any(|r| r.unsettled)
    }

    /// The second read failed: the first one answers the waiters that it serves.
    pub(super) fn answer_first_read(&mut self, now: Instant, uid: &PodUid) {
        let first = self.pods.get_mut(uid).and_then(|pod| pod.first_read.take());
        let Some(first) = first else { return };
        self.mark_unsettled(&first.open);
        self.mark_dirty(uid, Source::Inspection);
        self.publish(now);
        let read = self.effective_read(uid, (first.ticket, first.began));
        let serves = |w: &Waiter| {
            let newer = read.is_some_and(|(ticket, at)| w.is_served_by(ticket, at));
            newer && !w.details
        };
        let served = self.waiters.take(uid, serves);
        if !served.is_empty() {
            let view = self.view_of_read(uid, read);
            for waiter in served {
                self.answer(waiter.id, Ok(view.clone()));
            }
        }
    }
}
