//! Reads of one pod: inspections and single statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Reconciler;
use super::apply::ReadAt;
use super::contradictions::StatusCall;
use super::probe::is_silence;
use super::timers::{STATUS_SLOW, Timer};
use crate::schedule::cause::Cause;
use crate::schedule::scheduler::Outcome;
use crate::state::evidence::Call;
use crate::state::order::Position;
use crate::state::record::Record;
use crate::types::error::{CallError, CallErrorKind};
use crate::types::ids::{Id, PodUid};
use crate::types::lifecycle::Source;
use crate::types::reads::{Inspection, StatusRead, Ticket};
use crate::types::report::Report;
use crate::types::time::Instant;

impl Reconciler {
    /// An inspection has ended.
    pub fn handle_inspection(&mut self, now: Instant, inspection: Inspection) {
        let ticket = inspection.ticket;
        if !self.scheduler.is_in_flight(ticket) {
            return;
        }
        if inspection.error.is_none() || !inspection.found.is_empty() {
            self.runtime_answers(now, inspection.ended);
        }
        if let Some(error) = inspection.error.clone() {
            let checks_stream = self.stream.checks(inspection.began);
            self.apply_found(now, &inspection, checks_stream);
            self.fail_inspection(now, ticket, error);
        } else {
            self.complete_inspection(now, &inspection);
        }
        self.pump(now);
    }

    /// Joins every status that was read. That does not depend on whether the inspection was
    /// complete.
    fn apply_found(&mut self, now: Instant, inspection: &Inspection, checks_stream: bool) {
        let read = ReadAt {
            call: Call::Inspection,
            began: inspection.began,
            ended: inspection.ended,
            checks_stream,
        };
        for report in &inspection.found {
            self.apply_status(now, read, report);
        }
        self.release_read(read.began, &inspection.found);
    }

    /// Joins a status. The details are as of its read, unless they are disputed.
    fn apply_status(&mut self, now: Instant, read: ReadAt, report: &Report) {
        if let Some(record) = self.records.get_mut(&report.id) {
            (record.disputed, record.error) = (false, None);
        }
        self.read_report(now, read, report);
        if let Some(record) = self.records.get_mut(&report.id)
            && !record.disputed
        {
            record.inspected = record.inspected.max(Some(read.began));
        }
    }

    /// Applies the ids that the lists showed in the recorded state, and whose status was not owed.
    fn apply_unchanged(&mut self, now: Instant, inspection: &Inspection) {
        let read = ReadAt {
            call: Call::List,
            began: inspection.began,
            ended: inspection.ended,
            checks_stream: false,
        };
        for (id, shown) in &inspection.unchanged {
            let Some(record) = self.records.get_mut(id) else {
                continue;
            };
            if record.is_recorded_as(id, record.kind(), *shown) {
                if record.recorded_since() < inspection.began {
                    record.confirm_by_list();
                }
                continue;
            }
            // The record has changed since the lists were requested.
            let row = record.row(id, *shown);
            self.read_report(now, read, &row);
        }
    }

    /// Releases announcements that wait for one of these statuses.
    fn release_read(&mut self, began: Instant, statuses: &[Report]) {
        let mut released: BTreeMap<PodUid, BTreeSet<&Id>> = BTreeMap::new();
        for report in statuses {
            let shown = Position::shown(report.identity.kind, report.shown);
            let record = self.records.get(&report.id);
            let awaited = record.filter(|r| r.is_awaited(began, shown));
            if let Some(uid) = awaited.and_then(|r| r.identity.pod.clone()) {
                released.entry(uid).or_default().insert(&report.id);
            }
        }
        for (uid, ids) in released {
            self.release_held(&uid, |id, _| ids.contains(id));
        }
    }

    /// Whether the runtime as a whole fails: the last list or the last probe failed. A status code
    /// alone never means that.
    pub const fn is_runtime_failing(&self) -> bool {
        self.relist.has_failed() || self.probe.silent_since().is_some()
    }

    /// Whether the failure of a read that was requested at `issued` counts against its pod: the
    /// runtime as a whole works, and has done so since then.
    fn counts_against_pod(&self, issued: Option<Instant>) -> bool {
        !self.is_runtime_failing() && issued > self.failing_until
    }

