//! Applies the rows and statuses of reads: publishes views, answers waiters, satisfies hints, expects stream events.

use std::sync::Arc;

use crate::hints::Absence;
use crate::output::{Confirmed, Output};
use crate::pod_read::{AtHand, PodRead, absence};
use crate::pods::{Applied, Pod, PodRows, Shown, Sorted};
use crate::progress::Settled;
use crate::reconciler::Reconciler;
use crate::types::{CallError, Hint, Id, Instant, Kind, PodUid, PodView, Rows, Source};

impl Reconciler {
    // ------------------------------------------------------------------------------------ rows of a relist

    /// Starts announcing changes, because the first complete relist has ended.
    pub(crate) fn begin_announcements(&mut self, now: Instant, rows: &Rows) {
        if self.announcements.has_begun() {
            return;
        }
        let rows = rows.states().map(|(id, state)| (id.clone(), state));
        let states = rows.chain(self.pods.states()).collect();
        self.announcements.begin(states);
        self.pods.gone.forget_states();
        // Until now no event caused a pod read: plans the reads of the pods that have waiting hints.
        for uid in self.hints.pods() {
            self.schedule.touch(uid);
        }
        let published = self.pods.iter().filter(|(_, pod)| pod.published.is_some());
        let published: Vec<PodUid> = published.map(|(uid, _)| uid.clone()).collect();
        for uid in published {
            self.announce(now, &uid, &Applied::default(), Source::Relist);
        }
    }

    /// Refreshes pods whose relist rows match the published state.
    pub(crate) fn confirm(&mut self, now: Instant, began: Instant, sorted: &Sorted) {
        let counts = |uid: &&PodUid| !self.schedule.overlaps_relist(uid);
        let confirmed: Vec<&PodUid> = sorted.same.iter().filter(counts).collect();
        self.pods.confirm(&confirmed, began);
        let pods = match confirmed.len() == self.pods.len() {
            true => Confirmed::All,
            false => Confirmed::These(confirmed.iter().copied().cloned().collect()),
        };
        self.out.push(Output::Refresh { as_of: began, pods });
        for uid in confirmed {
            self.progress.settle_pod(uid);
            // Rows of an earlier relist that wait for a slot are obsolete.
            if self.reads.take_at_hand(uid).is_some() {
                self.schedule.touch(uid);
            }
            // Most pods have no waiter, hint, retry or other work: being marked as fresh is all that they need.
            let waits = self.schedule.is_wanted(uid) || !self.hints.subjects(Some(uid)).is_empty();
            if waits || self.look_again.has(uid) || sorted.with_work.contains(uid) {
                let is_stale = self.read_hints(now, Some(uid), began, |_| Absence::Proven);
                self.answer(uid, began, false);
                let misses_status = self.pods.get(uid).is_some_and(Pod::misses_status);
                self.look_again_if(now, uid, is_stale || misses_status);
            }
        }
    }

    /// Takes relist rows of a new, changed or absent pod. If the pod is being read, the rows wait until its read ends.
    pub(crate) fn take_relist_rows(&mut self, now: Instant, uid: PodUid, rows: PodRows) {
        let overlapped = self.schedule.overlaps_relist(&uid);
        let at_hand = AtHand { rows, overlapped };
        if self.schedule.is_in_flight(&uid) {
            self.reads.put_at_hand(uid, at_hand);
        } else {
            self.apply_at_hand(now, uid, at_hand);
        }
    }

    /// Applies rows of a relist, or starts the status calls that complete them, without another list.
    pub(crate) fn apply_at_hand(&mut self, now: Instant, uid: PodUid, at_hand: AtHand) {
        // A pod with an unlabelled id is never listed alone: to answer its waiters, these rows need all its statuses.
        let wants_details = self.waiters.want_details(&uid, at_hand.rows.as_of);
        let all = wants_details && self.pods.needs_relist(&uid);
        let due = self.statuses_due(&uid, &at_hand.rows, all, now);
        if at_hand.overlapped {
            self.compare_overlapped(now, &uid, &at_hand.rows);
        } else if due.is_empty() {
            self.apply_read(now, &uid, PodRead::new(now, false, Some(at_hand.rows)));
        } else {
            self.schedule.touch(&uid);
            self.reads.put_at_hand(uid, at_hand);
        }
    }

