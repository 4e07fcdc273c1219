//! Full lists: which changes they show, which pods they confirm, and which ids they no longer show.

use std::collections::BTreeSet;
use std::time::Duration;

use super::apply::{Found, ReadAt};
use super::{Confirmed, Output, Reconciler};
use crate::schedule::cause::Cause;
use crate::schedule::waiters::Waiter;
use crate::state::evidence::Call;
use crate::state::order::Position;
use crate::state::pod::Pod;
use crate::types::error::CallError;
use crate::types::ids::{Id, PodUid};
use crate::types::lifecycle::Source;
use crate::types::reads::{List, Rows};
use crate::types::report::{Report, ReportedState};
use crate::types::status::PodView;
use crate::types::time::Instant;

/// The minimum time between two outages that end the backoff of every pod.
const OUTAGES_APART: Duration = Duration::from_secs(60);

impl Reconciler {
    /// A full list has ended.
    pub fn handle_list(&mut self, now: Instant, list: List) {
        if self
            .relist
            .in_flight()
            .is_none_or(|(ticket, _)| ticket != list.ticket)
        {
            return;
        }
        let outcome = match &list.rows {
            Ok(rows) => {
                self.probe.heard(list.ended);
                self.list_error = None;
                self.apply_list(now, &list, rows);
                Ok(())
            }
            Err(error) => {
                self.counters.lists_failed += 1;
                self.list_error = Some(error.clone());
                self.relist.failed(error.kind, list.ended);
                self.fail_waiters_for_list(now, &list, error);
                Err(error.clone())
            }
        };
        self.publish(now);
        for waiter in self.waiters.take_lists(list.ticket) {
            self.out.push_back(Output::Listed {
                waiter,
                outcome: outcome.clone(),
            });
        }
        self.drop_old_tombstones(now);
        self.pump(now);
    }

    /// A complete list failed: answers the waiters for which it was made.
    fn fail_waiters_for_list(&mut self, now: Instant, list: &List, error: &CallError) {
        for uid in std::mem::take(&mut self.read_by_list) {
            let fails = |w: &Waiter| w.is_failed_by(list.ticket, list.began);
            for waiter in self.waiters.take(&uid, fails) {
                self.answer(waiter.id, Err(error.clone()));
            }
            self.ask_again_for_waiters(now, &uid);
        }
    }

    /// The number of existing ids, if no read contradicts any of them.
    fn exist_undisputed(&self) -> Option<usize> {
        let mut pods = self.pods.values();
        pods.try_fold(0, |exist, pod| {
            let undisputed = !pod.is_disputed();
            undisputed.then_some(exist + pod.members.len())
        })
    }

    fn apply_list(&mut self, now: Instant, list: &List, rows: &Rows) {
        let checks_stream = self.stream.checks(list.began);
        self.stream.listed(list.began, list.ended);
        let read = ReadAt {
            call: Call::List,
            began: list.began,
            ended: list.ended,
            checks_stream,
        };
        // Before the rows: what they show is announced after its status was read, also in a pod whose
        // reads failed before the first list did.
        self.end_outage(now);
        let mut moved: BTreeSet<PodUid> = BTreeSet::new();
        if !self.records.are_unchanged_by(rows) {
            self.apply_rows(now, read, rows, &mut moved);
        }
        self.orphans.forget_before(list.began);
        self.unrecorded.forget_before(list.began);
        self.pending.forget_old_misses(now);
        self.relist.succeeded(list.began, list.ended);
        self.publish(now);
        let mut gone = Vec::new();
        self.removed_pods.retain(|uid, since| {
            let stays = *since >= list.began;
            if !stays {
                gone.push(uid.clone());
            }
            stays
        });
        self.out.push_back(Output::ListApplied {
            as_of: list.began,
            gone,
        });
        self.confirm(now, list, &moved);
        if checks_stream {
            self.relist.await_verdict(list.ticket, self.pending.last());
            self.decide_verdicts(now);
        }
        if !self.synced && self.unsynced.is_none() {
            // Every pod in the first complete list is to be inspected once.
            self.unsynced = Some(
                self.pods
                    .keys()
                    .filter(|uid| self.scheduler.owes(uid))
                    .cloned()
                    .collect(),
            );
        }
    }

