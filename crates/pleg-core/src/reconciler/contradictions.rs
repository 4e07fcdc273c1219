//! Reads that contradict what is recorded: what is published until it is decided, and what
//! follows when the reads are right (invariant 2).

use std::sync::Arc;

use super::Reconciler;
use super::apply::ReadAt;
use super::timers::Timer;
use crate::schedule::cause::Cause;
use crate::state::evidence::Call;
use crate::state::order::Position;
use crate::state::pod::Pod;
use crate::state::record::{Record, source_of};
use crate::types::error::CallError;
use crate::types::ids::{Id, PodUid};
use crate::types::lifecycle::Source;
use crate::types::report::{Identity, Report};
use crate::types::time::Instant;

impl Reconciler {
    /// A read contradicts what is recorded, and it is not decided: the later state stands, and
    /// the reads are asked again.
    pub(super) fn add_contradiction(
        &mut self,
        now: Instant,
        uid: &PodUid,
        id: &Id,
        ask_again: Option<Instant>,
        source: Source,
    ) {
        self.counters.contradictions += 1;
        if let Some(pod) = self.pods.get_mut(uid)
            && pod.members.contains(id)
        {
            pod.contradicted.insert(id.clone());
        }
        if let Some(ask_again) = ask_again {
            // At that instant, whatever backoff the pod is under; now, if this read took so long.
            let at = ask_again.max(now);
            if source == Source::Relist {
                self.relist.by(at);
            }
            self.timers.set(at, Timer::Recheck(uid.clone()));
        } else {
            // This call has said all that it can; the other one may be wanting.
            self.recheck_later(now, uid);
        }
    }

    /// A read or an event agrees with what is recorded of an id that exists.
    pub(super) fn drop_contradiction(&mut self, uid: &PodUid, id: &Id, source: Source) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        let still = self.records.get(id).is_some_and(|r| r.is_contradicted());
        if !still && pod.contradicted.remove(id) {
            self.mark_dirty(uid, source).announce_sync();
        }
    }

    /// A read shows an id that is recorded as removed. Until that is decided, the pod's status
    /// contains the id as the newest read showed it (invariant 2).
    pub(super) fn reappear(
        &mut self,
        uid: &PodUid,
        read: ReadAt,
        report: &Report,
        status: StatusCall<'_>,
    ) {
        let id = &report.id;
        let Some(removed) = self.records.get(id).filter(|r| r.is_removed()) else {
            return;
        };
        let is_older = |pod: &Pod| {
            let shown = pod.reappeared.get(id);
            pod.as_of >= Some(read.began) || shown.is_some_and(|s| s.learned > read.began)
        };
        if self.pods.get(uid).is_some_and(|pod| is_older(pod)) {
            return;
        }
        let pod = self.pods.entry(uid.clone()).or_default();
        pod.named(
            report.identity.namespace.as_ref(),
            report.identity.pod_name.as_ref(),
        );
        let before = pod.reappeared.get(id).map(|shown| &**shown);
        let shown = removed.reappeared(before, read, report, status);
        pod.reappeared.insert(id.clone(), Box::new(shown));
        self.mark_dirty(uid, source_of(read.call));
    }

    /// A read does not show this id. Returns whether it is recorded as removed since before the read
    /// began.
    pub(super) fn confirm_absence(
        &mut self,
        uid: &PodUid,
        id: &Id,
        call: Call,
        began: Instant,
    ) -> bool {
        let removed = self.records.get_mut(id).filter(|r| r.is_removed());
        let Some(record) = removed.filter(|r| r.recorded_since() < began) else {
            return false;
        };
        record.confirm_absence(call);
        let shown = self.pods.get(uid).and_then(|pod| pod.reappeared.get(id));
        // A newer read may have shown it.
        if shown.is_some_and(|shown| shown.learned < began) {
            self.drop_reappeared(uid, id, source_of(call));
        }
        true
    }

    /// An id that is recorded as removed is not published any more.
    pub(super) fn drop_reappeared(&mut self, uid: &PodUid, id: &Id, source: Source) {
        let pod = self.pods.get_mut(uid);
        if pod.is_some_and(|pod| pod.reappeared.remove(id).is_some()) {
            self.mark_dirty(uid, source).announce_sync();
        }
    }

    /// The reads were right against what was recorded: a new incarnation of the id.
    pub(super) fn overrule(
        &mut self,
        now: Instant,
        uid: &PodUid,
        by: &Report,
        to: Position,
        call: Call,
    ) {
        let id = &by.id;
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        let was_removed = record.is_removed();
        record.overrule(by.identity.kind, to, call, now);
        self.counters.overruled += 1;
        let pod = self.pods.entry(uid.clone()).or_default();
        pod.members.insert(id.clone());
        pod.contradicted.remove(id);
        // What the reads showed meanwhile, in whatever state, is known of the new incarnation.
        let shown = pod.reappeared.remove(id);
        let shown = shown.filter(|shown| shown.kind() == record.kind());
        if was_removed {
            record.inspected = shown.as_ref().and_then(|shown| shown.inspected);
        }
        if let Some(shown) = shown {
            record.details_shown_while_removed(&shown.details);
        }
        if record.is_unlabelled() {
            self.unlabelled.insert(id.clone());
        }
        self.await_sandbox(id);
        let dirty = self.mark_dirty(uid, source_of(call));
        dirty.ids.push(id.clone());
        if to != Position::Running {
            dirty.changed.insert(id.clone());
        }
        if call == Call::List {
            self.request_inspection(now, uid, Cause::Changed);
        }
    }

    /// Notes what follows from being listed at all. If the id is recorded as removed and the complete
    /// list before did not show it, that one supported the removal, though nobody went through all
    /// tombstones to note it.
    pub(super) fn listed(&mut self, id: &Id, read: ReadAt) {
        let before = self.relist.complete();
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        if !record.is_removed() {
            return;
        }
        if record.removal().listed < before && before > Some(record.recorded_since()) {
            record.confirm_absence(Call::List);
        }
        record.removal_mut().listed = Some(read.began);
    }
}