    /// Compares relist rows that are not applied, because a list of the pod was in flight at the same time. If the rows
    /// differ from the published state, that list may have missed a change, so the pod is read again.
    fn compare_overlapped(&mut self, now: Instant, uid: &PodUid, rows: &PodRows) {
        if self.pods.is_same(uid, rows) {
            self.progress.settle_pod(uid);
        } else if self.pods.is_unlabelled(uid, rows) {
            self.relist.by_hint(now);
        } else {
            self.look_again.plan(Some(uid), now);
        }
        self.schedule.touch(uid);
    }

    /// Ends a relist, because each pod that it showed as new, changed or absent has been read.
    pub(crate) fn settle(&mut self, now: Instant, relist: Settled) {
        let (as_of, gone) = (relist.as_of, relist.gone);
        if relist.is_first {
            self.out.push(Output::Synced);
        }
        if self.read_hints(now, None, as_of, |_| Absence::Proven) {
            match self.look_again.plan(None, now) {
                Some(at) => self.relist.by_hint(at),
                None => self.hints.give_up(None),
            }
        }
        self.announcements.settled(relist.is_first);
        let pods = &self.pods;
        let is_published = |id: &Id| pods.record(id).is_some();
        self.stream_check.settled(as_of, is_published);
        self.out.push(Output::ListApplied { as_of, gone });
    }

    // ------------------------------------------------------------------------------------------- pod reads

    /// The ids whose statuses must be read to complete the rows of a pod read.
    pub(crate) fn statuses_due(
        &self,
        uid: &PodUid,
        rows: &PodRows,
        all: bool,
        now: Instant,
    ) -> Vec<(Id, Kind)> {
        let events = |id: &Id| self.hints.get(id);
        let mut due = self.pods.due(uid, rows, events, all, now);
        if !rows.of_relist {
            // An id that only events have shown is gone if its status call returns NotFound.
            for id in self.hints.subjects(Some(uid)) {
                let is_unseen = self.pods.shown(&id) == Shown::Never;
                if is_unseen && !rows.rows.contains_key(&id) {
                    let kind = self.hints.status_due(&id, rows.as_of);
                    due.extend(kind.map(|kind| (id, kind)));
                }
            }
        }
        due
    }

    /// Ends a pod read, or applies relist rows that differ from the published state: publishes and announces the
    /// changes, and answers all waiters for this read.
    pub(crate) fn apply_read(&mut self, now: Instant, uid: &PodUid, read: PodRead) {
        let Some(rows) = &read.rows else { return };
        let (as_of, of_relist) = (rows.as_of, rows.of_relist);
        let before = match self.pods.get(uid) {
            Some(pod) => pod.as_of,
            None => self.progress.settled_as_of(),
        };
        let (hints, answers, outage) = (&self.hints, &read.answers, self.outage.excuses(now));
        let events = |id: &Id| hints.get(id);
        let mut applied = self.pods.apply(uid, rows, answers, events, outage, now);
        self.out.counters.undone += applied.undone.len() as u64;
        let subjects = self.hints.subjects(Some(uid)).into_iter();
        for id in subjects.chain(self.ids_for_unplaced_hints(uid)) {
            if let Some(end) = self.hints.get(&id).and_then(Hint::end).cloned() {
                self.end(now, uid, &id, &end);
            }
        }
        self.check_stream(now, before, &mut applied);
        applied.needs_sync =
            read.all && self.announcements.has_begun() && self.waiters.need_sync(uid, as_of);
        let source = match of_relist {
            true => Source::Relist,
            false => Source::Inspection,
        };
        self.publish(now, uid, &applied, source);
        self.publish_moves(now);
        let absence = |id: &Id| absence(rows, &read.answers, id);
        let is_stale = self.read_hints(now, Some(uid), as_of, absence);
        self.answer(uid, as_of, read.all);
        self.look_again_if(now, uid, is_stale || applied.is_stale);
        self.progress.read(uid, as_of, of_relist);
        // Rows of a relist that ended during this read are obsolete unless `overlapped` or newer than this read's.
        if let Some(at_hand) = self.reads.take_at_hand(uid)
            && (at_hand.overlapped || at_hand.rows.as_of > as_of)
        {
            self.apply_at_hand(now, uid.clone(), at_hand);
        }
    }

    /// Plans a retry if the last read of the pod was stale.
    fn look_again_if(&mut self, now: Instant, uid: &PodUid, is_stale: bool) {
        if !is_stale {
            self.look_again.stop(Some(uid));
        } else if self.look_again.plan(Some(uid), now).is_none() {
            self.hints.give_up(Some(uid));
        }
        self.schedule.touch(uid);
    }

