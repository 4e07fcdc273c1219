//! What the read side hands over of one pod: inspections, single statuses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::judge::ReadAt;
use super::timers::Timer;
use super::{Output, Reconciler};
use crate::belief::Call;
use crate::desk::{Cause, Outcome};
use crate::error::CallError;
use crate::ids::{Id, PodUid};
use crate::lifecycle::Source;
use crate::observed::{Inspection, Reading, Report, Ticket};
use crate::order::Position;
use crate::pod::FirstLook;
use crate::record::Record;
use crate::status::{PodStatus, PodView};
use crate::time::Instant;

/// How long after a read whose lists and status calls disagree the pod is read once more.
const SECOND_LOOK: Duration = Duration::from_millis(100);

impl Reconciler {
    /// An inspection has ended.
    pub fn handle_inspection(&mut self, now: Instant, inspection: Inspection) {
        let ticket = inspection.ticket;
        if !self.desk.is_under_way(ticket) {
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

    /// Joins every status that was read. Partial or not, what was read was so.
    fn apply_found(&mut self, now: Instant, inspection: &Inspection, checks_stream: bool) {
        let read = ReadAt {
            call: Call::Inspection,
            began: inspection.began,
            ended: inspection.ended,
            checks_stream,
        };
        for report in &inspection.found {
            self.read_report(now, read, report);
        }
        self.release_read(read.began, &inspection.found);
    }

    /// Announcements that wait for one of these statuses wait no longer.
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

    /// Whether the runtime as a whole fails: the last list, or the last probe. A status code alone
    /// never says so.
    pub(super) const fn is_runtime_failing(&self) -> bool {
        self.relist.has_failed() || self.probe.silent_since().is_some()
    }

    fn complete_inspection(&mut self, now: Instant, inspection: &Inspection) {
        let (ticket, began) = (inspection.ticket, inspection.began);
        let Some((landed, _)) = self.desk.land(ticket, Outcome::Complete, now) else {
            return;
        };
        let uid = landed.uid;
        let checks_stream = self.stream.checks(began);
        if let Some(pod) = self.pods.get_mut(&uid) {
            pod.disputed = false;
        }
        self.apply_found(now, inspection, checks_stream);
        self.apply_denied(now, &uid, inspection, checks_stream);
        self.apply_gone(now, &uid, inspection);
        self.release_held(&uid, |id, r| {
            began > r.recorded_since() || inspection.denied.iter().any(|d| d.id == *id)
        });
        let left_out = self.left_out(&uid, inspection);
        let answers = self.settles_denied(now, &uid, inspection);
        let unsettled = self.is_unsettled(&uid);
        let undecided = self.undecided_removals(&uid);
        if let Some(pod) = self
            .pods
            .get_mut(&uid)
            .filter(|_| left_out.is_empty() && answers)
        {
            if !pod.disputed && !unsettled {
                pod.inspected = pod.inspected.max(Some(began));
            }
            if undecided == 0 {
                pod.as_of = pod.as_of.max(Some(began));
            }
        }
        let error_gone = self
            .pods
            .get_mut(&uid)
            .is_some_and(|pod| pod.error.take().is_some());
        let asked_to_sync = landed.causes.contains(Cause::Reinspect);
        let touched = self.touch(&uid, Source::Inspection);
        touched.sync |= asked_to_sync || error_gone;
        self.recheck_with_backoff(now, &uid, !left_out.is_empty() || unsettled);
        self.publish(now);
        if answers {
            self.answer_inspected(now, &uid, inspection, &left_out);
        }
        self.now_synced(&uid);
    }

    /// Ids that a list of the inspection showed and whose own status call said NotFound: they are in
    /// the listed state, or a later one (invariant 3).
    fn apply_denied(
        &mut self,
        now: Instant,
        uid: &PodUid,
        inspection: &Inspection,
        checks_stream: bool,
    ) {
        for row in &inspection.denied {
            let id = &row.id;
            if self.records.get(id).is_some_and(|r| r.is_removed()) {
                // It is listed although it is recorded as removed; that is to be decided.
                let since = self.records.get(id).map(|r| r.recorded_since());
                if since.is_some_and(|since| inspection.began > since) {
                    self.contradicted(now, uid, id, None, Source::Inspection);
                }
                continue;
            }
            let new = !self.records.contains_key(id);
            let named = self.pod_named_by(id, &row.identity);
            if new {
                let of = named.clone().unwrap_or_else(|| uid.clone());
                self.learn(now, id, row.identity.clone(), &of);
            }
            if let Some(named) = &named {
                let sandbox = row.identity.sandbox.as_ref();
                self.rehome(now, (id, sandbox), named, Source::Inspection);
            }
            // Who it is a row says as well: a container without a name blocks nothing.
            if let Some(record) = self.records.get_mut(id)
                && let Some(of) = record.identity.pod.clone()
            {
                let effect = record.details_from_row(row);
                self.note(now, &of, id, effect, Source::Inspection);
            }
            let Some(at) = Position::shown(row.identity.kind, row.shown) else {
                continue;
            };
            let (source, began) = (Source::Inspection, inspection.began);
            if self.join(now, id, at, source, began).advanced.is_some() {
                let read = ReadAt {
                    call: Call::Inspection,
                    began,
                    ended: inspection.ended,
                    checks_stream,
                };
                self.expect_event(read, id, at, new);
            }
        }
    }

    /// Whether the inspection answers those who wait. Where a list showed an id and its status call
    /// said NotFound, the pod is read once more first, at least 100 ms later. If that read says the
    /// same, the id stays unsettled until a status succeeds or a read shows it gone.
    fn settles_denied(&mut self, now: Instant, uid: &PodUid, inspection: &Inspection) -> bool {
        let open = inspection.denied.iter().filter(|row| {
            let record = self.records.get(&row.id);
            record.is_some_and(|r| !r.unsettled)
        });
        let open: Vec<Id> = open.map(|row| row.id.clone()).collect();
        let Some(pod) = self.pods.get_mut(uid) else {
            return true;
        };
        if open.is_empty() {
            pod.first_look = None;
            return true;
        }
        if let Some(first) = &pod.first_look {
            let second = inspection.began >= first.read.ended.after(SECOND_LOOK);
            if second {
                pod.first_look = None;
                self.mark_unsettled(&open);
            }
            return second;
        }
        let again = now.max(inspection.ended.after(SECOND_LOOK));
        let look = FirstLook {
            read: inspection.clone(),
            open,
        };
        pod.first_look = Some(Box::new(look));
        self.timers.set(again, Timer::SecondLook(uid.clone()));
        false
    }

    fn mark_unsettled(&mut self, ids: &[Id]) {
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

    /// Whether something of the pod is listed and has no status.
    fn is_unsettled(&self, uid: &PodUid) -> bool {
        let members = self.pods.get(uid).into_iter().flat_map(|pod| &pod.members);
        let mut records = members.filter_map(|id| self.records.get(id));
        records.any(|r| r.unsettled)
    }

    /// The second read failed: the first one answers those whom it serves.
    fn answer_first_look(&mut self, now: Instant, uid: &PodUid) {
        let first = self.pods.get_mut(uid).and_then(|pod| pod.first_look.take());
        let Some(first) = first else { return };
        self.mark_unsettled(&first.open);
        self.touch(uid, Source::Inspection);
        self.publish(now);
        let FirstLook { read, .. } = *first;
        let served = self
            .waiters
            .take(uid, |w| w.is_served_by(read.ticket, read.began));
        if !served.is_empty() {
            let view = self.view_of_read(now, uid, &read, &BTreeSet::new());
            for waiter in served {
                self.answer(waiter.id, Ok(view.clone()));
            }
        }
    }

    /// An id that was held, that no list of the inspection shows and whose own status call says
    /// NotFound, is removed (law 5).
    fn apply_gone(&mut self, now: Instant, uid: &PodUid, inspection: &Inspection) {
        for id in &inspection.gone {
            let Some(record) = self.records.get_mut(id) else {
                continue;
            };
            if record.is_removed() {
                if inspection.began > record.recorded_since() {
                    record.confirm_absence(Call::Inspection);
                    self.agreed(uid, id, Source::Inspection);
                }
            } else if record.learned < inspection.began {
                let (to, source) = (Position::Removed, Source::Inspection);
                self.join(now, id, to, source, inspection.began);
            }
        }
    }

    /// What was held back of these ids of the pod may be announced.
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
        // As they came about: the sandbox before its containers.
        released.sort_by_key(|id| {
            self.records
                .get(id)
                .map(|r| (r.kind(), r.identity.created_at, id.clone()))
        });
        if !released.is_empty() {
            self.touch(uid, Source::Inspection).ids.extend(released);
        }
    }

    /// How many ids of the pod are believed removed while reads still show them.
    fn undecided_removals(&self, uid: &PodUid) -> usize {
        let Some(pod) = self.pods.get(uid) else {
            return 0;
        };
        pod.denied
            .iter()
            .filter(|id| self.records.get(*id).is_some_and(|r| r.is_removed()))
            .count()
    }

    /// The ids that the inspection should have shown and did not: listed, and then NotFound. What is
    /// believed of them is from before it began, so the pod is not as of its begin (law 3).
    fn left_out(&self, uid: &PodUid, inspection: &Inspection) -> BTreeSet<Id> {
        let members = self.pods.get(uid).into_iter().flat_map(|pod| &pod.members);
        members
            .filter(|id| {
                self.records
                    .get(*id)
                    .is_some_and(|r| r.learned < inspection.began)
                    && !inspection.found.iter().any(|f| f.id == **id)
                    && !inspection.gone.contains(id)
                    && !inspection.denied.iter().any(|row| row.id == **id)
            })
            .cloned()
            .collect()
    }

    /// Something stays unknown, contradicted, or was left out: once more, later.
    fn recheck_with_backoff(&mut self, now: Instant, uid: &PodUid, skipped: bool) {
        if !skipped && self.trouble(uid).is_none() {
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

    /// Answers all whom this read serves, with what it showed.
    fn answer_inspected(
        &mut self,
        now: Instant,
        uid: &PodUid,
        inspection: &Inspection,
        left_out: &BTreeSet<Id>,
    ) {
        let served = self
            .waiters
            .take(uid, |w| w.is_served_by(inspection.ticket, inspection.began));
        if !served.is_empty() {
            let view = self.view_of_read(now, uid, inspection, left_out);
            for waiter in served {
                self.answer(waiter.id, Ok(view.clone()));
            }
        }
        self.ask_again_for_waiters(now, uid);
    }

    fn view_of_read(
        &self,
        now: Instant,
        uid: &PodUid,
        inspection: &Inspection,
        left_out: &BTreeSet<Id>,
    ) -> PodView {
        let status = match self.pods.get(uid) {
            None => Arc::new(PodStatus::nothing(uid.clone())),
            Some(pod) => match &pod.published {
                Some(status) if pod.denied.is_empty() && left_out.is_empty() => status.clone(),
                _ => Arc::new(pod.assemble_with(uid, &self.records, inspection, left_out, now)),
            },
        };
        // What has no status was not inspected.
        let inspected = match inspection.denied.is_empty() {
            true => Some(inspection.began),
            false => self.pods.get(uid).and_then(|pod| pod.inspected),
        };
        PodView::new(status, Some(inspection.began), inspected)
    }

    fn ask_again_for_waiters(&mut self, now: Instant, uid: &PodUid) {
        if self.waiters.of(uid).iter().any(|w| w.after <= now) {
            self.want(now, uid, Cause::Waiter);
        }
    }

    /// An inspection failed, was partial, or was given up.
    pub(super) fn fail_inspection(&mut self, now: Instant, ticket: Ticket, error: CallError) {
        // Where the runtime fails as a whole, that is not the pod's failure.
        let counts = !self.is_runtime_failing();
        let outcome = if counts {
            Outcome::Failed
        } else {
            Outcome::RuntimeFailed
        };
        let began = self.desk.issued(ticket);
        let Some((landed, retry_at)) = self.desk.land(ticket, outcome, now) else {
            return;
        };
        let uid = landed.uid;
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
        self.answer_first_look(now, &uid);
        self.touch(&uid, Source::Inspection);
        self.publish(now);
        let began = began.unwrap_or(now);
        for waiter in self.waiters.take(&uid, |w| w.is_failed_by(ticket, began)) {
            self.answer(waiter.id, Err(error.clone()));
        }
        self.ask_again_for_waiters(now, &uid);
        self.now_synced(&uid);
    }

    /// A single status has been read. It is joined; no freshness and no absence follow.
    pub fn handle_reading(&mut self, now: Instant, reading: Reading) {
        if self.readings.remove(&reading.ticket).is_none() {
            return;
        }
        if reading.report.is_ok() {
            self.runtime_answers(now, reading.ended);
        }
        let error = reading.report.as_ref().err();
        self.probe_answered(now, reading.ticket, reading.ended, error);
        if let Ok(report) = &reading.report
            && let Some(record) = self.records.get(&report.id)
        {
            let pod = record.identity.pod.clone();
            let read = ReadAt {
                call: Call::Inspection,
                began: reading.began,
                ended: reading.ended,
                checks_stream: self.stream.checks(reading.began),
            };
            self.read_report(now, read, report);
            self.release_read(reading.began, std::slice::from_ref(report));
            if let Some(uid) = pod.filter(|uid| self.trouble(uid).is_some()) {
                self.recheck_later(now, &uid);
            }
        }
        self.pump(now);
    }

    pub(super) fn answer(
        &mut self,
        waiter: crate::waiters::WaiterId,
        answer: Result<PodView, CallError>,
    ) {
        self.out.push_back(Output::Answer { waiter, answer });
    }

    /// The pod was inspected once, successfully or not.
    fn now_synced(&mut self, uid: &PodUid) {
        if let Some(waiting) = &mut self.unsynced {
            waiting.remove(uid);
        }
    }

    pub(super) fn check_synced(&mut self) {
        let Some(waiting) = &mut self.unsynced else {
            return;
        };
        // One that is owed its inspection is enough to know.
        while waiting.first().is_some_and(|uid| !self.desk.owes(uid)) {
            waiting.pop_first();
        }
        if waiting.is_empty() {
            self.synced = true;
            self.unsynced = None;
        }
    }
}