    /// Keeps until when the runtime as a whole failed, while a read is in flight that was requested
    /// by then.
    pub(super) fn watch_outage(&mut self, now: Instant) {
        if self.is_runtime_failing() {
            self.failing_until = Some(now);
        } else if let Some(until) = self.failing_until
            && self.scheduler.oldest().is_none_or(|oldest| oldest > until)
        {
            self.failing_until = None;
        }
    }

    /// The lists of an inspection were complete, whether or not its status calls succeeded.
    fn complete_inspection(&mut self, now: Instant, inspection: &Inspection) {
        let (ticket, began) = (inspection.ticket, inspection.began);
        let Some(uid) = self.scheduler.pod_of(ticket).cloned() else {
            return;
        };
        let checks_stream = self.stream.checks(began);
        self.apply_found(now, inspection, checks_stream);
        self.apply_listed(now, &uid, inspection, checks_stream);
        self.apply_unchanged(now, inspection);
        self.apply_gone(now, &uid, inspection);
        let counts = self.counts_against_pod(self.scheduler.issued(ticket));
        self.release_held(&uid, |id, r| {
            let found = || inspection.found.iter().any(|report| report.id == *id);
            let failed = || inspection.failed.iter().any(|failed| failed.id == *id);
            let unsettled = || inspection.unsettled.iter().any(|row| row.id == *id);
            began > r.recorded_since() && found() || unsettled() || counts && failed()
        });
        let outcome = match inspection.failed.is_empty() {
            false => Outcome::StatusFailed,
            true if self.error_of(&uid).is_some() => Outcome::NotRepeated,
            true => Outcome::Complete,
        };
        let finished = self.scheduler.finish(ticket, outcome, counts, now);
        let Some((finished, retry_at)) = finished else {
            return;
        };
        if !inspection.failed.is_empty() {
            self.counters.inspections_failed += 1;
        }
        if let Some(at) = retry_at {
            self.timers.set(at.max(now), Timer::Retry(uid.clone()));
        }
        let omits = self.omits_known(&uid, inspection);
        let is_first_read = !self.settle_second_read(now, &uid, inspection);
        let answers = !is_first_read && !omits;
        let unsettled = self.is_unsettled(&uid);
        let read = self.effective_read(&uid, (inspection.ticket, inspection.began));
        if let Some(pod) = self.pods.get_mut(&uid)
            && answers
        {
            pod.as_of = pod.as_of.max(read.map(|(_, began)| began));
        }
        let error_changed = self.update_error(&uid);
        let asked_to_sync = finished.causes.contains(Cause::Reinspect);
        let dirty = self.mark_dirty(&uid, Source::Inspection);
        if asked_to_sync || error_changed {
            dirty.announce_sync();
        }
        self.recheck_with_backoff(now, &uid, omits || unsettled);
        self.publish(now);
        if answers {
            self.answer_inspected(&uid, inspection, read);
        }
        if !is_first_read {
            self.ask_again_for_waiters(now, &uid);
        }
        self.inspected_once(&uid);
    }

    /// Sets the pod's error to that of the first id whose status failed. Returns whether it
    /// changed.
    fn update_error(&mut self, uid: &PodUid) -> bool {
        let error = self.error_of(uid);
        self.pods.get_mut(uid).is_some_and(|pod| {
            let changed = pod.error != error;
            pod.error = error;
            changed
        })
    }

    /// The error of the first id of the pod whose status failed.
    pub(super) fn error_of(&self, uid: &PodUid) -> Option<Arc<CallError>> {
        let members = self.pods.get(uid).into_iter().flat_map(|pod| &pod.members);
        let mut records = members.filter_map(|id| self.records.get(id));
        records.find_map(|record| record.error.clone())
    }

