//! Which view answers which waiter (invariants 3 and 4).

use std::sync::Arc;

use super::{Output, Reconciler};
use crate::schedule::cause::Cause;
use crate::schedule::waiters::Waiter;
use crate::types::error::{CallError, CallErrorKind};
use crate::types::ids::{Id, PodUid};
use crate::types::reads::{Inspection, Ticket};
use crate::types::status::{PodStatus, PodView};
use crate::types::time::Instant;

impl Reconciler {
    /// The view of the pod, if a read begun after `after` has shown it.
    pub(super) fn view_newer_than(&self, uid: &PodUid, after: Instant) -> Option<PodView> {
        match self.pods.get(uid) {
            Some(pod) => {
                let status = pod.published.clone()?;
                pod.as_of.filter(|&as_of| as_of > after)?;
                Some(PodView::new(status, pod.as_of, self.inspected(uid)))
            }
            // A complete list is an observation of every pod that it does not show. It answers
            // nothing about a pod whose end was recorded after the list began: an event does not
            // satisfy a waiter (invariant 4).
            None => {
                let as_of = self.relist.complete().filter(|&as_of| as_of > after)?;
                if self.removed_pods.contains_key(uid) || self.scheduler.owes(uid) {
                    return None;
                }
                let nothing = Arc::new(PodStatus::nothing(uid.clone()));
                Some(PodView::new(nothing, Some(as_of), None))
            }
        }
    }

    /// Answers the waiters that this read serves.
    pub(super) fn answer_inspected(
        &mut self,
        uid: &PodUid,
        inspection: &Inspection,
        read: Option<(Ticket, Instant)>,
    ) {
        // One that did not read every status says nothing of the details.
        let read_all = inspection.unchanged.is_empty();
        let serves = |w: &Waiter| {
            let newer = read.is_some_and(|(ticket, at)| w.is_served_by(ticket, at));
            newer && (read_all || !w.details)
        };
        let served = self.waiters.take(uid, serves);
        if served.is_empty() {
            return;
        }
        let view = self.view_of_read(uid, read);
        let failed = status_error(inspection);
        for waiter in served {
            let answer = match failed.clone().filter(|_| waiter.details) {
                Some(error) => Err(error),
                None => Ok(view.clone()),
            };
            self.answer(waiter.id, answer);
        }
    }

    /// The read that an answer from this inspection is as of. Where it takes a complete list beside
    /// it to show all of the pod, that is the older of the two; none if there was no such list.
    pub(super) fn effective_read(
        &self,
        uid: &PodUid,
        own: (Ticket, Instant),
    ) -> Option<(Ticket, Instant)> {
        if !self.needs_complete_list(uid) {
            return Some(own);
        }
        let list = self.relist.last_complete()?;
        Some(if list.1 < own.1 { list } else { own })
    }

    /// What is published of the pod, as of that read.
    pub(super) fn view_of_read(&self, uid: &PodUid, read: Option<(Ticket, Instant)>) -> PodView {
        let published = self.pods.get(uid).and_then(|pod| pod.published.clone());
        let status = published.unwrap_or_else(|| Arc::new(PodStatus::nothing(uid.clone())));
        PodView::new(status, read.map(|(_, began)| began), self.inspected(uid))
    }

    pub(super) fn ask_again_for_waiters(&mut self, now: Instant, uid: &PodUid) {
        if self.due_waiters(now, uid).next().is_some() {
            self.read_for_waiters(now, uid);
        }
    }

    /// The pod's waiters whose instant has come.
    pub(super) fn due_waiters(&self, now: Instant, uid: &PodUid) -> impl Iterator<Item = &Waiter> {
        self.waiters.of(uid).iter().filter(move |w| w.after <= now)
    }

    /// Requests the read that answers the pod's waiters: an inspection, or a complete list if a
    /// list of the pod may not show all of it. Details are then read after that list, because what
    /// is read before it answers nobody.
    pub(super) fn read_for_waiters(&mut self, now: Instant, uid: &PodUid) {
        let by_list = self.needs_complete_list(uid);
        if by_list {
            self.read_by_list(now, uid);
        }
        let is_for_details = |w: &Waiter| w.details && (!by_list || self.last_list_serves(w));
        let details = self.due_waiters(now, uid).any(is_for_details);
        if details {
            self.request_inspection(now, uid, Cause::Details);
        } else if !by_list {
            self.request_inspection(now, uid, Cause::Waiter);
        }
    }

    fn last_list_serves(&self, waiter: &Waiter) -> bool {
        let list = self.relist.last_complete();
        list.is_some_and(|(ticket, began)| waiter.is_served_by(ticket, began))
    }

    /// Requests the complete list that answers the pod's waiters.
    pub(super) fn read_by_list(&mut self, now: Instant, uid: &PodUid) {
        self.relist.by(now);
        self.read_by_list.insert(uid.clone());
    }

    /// Whether a list by the pod's uid, which selects by label, may not show the whole pod: one of
    /// its ids has no such label, or one of another pod; or no answer has named the pod, so its uid is
    /// the id of its sandbox; or the pod is unknown while such ids exist.
    pub(super) fn needs_complete_list(&self, uid: &PodUid) -> bool {
        let unlabelled = |id: &Id| {
            let record = self.records.get(id);
            record.is_some_and(|r| r.is_unlabelled() && !r.is_removed())
        };
        match self.pods.get(uid).filter(|pod| !pod.members.is_empty()) {
            Some(_) if self.records.contains_key(uid.as_str()) => true,
            Some(pod) => !self.unlabelled.is_empty() && pod.members.iter().any(unlabelled),
            None => self.unlabelled.iter().any(unlabelled),
        }
    }

    /// The begin of the read of the pod's details: that of the id that was read least recently.
    pub(super) fn inspected(&self, uid: &PodUid) -> Option<Instant> {
        let pod = self.pods.get(uid).into_iter();
        let shown = pod.flat_map(|pod| pod.shown(&self.records));
        shown.map(|(_, record)| record.inspected).min().flatten()
    }

    pub(super) fn answer(
        &mut self,
        waiter: crate::schedule::waiters::WaiterId,
        answer: Result<PodView, CallError>,
    ) {
        self.out.push_back(Output::Answer { waiter, answer });
    }
}

/// The error of the first status call that failed, if any.
fn status_error(inspection: &Inspection) -> Option<CallError> {
    let failed = inspection.failed.first().map(|failed| failed.error.clone());
    let unsettled = inspection.unsettled.first().map(|row| {
        let message = format!("{} is listed, and has no status", row.id);
        CallError::new("Inspect", CallErrorKind::NotFound, message)
    });
    failed.or(unsettled)
}