    /// The first complete list after a failed one ends the backoff of every pod, at most once a
    /// minute: failures during an outage do not count against pods.
    fn end_outage(&mut self, now: Instant) {
        let recently = self
            .backoff_cleared
            .is_some_and(|at| at.after(OUTAGES_APART) > now);
        if self.relist.has_failed() && !recently {
            self.backoff_cleared = Some(now);
            self.scheduler.clear_backoff();
        }
    }

    /// Applies the listed rows and the absences. Collects the pods that the list does not show as
    /// recorded.
    fn apply_rows(
        &mut self,
        now: Instant,
        read: ReadAt,
        rows: &Rows,
        moved: &mut BTreeSet<PodUid>,
    ) {
        let changed = self.confirm_rows(rows, read.began);
        if changed.is_empty()
            && rows.lists_exactly_known()
            && self.exist_undisputed() == Some(rows.len())
        {
            self.records.set_unchanged(rows);
            return;
        }
        for (id, shown) in changed {
            match self.records.get(id) {
                Some(record) => self.apply_row(now, read, &record.row(id, shown), moved),
                // The record was dropped, because there were too many removals during the list.
                None => self.relist.by(now),
            }
        }
        for row in rows.new_rows() {
            self.apply_row(now, read, row, moved);
        }
        self.apply_absence(now, read.began, rows, moved);
    }