    /// Applies the ids that a list of the inspection showed and that have no status: they are in
    /// the listed state, or a later one (invariant 3).
    fn apply_listed(
        &mut self,
        now: Instant,
        uid: &PodUid,
        inspection: &Inspection,
        checks_stream: bool,
    ) {
        let read = ReadAt {
            call: Call::Inspection,
            began: inspection.began,
            ended: inspection.ended,
            checks_stream,
        };
        for row in &inspection.unsettled {
            self.apply_row_without_status(now, uid, read, row, StatusCall::NotFound);
            // NotFound is an answer: the call does not fail any more.
            if let Some(record) = self.records.get_mut(&row.id) {
                record.error = None;
            }
        }
        for failed in &inspection.failed {
            if let Some(row) = &failed.row {
                let status = StatusCall::Failed(&failed.error);
                self.apply_row_without_status(now, uid, read, row, status);
            }
            // A read that began later may have returned the status in the meantime.
            if let Some(record) = self.records.get_mut(&failed.id)
                && !record.is_removed()
                && record.inspected <= Some(read.began)
            {
                record.error = Some(Arc::new(failed.error.clone()));
            }
        }
    }

    fn apply_row_without_status(
        &mut self,
        now: Instant,
        uid: &PodUid,
        read: ReadAt,
        row: &Report,
        status: StatusCall<'_>,
    ) {
        let id = &row.id;
        let named = self.pod_named_by(id, &row.identity);
        if let Some(named) = &named {
            let sandbox = row.identity.sandbox.as_ref();
            self.move_to_pod(now, (id, sandbox), named, Source::Inspection);
        }
        if let Some(record) = self.records.get(id).filter(|r| r.is_removed()) {
            // It is listed although it is recorded as removed, which is a contradiction.
            if read.began > record.recorded_since() {
                let of = self.pod_of(id, named).unwrap_or_else(|| uid.clone());
                self.move_containers_of(now, id, Source::Inspection);
                self.reappear(&of, read, row, status);
                self.add_contradiction(now, &of, id, None, Source::Inspection);
            }
            return;
        }
        let new = !self.records.contains_key(id);
        if new {
            let of = named.unwrap_or_else(|| uid.clone());
            self.learn(now, id, row.identity.clone(), &of, Source::Inspection);
        }
        // The row also has identity fields: a container without a name would not block another of
        // its name.
        if let Some(record) = self.records.get_mut(id)
            && let Some(of) = record.identity.pod.clone()
        {
            let effect = record.details_from_row(row);
            self.apply(now, &of, id, effect, Source::Inspection);
        }
        let Some(at) = Position::shown(row.identity.kind, row.shown) else {
            return;
        };
        let joined = self.join(now, id, at, Source::Inspection, read.began);
        if joined.advanced() {
            self.expect_event(read, id, at, new);
        }
    }

    /// An id that was held, that no list of the inspection shows, and whose status call returned
    /// NotFound, is removed (invariant 5). If the lists may not show it, NotFound alone proves nothing,
    /// and a complete list decides.
    fn apply_gone(&mut self, now: Instant, uid: &PodUid, inspection: &Inspection) {
        for id in &inspection.gone {
            let Some(record) = self.records.get_mut(id) else {
                continue;
            };
            // NotFound is an answer: the call does not fail any more, also if the id stays.
            record.error = None;
            let Some(record) = self.records.get(id) else {
                continue;
            };
            if record.is_removed() {
                self.confirm_absence(uid, id, Call::Inspection, inspection.began);
            } else if !self.is_listed_by(uid, id, record) {
                self.list_soon(now);
            } else if record.learned < inspection.began {
                let (to, source) = (Position::Removed, Source::Inspection);
                self.join(now, id, to, source, inspection.began);
            }
        }
    }

    /// Releases the waiting announcements of these ids of the pod.
    fn release_held(&mut self, uid: &PodUid, released: impl Fn(&Id, &Record) -> bool) {
        let is_released = released;
        let Some(pod) = self.pods.get(uid) else {
            return;
        };
        let mut released = Vec::new();
        for id in &pod.members {
            if let Some(record) = self.records.get_mut(id)
                && is_released(id, record)
                && record.release()
            {
                released.push(id.clone());
            }
        }
        // In creation order: the sandbox before its containers.
        released.sort_by_key(|id| {
            self.records
                .get(id)
                .map(|r| (r.kind(), r.identity.created_at, id.clone()))
        });
        if !released.is_empty() {
            self.mark_dirty(uid, Source::Inspection)
                .ids
                .extend(released);
        }
    }