    /// Forgets the hints that a read satisfies, and announces ids that were created and removed between two reads.
    /// Returns true if the read was stale.
    fn read_hints(
        &mut self,
        now: Instant,
        pod: Option<&PodUid>,
        as_of: Instant,
        absence: impl Fn(&Id) -> Absence,
    ) -> bool {
        let pods = &self.pods;
        let read = self.hints.resolve(pod, as_of, |id| pods.shown(id), absence);
        let (is_stale, short_lives) = read;
        for (id, hint) in short_lives {
            self.announce_short_life(now, &id, &hint);
        }
        is_stale
    }

    /// Forgets the hint of each id in `subjects` if the cache shows what the events of the hint reported.
    pub(crate) fn satisfy(&mut self, subjects: &[Id]) {
        for id in subjects {
            let pod = self.hints.pod_of(id);
            let (schedule, relist) = (&self.schedule, self.relist.in_flight());
            let may_come = |at| match pod {
                Some(uid) => schedule.has_read_begun_by(Some(uid), at),
                None => {
                    let lists = relist.is_some_and(|(_, since)| since <= at);
                    lists || schedule.has_read_begun_by(None, at)
                }
            };
            let shown = self.pods.shown(id);
            if self.hints.is_satisfied(id, shown, may_come) {
                self.hints.forget(id);
            }
        }
    }

    /// Makes `stream_check` expect an event for each change that a read showed. `before`: the pod's `as_of` until then.
    pub(crate) fn check_stream(
        &mut self,
        now: Instant,
        before: Option<Instant>,
        applied: &mut Applied,
    ) {
        if self.stream.reports(before) {
            for (id, event) in std::mem::take(&mut applied.changes) {
                self.stream_check.changed(&id, event, now);
            }
        }
        for (id, _) in &applied.removed {
            self.stream_check.left(id);
        }
    }

    // ------------------------------------------------------------------------------- the cache, and answers

    /// Writes the pod into the cache, then announces the pod's changes.
    pub(crate) fn publish(
        &mut self,
        now: Instant,
        uid: &PodUid,
        applied: &Applied,
        source: Source,
    ) {
        let Some((before, view)) = self.pods.publish(uid) else {
            return;
        };
        let status = view.status.clone();
        if before.is_none() && !status.exists() {
            if applied.needs_sync {
                self.announce_sync(now, &status, source);
            }
            return;
        }
        match view.as_of {
            Some(as_of) if !status.exists() => self.progress.emptied(uid.clone(), as_of),
            _ => self.progress.exists(uid),
        }
        self.out.push(Output::Publish {
            uid: uid.clone(),
            view,
        });
        let is_changed = before.is_some_and(|before| !Arc::ptr_eq(&before, &status));
        let announces = self.announce(now, uid, applied, source);
        if applied.needs_sync || (is_changed && !announces) {
            self.announce_sync(now, &status, source);
        }
        self.satisfy(&self.ids_for_unplaced_hints(uid));
    }

    /// If a hint that names no pod waits for a relist, returns all ids of this pod: the hint may be about any of them.
    fn ids_for_unplaced_hints(&self, uid: &PodUid) -> Vec<Id> {
        let pod = self.hints.relist_due().and_then(|_| self.pods.get(uid));
        let ids = pod.into_iter().flat_map(|pod| pod.records.keys());
        ids.cloned().collect()
    }

    /// Publishes the pods between which containers were moved, and plans their reads anew: pod lists may suffice now.
    pub(crate) fn publish_moves(&mut self, now: Instant) {
        for uid in std::mem::take(&mut self.pods.moved) {
            self.publish(now, &uid, &Applied::default(), Source::Relist);
            self.schedule.touch(&uid);
        }
    }

    /// Sends the pod's view to the waiters that a read with rows requested at `as_of` answers.
    fn answer(&mut self, uid: &PodUid, as_of: Instant, details: bool) {
        for waiter in self.waiters.answered(uid, as_of, details) {
            let nothing = || PodView::nothing(uid, Some(as_of));
            let answer = Ok(self.pods.view(uid).unwrap_or_else(nothing));
            self.out.push(Output::Answer { waiter, answer });
        }
    }

    /// Sends an error to the waiters that a failed read, begun at `began`, would have answered.
    pub(crate) fn refuse(&mut self, uid: &PodUid, began: Instant, error: &CallError) {
        for waiter in self.waiters.failed(uid, began) {
            let answer = Err(error.clone());
            self.out.push(Output::Answer { waiter, answer });
        }
    }
}