    /// Confirms the recorded state of the known ids that are listed with it, which are most rows of
    /// most lists. Returns the other listed ids.
    pub(super) fn confirm_rows<'a>(
        &mut self,
        rows: &'a Rows,
        began: Instant,
    ) -> Vec<(&'a Id, ReportedState)> {
        let mut changed = Vec::new();
        // Both are sorted by id: a merge, because searching would be most of the cost.
        let mut records = self.records.iter_mut();
        let mut next = records.next();
        for (id, kind, shown) in rows.known() {
            let Some(shown) = shown else { continue };
            while next.as_ref().is_some_and(|(other, _)| *other < id) {
                next = records.next();
            }
            match &mut next {
                Some((other, record))
                    if *other == id
                        && record.is_recorded_as(id, kind, shown)
                        && record.recorded_since() < began
                        && !self.orphans.contains(id) =>
                {
                    record.confirm_by_list();
                }
                _ => changed.push((id, shown)),
            }
        }
        changed
    }

    fn apply_row(
        &mut self,
        now: Instant,
        read: ReadAt,
        row: &Report,
        moved: &mut BTreeSet<PodUid>,
    ) {
        let orphan = self.orphans.take(&row.id);
        let found = self.read_report(now, read, row);
        if let Some(kept) = orphan {
            self.apply_orphan(now, &row.id, kept);
        }
        if found == Found::Otherwise
            && let Some(record) = self.records.get(&row.id)
            && let Some(uid) = record.identity.pod.clone()
        {
            moved.insert(uid);
        }
    }

    /// An id that a complete list does not show is removed, if it was first learned of before the
    /// list began. Otherwise the list says nothing about it (invariant 5).
    fn apply_absence(
        &mut self,
        now: Instant,
        began: Instant,
        rows: &Rows,
        moved: &mut BTreeSet<PodUid>,
    ) {
        let new: BTreeSet<&Id> = rows.new_rows().iter().map(|row| &row.id).collect();
        let mut absent: Vec<(PodUid, Id)> = Vec::new();
        for (uid, pod) in &self.pods {
            for id in pod.ids() {
                let kind = self.records.get(id).map(|record| record.kind());
                let known = kind.is_some_and(|kind| rows.lists_known(id, kind));
                if !known && !new.contains(id) {
                    absent.push((uid.clone(), id.clone()));
                }
            }
        }
        for (uid, id) in absent {
            let Some(record) = self.records.get(&id) else {
                continue;
            };
            let was_known = !record.is_removed() && record.learned < began;
            // As it is recorded: what this settles is no reason to doubt the rest of the pod.
            if self.confirm_absence(&uid, &id, Call::List, began) {
                continue;
            }
            moved.insert(uid.clone());
            if was_known {
                self.join(now, &id, Position::Removed, Source::Relist, began);
            }
        }
    }

    /// The list confirms the freshness of pods that it shows unchanged and to which nothing is
    /// owed (invariant 3).
    fn confirm(&mut self, now: Instant, list: &List, moved: &BTreeSet<PodUid>) {
        let is_owed = |uid: &PodUid, pod: &Pod| {
            moved.contains(uid)
                || self.is_owed_a_read(uid, pod)
                || pod.is_disputed()
                || pod.recheck_skipped
        };
        let owed = self.pods.iter().filter(|(uid, pod)| is_owed(uid, pod));
        let owed: BTreeSet<PodUid> = owed.map(|(uid, _)| uid.clone()).collect();
        let every = self.removed_pods.is_empty() && owed.is_empty();
        let mut these = Vec::new();
        for (uid, pod) in &mut self.pods {
            if (every || !owed.contains(uid)) && pod.as_of < Some(list.began) {
                pod.as_of = Some(list.began);
                if !every {
                    these.push(uid.clone());
                }
            }
        }
        let pods = match every {
            true => Confirmed::All,
            false => Confirmed::These(these),
        };
        if pods != Confirmed::These(Vec::new()) && !self.pods.is_empty() {
            let as_of = list.began;
            self.out.push_back(Output::Refresh { as_of, pods });
        }
        // The list answers the waiters of the pods that it confirmed, including pods that it does
        // not show.
        let waited_for: Vec<PodUid> = self.waiters.pods().cloned().collect();
        for uid in waited_for {
            for waiter in self.waiters.take(&uid, |w| {
                !w.details && w.is_served_by(list.ticket, list.began)
            }) {
                match self.view_begun_at(&uid, list.began) {
                    Some(view) => self.answer(waiter.id, Ok(view)),
                    None => self.waiters.register(&uid, waiter),
                }
            }
        }
        for uid in std::mem::take(&mut self.read_by_list) {
            self.read_after_list(now, &uid, list);
        }
    }

    /// Whether an inspection of the pod is requested, or one failed and is still owed. A failed
    /// status alone is read again after its backoff, and withholds nothing until then.
    fn is_owed_a_read(&self, uid: &PodUid, pod: &Pod) -> bool {
        if !self.scheduler.owes(uid) {
            return false;
        }
        let mut records = pod.members.iter().filter_map(|id| self.records.get(id));
        let all_but_failed = records.all(|r| r.error.is_some() || !r.owes_status());
        self.scheduler.is_asked_for(uid) || self.error_of(uid).is_none() || !all_but_failed
    }

    /// The list that was made for the waiters of the pod was applied, and has not answered all of
    /// them.
    fn read_after_list(&mut self, now: Instant, uid: &PodUid, list: &List) {
        let due: Vec<&Waiter> = self.due_waiters(now, uid).collect();
        let details = due.iter().any(|w| w.details);
        let served = |w: &&Waiter| w.is_served_by(list.ticket, list.began);
        match due.iter().any(served) {
            // It waits for details, or the list found changes, and the pod's statuses are owed. No
            // backoff delays a waiter.
            true if details => self.request_inspection(now, uid, Cause::Details),
            true => self.request_inspection(now, uid, Cause::Waiter),
            false if !due.is_empty() => self.read_for_waiters(now, uid),
            false => {}
        }
    }

    /// The pod's view, if the read that began at `began` has proven it.
    fn view_begun_at(&self, uid: &PodUid, began: Instant) -> Option<PodView> {
        let before = Instant::from_nanos(began.as_nanos().saturating_sub(1));
        self.view_newer_than(uid, before)
    }
}