/// What became of the status call about an id that a read lists.
#[derive(Clone, Copy, Debug)]
pub(super) enum StatusCall<'a> {
    /// It was answered: the report is the status.
    Answered,
    /// The runtime said that there is no such id.
    NotFound,
    /// It failed.
    Failed(&'a CallError),
    /// None was made: the report is a list row.
    NotMade,
}

impl StatusCall<'_> {
    pub(super) const fn of(call: Call) -> Self {
        match call {
            Call::List => Self::NotMade,
            Call::Inspection => Self::Answered,
        }
    }
}

impl Record {
    /// What is shown of this removed id by a read: a record of its own, learned when that read
    /// began. `before` is what the read before it showed.
    fn reappeared(
        &self,
        before: Option<&Self>,
        read: ReadAt,
        report: &Report,
        status: StatusCall<'_>,
    ) -> Self {
        let identity = Identity {
            kind: report.identity.kind,
            ..self.identity.clone()
        };
        let mut shown = Self::new(identity, read.began);
        match Position::shown(report.identity.kind, report.shown) {
            Some(at) => shown.join(at, source_of(read.call), read.began, read.began),
            None => shown.set_unknown(read.began),
        };
        // The last details that are known of an end are those of the removed id.
        let ended = shown.position() == Some(Position::Exited);
        let last = before.or(ended.then_some(self));
        if let Some(last) = last.filter(|last| last.kind() == shown.kind()) {
            shown.details = last.details.clone();
            shown.drop_end();
        }
        if let Some(before) = before {
            (shown.unsettled, shown.inspected) = (before.unsettled, before.inspected);
            shown.error = before.error.clone();
        }
        match status {
            StatusCall::Answered => {
                shown.details_from_read(report, read.began);
                shown.inspected = Some(read.began);
                (shown.unsettled, shown.error) = (false, None);
            }
            StatusCall::NotFound => (shown.unsettled, shown.error) = (true, None),
            StatusCall::Failed(error) => shown.error = Some(Arc::new(error.clone())),
            StatusCall::NotMade => {}
        }
        if !matches!(status, StatusCall::Answered) {
            shown.details_from_row(report);
        }
        shown
    }
}