    /// Whether the inspection says nothing of an id that was known when it began: one that became
    /// known after the inspection was requested. It proves nothing of such an id (invariant 3).
    fn omits_known(&self, uid: &PodUid, inspection: &Inspection) -> bool {
        let Some(pod) = self.pods.get(uid) else {
            return false;
        };
        let is_omitted = |id: &&Id| {
            let record = self.records.get(*id);
            record.is_some_and(|r| r.learned < inspection.began) && !inspection.names(id)
        };
        pod.members.iter().any(|id| is_omitted(&id))
    }

    /// If an id stays unknown or contradicted, or was left out, the pod is inspected again later.
    fn recheck_with_backoff(&mut self, now: Instant, uid: &PodUid, skipped: bool) {
        if !skipped && self.recheck_cause(uid).is_none() {
            if let Some(pod) = self.pods.get_mut(uid) {
                pod.rechecks = 0;
                pod.recheck_skipped = false;
            }
            return;
        }
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.recheck_skipped |= skipped;
        }
        self.recheck_later(now, uid);
    }

    /// An inspection failed in its lists, or was cancelled.
    pub(super) fn fail_inspection(&mut self, now: Instant, ticket: Ticket, error: CallError) {
        let began = self.scheduler.issued(ticket);
        let counts = self.counts_against_pod(began);
        let outcome = Outcome::ListFailed;
        let Some((finished, retry_at)) = self.scheduler.finish(ticket, outcome, counts, now) else {
            return;
        };
        let uid = finished.uid;
        self.counters.inspections_failed += 1;
        if let Some(at) = retry_at {
            self.timers.set(at, Timer::Retry(uid.clone()));
        }
        if let Some(pod) = self.pods.get_mut(&uid) {
            pod.error = Some(Arc::new(error.clone()));
        }
        if counts {
            self.release_held(&uid, |_, _| true);
        }
        self.answer_first_read(now, &uid);
        self.mark_dirty(&uid, Source::Inspection);
        self.publish(now);
        let began = began.unwrap_or(now);
        for waiter in self.waiters.take(&uid, |w| w.is_failed_by(ticket, began)) {
            self.answer(waiter.id, Err(error.clone()));
        }
        self.ask_again_for_waiters(now, &uid);
        self.inspected_once(&uid);
    }

    /// A status call has ended. Its status is joined, and the details of its id are as of this
    /// read. It proves no freshness of the state and no absence.
    pub fn handle_status_read(&mut self, now: Instant, status: StatusRead) {
        let Some((id, since)) = self.status_reads.remove(&status.ticket) else {
            return;
        };
        // A timer that would do nothing still wakes the process.
        self.timers
            .cancel(since.after(STATUS_SLOW), Timer::StatusSlow(status.ticket));
        let of_probe = self.ends_probe(status.ticket);
        match &status.report {
            Ok(_) => self.runtime_answers(now, status.ended),
            Err(error) if is_silence(error.kind) => {}
            // A runtime that refuses a call answers.
            Err(_) if of_probe => self.runtime_answers(now, status.ended),
            Err(_) => self.probe.heard(status.ended),
        }
        if let Err(error) = &status.report {
            // A container whose exit reason was to be read may be gone.
            if of_probe || error.kind != CallErrorKind::NotFound {
                self.status_has_failed(now, id, error);
            }
        }
        if let Ok(report) = &status.report
            && let Some(record) = self.records.get(&report.id)
        {
            let pod = record.identity.pod.clone();
            let read = ReadAt {
                call: Call::Inspection,
                began: status.began,
                ended: status.ended,
                checks_stream: self.stream.checks(status.began),
            };
            self.apply_status(now, read, report);
            if let Some(uid) = &pod {
                // If the lists of the pod fail, their error stays.
                let recovered = !self.scheduler.is_unlistable(uid) && self.update_error(uid);
                let dirty = self.mark_dirty(uid, Source::Inspection);
                if recovered {
                    dirty.announce_sync();
                }
            }
            self.release_read(status.began, std::slice::from_ref(report));
            if let Some(uid) = pod.filter(|uid| self.recheck_cause(uid).is_some()) {
                self.recheck_later(now, &uid);
            }
        }
        self.pump(now);
    }
}
