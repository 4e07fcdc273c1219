//! The reconciler: hands facts from one machine to the next.
//!
//! Read it from top to bottom. [`handle_hints`](Reconciler::handle_hints) takes what the event stream says,
//! [`handle_list`](Reconciler::handle_list) a relist, [`handle_pod_list`](Reconciler::handle_pod_list) and
//! [`handle_statuses`](Reconciler::handle_statuses) the two steps of a pod read. Every read of a pod, whichever way
//! it went, ends in [`read_is_complete`](Reconciler::read_is_complete). After each input,
//! [`pump`](Reconciler::pump) starts the reads that are due.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::announcements::{Announcements, Published};
use crate::constants::{CROWD, LOOK_AGAIN, VERSION_DEADLINE};
use crate::health::{Health, PodName};
use crate::hints::{Absence, Hints};
use crate::output::{Confirmed, Counters, Outbox, Output};
use crate::pod_read::{AtHand, Look, PodRead, PodReads};
use crate::pods::record::Record;
use crate::pods::{Applied, Left, PodRows, Pods, Shown};
use crate::probe::{Due, Probe, is_silence};
use crate::progress::{Progress, Unread};
use crate::read_schedule::{ReadSchedule, Reason};
use crate::relist::{Relist, Trust};
use crate::state_counts::StateCounts;
use crate::stream::{Stream, StreamState};
use crate::stream_check::StreamCheck;
use crate::types::config::{InvalidSetting, Mode, Settings};
use crate::types::error::{CallError, CallErrorKind};
use crate::types::event::{Arrival, StreamChange};
use crate::types::hint::Hint;
use crate::types::ids::{Id, Kind, PodUid};
use crate::types::lifecycle::{LifecycleType, PodLifecycleEvent, Source, Subject};
use crate::types::profile::EventProfile;
use crate::types::reads::{List, PodList, Rows, Statuses, Ticket, Version};
use crate::types::report::{Report, ReportedState};
use crate::types::status::{PodStatus, PodView};
use crate::types::time::Instant;
use crate::waiters::{WaiterId, Waiters};

/// The pod lifecycle event generator as a deterministic state machine. Observations go in; cache writes,
/// announcements, answers and requests to the read side come out. It reads no clock and does no I/O. Equal inputs
/// give equal outputs.
///
/// Its methods are of four kinds:
///
/// * `handle_*` take an input: an observation of the stream or of the read side, or that time has passed.
///   Instants must not go backwards from call to call.
/// * requests ([`wait`](Self::wait), [`relist_now`](Self::relist_now), …) are inputs of consumers.
/// * [`poll_output`](Self::poll_output) and [`poll_timeout`](Self::poll_timeout) tell the driver what to do. After
///   every input it takes outputs until there are none, in order, and it calls
///   [`handle_timeout`](Self::handle_timeout) when the instant of `poll_timeout` comes.
/// * getters ([`health`](Self::health), [`counters`](Self::counters)) change nothing.
///
/// Every request to the read side must be answered exactly once by the corresponding `handle_*`, even if the call
/// fails.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reconciler {
    settings: Settings,
    pods: Pods,
    hints: Hints,
    schedule: ReadSchedule,
    reads: PodReads,
    relist: Relist,
    stream: (Stream, StreamCheck),
    announcements: Announcements,
    waiters: Waiters,
    probe: Probe,
    progress: Progress,
    out: Outbox,
    /// Pods whose reasons to be read may have changed.
    touched: BTreeSet<PodUid>,
    state_counts: StateCounts,
}

impl Reconciler {
    /// A reconciler of a node of which nothing is known, at `now`.
    ///
    /// # Errors
    /// If the settings are not valid.
    pub fn new(settings: Settings, now: Instant) -> Result<Self, InvalidSetting> {
        settings.validate()?;
        let stream = match settings.mode {
            Mode::Evented => StreamState::Starting { since: now },
            Mode::Polling => StreamState::Off,
        };
        let mut machine = Self {
            pods: Pods::default(),
            hints: Hints::default(),
            schedule: ReadSchedule::new(settings.inspections, settings.slot_time),
            reads: PodReads::default(),
            relist: Relist::new(settings.clone(), now),
            stream: (Stream::new(stream), StreamCheck::default()),
            announcements: Announcements::default(),
            waiters: Waiters::default(),
            probe: Probe::new(settings.probe_period, now),
            progress: Progress::default(),
            out: Outbox::default(),
            touched: BTreeSet::new(),
            state_counts: StateCounts::default(),
            settings,
        };
        machine.pump(now);
        Ok(machine)
    }

    /// The next output; `None` if there are no more.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// When [`handle_timeout`](Self::handle_timeout) must be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let (_, check) = &self.stream;
        [
            self.relist_due(),
            self.schedule.due(),
            self.probe.due(),
            check.due(),
            self.announcements.due(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// When the next relist is due: not while pods of the last one wait for a slot.
    fn relist_due(&self) -> Option<Instant> {
        self.relist.due().filter(|_| !self.reads.any_waits())
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.pump(now);
    }

    // ------------------------------------------------------------------------------------- the event stream

    /// The stream began or ended.
    pub fn handle_stream(&mut self, now: Instant, change: StreamChange) {
        // Subscribe, then relist: the relist shows what happened before the subscribe.
        if matches!(change, StreamChange::Subscribed { .. }) {
            self.relist.by(now);
        }
        let (stream, check) = &mut self.stream;
        if stream.since().is_some() || matches!(change, StreamChange::Subscribed { .. }) {
            self.relist.shorten();
        }
        check.stream_changed(now);
        stream.changed(change);
        self.pump(now);
    }

    /// What this version of the runtime reports is known.
    pub fn handle_profile(&mut self, now: Instant, profile: EventProfile) {
        self.stream.1.set_profile(profile);
        self.pump(now);
    }

    /// One event arrived.
    pub fn handle_event(&mut self, now: Instant, arrival: Arrival) {
        let (id, hint) = Hint::new(arrival, self.stream.0.since());
        self.hint(now, id, hint);
        self.pump(now);
    }

    /// Events arrived, joined by their subject. `lost`: how many events the map had no room for.
    pub fn handle_hints(&mut self, now: Instant, hints: BTreeMap<Id, Hint>, lost: u64) {
        if lost > 0 {
            self.out.counters.events_lost += lost;
            self.relist.by(now);
        }
        for (id, hint) in hints {
            self.hint(now, id, hint);
        }
        self.pump(now);
    }

    fn hint(&mut self, now: Instant, id: Id, mut hint: Hint) {
        let (stream, check) = &mut self.stream;
        stream.delivered();
        self.out.counters.events.add(hint.types);
        check.arrived(&id, hint.types, hint.last_arrival, now);
        if let Some(end) = hint.end()
            && let Some(left) = self.pods.learn_of_gone(&id, end, now).cloned()
        {
            self.announce_of_gone(now, &id, &left, &[LifecycleType::ContainerChanged]);
        }
        if hint.is_new
            && let Some(left) = self.pods.tell_of_gone(&id, now).cloned()
        {
            self.announce_of_gone(now, &id, &left, LIFE);
        }
        let published = self.pods.pod_of(&id).cloned();
        let pod = match &published {
            Some(uid) => Some(uid.clone()).filter(|uid| !self.pods.needs_relist(uid)),
            None => hint.pod.clone(),
        };
        self.schedule.restart(pod.as_ref());
        let Some(uid) = published else {
            self.hints.told(id, hint, pod.clone());
            return self.touched.extend(pod);
        };
        if let Some(end) = hint.end() {
            self.pods.end(&id, end, now);
        }
        if self.hints.get(&id).is_some() || !Hints::is_shown(&hint, self.pods.shown(&id)) {
            hint.shed_labels();
            self.hints.told(id, hint, pod);
        }
        self.publish(now, &uid, &Applied::default(), Source::Stream);
        self.touched.insert(uid);
    }

    // ----------------------------------------------------------------------------------------------- relists

    /// A relist has ended.
    pub fn handle_list(&mut self, now: Instant, list: List) {
        if self
            .relist
            .in_flight()
            .is_none_or(|(ticket, _)| ticket != list.ticket)
        {
            return;
        }
        self.out.counters.lists += 1;
        let outcome = list.rows.as_ref().map(|_| ()).map_err(Clone::clone);
        match list.rows {
            Ok(rows) => self.relisted(now, list.began, &rows),
            Err(error) => self.relist_failed(now, list.began, error),
        }
        for waiter in self.waiters.relisted(list.began) {
            let outcome = outcome.clone();
            self.out.push(Output::Listed { waiter, outcome });
        }
        self.pump(now);
    }

    fn relist_failed(&mut self, now: Instant, began: Instant, error: CallError) {
        self.out.counters.lists_failed += 1;
        self.relist.failed(now);
        self.heard(now, Some(&error));
        let uids: Vec<PodUid> = self.pods.uids().cloned().collect();
        for uid in uids.iter().filter(|uid| self.pods.needs_relist(uid)) {
            for waiter in self.waiters.failed(uid, began) {
                let answer = Err(error.clone());
                self.out.push(Output::Answer { waiter, answer });
            }
        }
        self.progress.list_error = Some(error);
    }

    fn relisted(&mut self, now: Instant, began: Instant, rows: &Rows) {
        self.relist.succeeded(began, now);
        self.probe.heard(now);
        self.probe.succeeded();
        let schedule = &self.schedule;
        let is_read = |uid: &PodUid| schedule.is_in_flight(uid);
        let (same, mut differ) = self.pods.sort_rows(rows, began, is_read, now);
        // Pods of which nothing is listed or published, but that somebody asks about, or that are being read.
        let is_listed = |uid: &PodUid, differ: &BTreeMap<PodUid, PodRows>| {
            same.binary_search(uid).is_ok() || differ.contains_key(uid)
        };
        for uid in schedule.wanted().chain(schedule.in_flight()) {
            if !is_listed(uid, &differ) {
                differ.insert(uid.clone(), PodRows::new(began, true));
            }
        }
        self.stream.0.relisted(began);
        self.begin_announcements(now, rows);
        let unread = differ.iter().map(|(uid, rows)| {
            let overlaps = self.schedule.overlaps_relist(uid);
            let unread = Unread {
                since: if overlaps { now } else { began },
                by_relist: overlaps && self.shows_unlabelled(rows),
            };
            (uid.clone(), unread)
        });
        self.progress.relisted(began, unread.collect());
        self.confirm(now, began, &same);
        for (uid, rows) in differ {
            let overlapped = self.schedule.overlaps_relist(&uid);
            if self.schedule.is_in_flight(&uid) {
                let at_hand = AtHand { rows, overlapped };
                self.reads.at_hand.insert(uid, at_hand);
            } else if overlapped {
                self.compare_overlapped(now, &uid, &rows);
            } else {
                self.rows_at_hand(now, uid, rows);
            }
        }
        self.relist.await_expected(self.stream.1.numbers().0);
    }

    /// These rows of a relist overlap those of a pod read that has ended, so they do not count. That read may have
    /// missed what they show.
    fn compare_overlapped(&mut self, now: Instant, uid: &PodUid, rows: &PodRows) {
        if self.pods.is_same(uid, rows) {
            self.progress.is_as_shown(uid);
        } else if self.shows_unlabelled(rows) {
            self.relist.by_hint(now);
        } else {
            self.schedule.read_again(Some(uid), LOOK_AGAIN, now);
        }
        self.touched.insert(uid.clone());
    }

    /// Whether the rows show an id that is not published and that no list of its pod shows.
    fn shows_unlabelled(&self, rows: &PodRows) -> bool {
        rows.rows.iter().any(|(id, row)| {
            let whole = row
                .whole
                .as_ref()
                .filter(|_| self.pods.record(id).is_none());
            whole.is_some_and(|row| row.identity.unlabelled)
        })
    }

    /// The first complete relist has ended: from now on changes are announced.
    fn begin_announcements(&mut self, now: Instant, rows: &Rows) {
        if self.announcements.has_begun() {
            return;
        }
        let rows = rows.states().map(|(id, state)| (id.clone(), state));
        let states = rows.chain(self.pods.states()).collect();
        self.announcements.begin(states);
        self.pods.forget_left();
        for uid in self.pods.uids().cloned().collect::<Vec<_>>() {
            self.announce(now, &uid, &Applied::default(), Source::Relist);
        }
    }

    /// Pods that a relist showed exactly as they are published.
    fn confirm(&mut self, now: Instant, began: Instant, same: &[PodUid]) {
        let overlaps = |uid: &&PodUid| self.schedule.overlaps_relist(uid);
        let confirmed = same.iter().filter(|uid| !overlaps(uid)).cloned();
        let confirmed: Vec<_> = confirmed.collect();
        for uid in &confirmed {
            self.pods.confirm(uid, began);
        }
        let pods = match confirmed.len() == self.pods.uids().count() {
            true => Confirmed::All,
            false => Confirmed::These(confirmed.clone()),
        };
        self.out.push(Output::Refresh { as_of: began, pods });
        for uid in &confirmed {
            self.progress.is_as_shown(uid);
            let shows_less = self.read_hints(now, Some(uid), began, |_| Absence::Proven);
            self.answer(uid, began, false);
            self.read_again_if(now, uid, shows_less || self.pods.is_denied(uid));
        }
    }

    /// A relist shows that a pod has changed: the statuses that are due are read, without another list.
    fn rows_at_hand(&mut self, now: Instant, uid: PodUid, rows: PodRows) {
        if self.due_statuses(&uid, &rows, false, now).is_empty() {
            let mut read = PodRead::new(now, false);
            read.look = Some(Look::new(rows));
            self.read_is_complete(now, &uid, read);
        } else {
            self.touched.insert(uid.clone());
            let overlapped = false;
            let at_hand = AtHand { rows, overlapped };
            self.reads.at_hand.insert(uid, at_hand);
        }
    }

    // --------------------------------------------------------------------------------------------- pod reads

    /// Starts the read of a pod: with the rows of a relist if they are at hand, else with a list of the pod.
    fn start_read(&mut self, now: Instant, uid: &PodUid) {
        let ticket = self.out.ticket();
        let mut read = PodRead::new(now, self.waiters.want_details(uid, now));
        // A waiter that asks for later rows has the pod listed, which shows all that these rows show.
        let is_too_old = |rows: &PodRows| {
            let after = self.waiters.due(uid);
            !self.pods.needs_relist(uid)
                && after.is_some_and(|after| after >= rows.as_of && after <= now)
        };
        let at_hand = self.reads.at_hand.get(uid);
        if at_hand.is_some_and(|at_hand| !is_too_old(&at_hand.rows))
            && let Some(at_hand) = self.reads.at_hand.remove(uid)
        {
            self.schedule.began(uid, ticket, false, now);
            read.look = Some(Look::new(at_hand.rows));
            self.reads.in_progress.insert(uid.clone(), read);
            self.read_statuses(now, uid, ticket);
        } else {
            self.schedule.began(uid, ticket, true, now);
            let deadline = read.time_left(self.settings.inspection_deadline, now);
            self.reads.in_progress.insert(uid.clone(), read);
            let uid = uid.clone();
            self.out.push(Output::ListPod {
                ticket,
                uid,
                deadline,
            });
        }
    }

    /// The lists of a pod have ended.
    pub fn handle_pod_list(&mut self, now: Instant, list: PodList) {
        let Some(uid) = self.schedule.pod(list.ticket).cloned() else {
            return;
        };
        self.heard(now, list.rows.as_ref().err());
        self.schedule.rows_answered(&uid);
        match list.rows {
            Ok(rows) => {
                let rows = self.pods.rows_of(&uid, rows, list.began);
                if let Some(read) = self.reads.in_progress.get_mut(&uid) {
                    read.look_at(rows);
                }
                self.read_statuses(now, &uid, list.ticket);
            }
            Err(error) => self.read_failed(now, &uid, list.began, &error),
        }
        self.pump(now);
    }

    /// Reads the statuses that are due, now that the rows are known.
    fn read_statuses(&mut self, now: Instant, uid: &PodUid, ticket: Ticket) {
        let Some(read) = self.reads.in_progress.get(uid) else {
            return;
        };
        let Some(look) = &read.look else { return };
        let ids = self.due_statuses(uid, &look.rows, read.all, now);
        if ids.is_empty() {
            return self.end_read(now, uid);
        }
        let deadline = read.time_left(self.settings.inspection_deadline, now);
        self.pods.asked(&ids, now);
        self.out.counters.statuses += ids.len() as u64;
        self.out.push(Output::ReadStatuses {
            ticket,
            ids,
            deadline,
        });
    }

    fn due_statuses(
        &self,
        uid: &PodUid,
        rows: &PodRows,
        all: bool,
        now: Instant,
    ) -> Vec<(Id, Kind)> {
        let own = |id: &Id| self.hints.get(id)?.own.as_ref();
        let deleted = |id: &Id| self.hints.deleted(id);
        let mut due = self.pods.due(uid, rows, own, deleted, all, now);
        if !rows.of_relist {
            // An event showed an id that no read has shown: NotFound proves that it is gone.
            for id in self.hints.subjects(Some(uid)) {
                if self.pods.shown(&id) == Shown::Never
                    && !rows.rows.contains_key(&id)
                    && let Some(kind) = self.hints.asks_status(&id, rows.as_of)
                {
                    due.push((id, kind));
                }
            }
        }
        due
    }

    /// Status calls have ended: those of a pod read, or one that was made by itself.
    pub fn handle_statuses(&mut self, now: Instant, statuses: Statuses) {
        for (_, answer) in &statuses.answers {
            self.heard(now, answer.as_ref().err());
        }
        if let Some(id) = self.probe.status_answered(statuses.ticket) {
            let answer = statuses
                .answers
                .into_iter()
                .next()
                .map(|(_, answer)| answer);
            self.status_alone(now, id, statuses.began, answer);
        } else if let Some(uid) = self.schedule.pod(statuses.ticket).cloned() {
            if let Some(read) = self.reads.in_progress.get_mut(&uid) {
                read.answered(statuses.answers);
            }
            self.end_read(now, &uid);
        }
        self.pump(now);
    }

    /// The rows of a pod could not be read: its last good view stays, with the error beside it.
    fn read_failed(&mut self, now: Instant, uid: &PodUid, began: Instant, error: &CallError) {
        self.reads.in_progress.remove(uid);
        self.schedule.ended(uid);
        self.out.counters.pod_reads += 1;
        self.out.counters.pod_reads_failed += 1;
        for waiter in self.waiters.failed(uid, began) {
            let answer = Err(error.clone());
            self.out.push(Output::Answer { waiter, answer });
        }
        self.pods.rows_failed(uid, error, now);
        self.publish(now, uid, &Applied::default(), Source::Inspection);
        self.touched.insert(uid.clone());
        match self.reads.at_hand.remove(uid) {
            Some(at_hand) if at_hand.overlapped => self.compare_overlapped(now, uid, &at_hand.rows),
            Some(at_hand) => self.rows_at_hand(now, uid.clone(), at_hand.rows),
            None => {}
        }
    }

    /// Rows and statuses of the pod were read.
    fn end_read(&mut self, now: Instant, uid: &PodUid) {
        self.schedule.ended(uid);
        self.out.counters.pod_reads += 1;
        if let Some(read) = self.reads.in_progress.remove(uid) {
            self.read_is_complete(now, uid, read);
        }
    }

    /// The end of every read of a pod that shows a change: what it shows is published and announced, and all that
    /// has waited for it goes on.
    fn read_is_complete(&mut self, now: Instant, uid: &PodUid, read: PodRead) {
        let Some(look) = &read.look else { return };
        let (as_of, of_relist) = (look.rows.as_of, look.rows.of_relist);
        let before = match self.pods.get(uid) {
            Some(pod) => pod.as_of,
            None => self.progress.swept,
        };
        let own = |id: &Id| self.hints.get(id)?.own.as_ref();
        let deleted = |id: &Id| self.hints.deleted(id);
        let mut applied = self
            .pods
            .apply(uid, &look.rows, &look.answers, own, deleted, now);
        self.out.counters.undone += applied.undone.len() as u64;
        for id in self.hints.subjects(Some(uid)) {
            if let Some(end) = self.hints.get(&id).and_then(Hint::end) {
                self.pods.end(&id, end, now);
            }
        }
        let source = if of_relist {
            Source::Relist
        } else {
            Source::Inspection
        };
        self.check_stream(now, before, &mut applied);
        self.publish(now, uid, &applied, source);
        let shows_less = self.read_hints(now, Some(uid), as_of, |id| look.absence(id));
        self.answer(uid, as_of, read.all);
        self.read_again_if(now, uid, shows_less || applied.disagrees);
        self.progress.read(uid, as_of, of_relist);
        // A relist ended meanwhile.
        match self.reads.at_hand.remove(uid) {
            Some(at_hand) if at_hand.overlapped => self.compare_overlapped(now, uid, &at_hand.rows),
            Some(at_hand) if at_hand.rows.as_of > as_of => {
                self.rows_at_hand(now, uid.clone(), at_hand.rows);
            }
            _ => {}
        }
    }

    /// Reads a pod again if the last read showed less than events had reported. Reads it no more if not.
    fn read_again_if(&mut self, now: Instant, uid: &PodUid, shows_less: bool) {
        if !shows_less {
            self.schedule.settled(Some(uid));
        } else if self
            .schedule
            .read_again(Some(uid), LOOK_AGAIN, now)
            .is_none()
        {
            self.hints.give_up(Some(uid));
        }
        self.touched.insert(uid.clone());
    }

    // --------------------------------------------------------------------- what a read means for the machines

    /// Hints that the read satisfies are forgotten. Ids that have lived and ended between two reads are
    /// announced. Returns whether the read showed less than events had reported.
    fn read_hints(
        &mut self,
        now: Instant,
        pod: Option<&PodUid>,
        as_of: Instant,
        absence: impl Fn(&Id) -> Absence,
    ) -> bool {
        if !self.announcements.has_begun() {
            return false;
        }
        let pods = &self.pods;
        let settled = self.hints.read(pod, as_of, |id| pods.shown(id), absence);
        for (id, hint) in settled.short_lives {
            self.announce_short_life(now, id, &hint);
        }
        if pod.is_none() && settled.shows_less {
            match self.schedule.read_again(None, LOOK_AGAIN, now) {
                Some(at) => self.relist.by_hint(at),
                None => self.hints.give_up(None),
            }
        }
        settled.shows_less
    }

    /// Tells the check of the stream what a read changed. `before`: as of when the view was that it changed.
    fn check_stream(&mut self, now: Instant, before: Option<Instant>, applied: &mut Applied) {
        let (stream, check) = &mut self.stream;
        if stream.reports(before) {
            for (id, change) in std::mem::take(&mut applied.changes) {
                check.changed(&id, change, now);
            }
        }
        for (id, _) in &applied.removed {
            check.left(id);
        }
    }

    /// Answers the waiters of a pod with its view.
    fn answer(&mut self, uid: &PodUid, as_of: Instant, details: bool) {
        for waiter in self.waiters.answered(uid, as_of, details) {
            let nothing =
                || PodView::new(Arc::new(PodStatus::nothing(uid.clone())), Some(as_of), None);
            let answer = Ok(self.pods.view(uid).unwrap_or_else(nothing));
            self.out.push(Output::Answer { waiter, answer });
        }
    }

    /// Writes the cache, then announces what has changed.
    fn publish(&mut self, now: Instant, uid: &PodUid, applied: &Applied, source: Source) {
        let Some((before, view)) = self.pods.publish(uid) else {
            return;
        };
        let status = view.status.clone();
        let is_new = before.is_none();
        if is_new && status.is_nothing() {
            return;
        }
        self.state_counts.recount(before.as_deref(), Some(&status));
        match view.as_of {
            Some(as_of) if status.is_nothing() => self.progress.emptied(uid.clone(), as_of),
            _ => self.progress.exists(uid),
        }
        let uid = uid.clone();
        self.out.push(Output::Publish {
            uid: uid.clone(),
            view,
        });
        let is_changed = before.is_some_and(|before| !Arc::ptr_eq(&before, &status));
        if !self.announce(now, &uid, applied, source) && is_changed {
            self.out
                .push(Output::Announce(pod_sync(now, &uid, &status, source)));
        }
    }

    /// Announces what has changed. Returns whether anything was announced, or will be.
    fn announce(&mut self, now: Instant, uid: &PodUid, applied: &Applied, source: Source) -> bool {
        if !self.announcements.has_begun() {
            return true;
        }
        let published = self.pods.get(uid);
        let names = published.map(|pod| (pod.namespace.clone(), pod.name.clone()));
        // The last id of the pod is gone, so only the removed record has its names.
        let mut removed = applied.removed.iter().map(|(_, record)| &record.identity);
        let of_removed =
            || removed.find_map(|left| Some((left.namespace.clone()?, left.pod_name.clone()?)));
        let (namespace, name) = names.or_else(of_removed).unwrap_or_default();
        let mut status = PodStatus::nothing(uid.clone());
        (status.namespace, status.name) = (namespace, name);
        let mut events = Vec::new();
        let mut records: Vec<_> = published.into_iter().flat_map(|pod| &pod.records).collect();
        records.sort_by_key(|(_, record)| record.kind());
        for (id, record) in records {
            let all = &mut self.announcements;
            let published = shown(record);
            let types = match applied.undone.contains(id) {
                true => all.undone(id, &published, now),
                false => all.published(id, &published, now),
            };
            events.extend(types.into_iter().map(|(what, initial)| {
                event(now, uid, &status, (id, record), what, source, initial)
            }));
        }
        for (id, record) in &applied.removed {
            let types = self.announcements.removed(id).into_iter();
            events.extend(types.map(|(what, initial)| {
                event(now, uid, &status, (id, record), what, source, initial)
            }));
        }
        for announced in &events {
            if let Some(subject) = announced.subject.as_ref()
                && announced.event == LifecycleType::ContainerDied
                && subject.kind == Kind::Container
                && subject.exit_code != Some(0)
                && !announced.initial
            {
                self.probe.exited_with_error(&subject.id, now);
            }
        }
        let is_announced = !events.is_empty() || self.any_waits(uid);
        events
            .into_iter()
            .for_each(|event| self.out.push(Output::Announce(event)));
        is_announced
    }

    /// Whether a Died of the pod waits for its exit code.
    fn any_waits(&self, uid: &PodUid) -> bool {
        let records = self
            .pods
            .get(uid)
            .into_iter()
            .flat_map(|pod| pod.records.keys());
        records.into_iter().any(|id| self.announcements.waits(id))
    }

    /// An id has lived and ended between two reads. Events that are older than the stream announce nothing:
    /// they may be replayed.
    fn announce_short_life(&mut self, now: Instant, id: Id, hint: &Hint) {
        let Some(own) = &hint.own else { return };
        let Some(uid) = own.identity.pod.clone() else {
            return;
        };
        let mut record = Record::new(own, true);
        record.see(ReportedState::Exited, now, now);
        let left = Left {
            uid,
            record,
            is_untold: !hint.is_new,
        };
        if hint.is_new {
            self.announce_of_gone(now, &id, &left, LIFE);
        }
        self.pods.never_shown(id, Some(left), now);
    }

    /// Announces something of an id that is gone.
    fn announce_of_gone(&mut self, now: Instant, id: &Id, left: &Left, what: &[LifecycleType]) {
        let Left { uid, record, .. } = left;
        let mut names = PodStatus::nothing(uid.clone());
        names.namespace = record.identity.namespace.clone().unwrap_or_default();
        names.name = record.identity.pod_name.clone().unwrap_or_default();
        for &what in what {
            let event = event(now, uid, &names, (id, record), what, Source::Stream, false);
            self.out.push(Output::Announce(event));
        }
    }

    // ------------------------------------------------------------------------------------ probes and failures

    /// A call has ended.
    fn heard(&mut self, now: Instant, error: Option<&CallError>) {
        if error.is_none_or(|error| !is_silence(error.kind)) {
            self.probe.heard(now);
        }
        match error {
            None if self.probe.succeeded() => self.relist.after_outage(now),
            Some(error) if error.kind != CallErrorKind::NotFound => self.probe.doubt(),
            _ => {}
        }
    }

    fn start_probes(&mut self, now: Instant) {
        while let Some(due) = self.probe.next(now) {
            match due {
                Due::Probe(next) => {
                    self.relist.join_probe(now, next);
                    if self.probe.is_busy() {
                        continue;
                    }
                    self.out.counters.probes += 1;
                    match self.pods.least_recently_asked(now) {
                        Some((id, kind)) => self.ask_status(now, id, kind),
                        None => self.ask_version(now),
                    }
                }
                Due::Status(id) => {
                    if let Some(kind) = self.pods.record(&id).map(Record::kind) {
                        self.ask_status(now, id, kind);
                    }
                }
                Due::Version => self.ask_version(now),
            }
        }
    }

    fn ask_status(&mut self, now: Instant, id: Id, kind: Kind) {
        let ticket = self.out.ticket();
        let ids = vec![(id.clone(), kind)];
        self.pods.asked(&ids, now);
        self.probe.status_asked(ticket, id, now);
        self.out.counters.statuses += 1;
        self.out.push(Output::ReadStatuses {
            ticket,
            ids,
            deadline: self.settings.inspection_deadline,
        });
    }

    fn ask_version(&mut self, now: Instant) {
        let ticket = self.out.ticket();
        self.probe.version_asked(ticket, now);
        self.out.push(Output::Version {
            ticket,
            deadline: VERSION_DEADLINE,
        });
    }

    /// A status that was read by itself shows details and an end. If it shows anything else, the pod is read.
    fn status_alone(
        &mut self,
        now: Instant,
        id: Id,
        began: Instant,
        answer: Option<Result<Report, CallError>>,
    ) {
        let Some(uid) = self.pods.pod_of(&id).cloned() else {
            return;
        };
        match answer {
            Some(Ok(status)) => {
                let before = self.pods.get(&uid).and_then(|pod| pod.as_of);
                let (differs, mut applied) = self.pods.learn_alone(&id, &status, began, now);
                if differs {
                    self.schedule.read_again(Some(&uid), LOOK_AGAIN, now);
                }
                self.check_stream(now, before, &mut applied);
                self.publish(now, &uid, &applied, Source::Inspection);
            }
            // A read of the pod decides, and asks for the status again.
            Some(Err(error)) if error.kind == CallErrorKind::NotFound => {
                self.pods.retry_now(&id, now);
            }
            Some(Err(error)) => {
                self.pods.status_failed(&id, &error, now);
                self.publish(now, &uid, &Applied::default(), Source::Inspection);
                if is_silence(error.kind) {
                    self.probe.suspect(id);
                }
            }
            None => {}
        }
        self.touched.insert(uid);
    }

    /// `Version` has ended. If the runtime answers, only the pods of the suspects hang: reading them shows that in
    /// health reports.
    pub fn handle_version(&mut self, now: Instant, version: Version) {
        let error = version.outcome.err();
        let kind = error.as_ref().map(|error| error.kind);
        let had_failed = self.probe.version_failed();
        if let Some(suspects) = self.probe.version_answered(version.ticket, kind) {
            if kind.is_none_or(|kind| !is_silence(kind)) {
                self.probe.heard(now);
            }
            if had_failed && kind.is_none() {
                self.relist.after_outage(now);
            }
            for uid in self.pods.judge(kind.is_none(), now) {
                self.publish(now, &uid, &Applied::default(), Source::Inspection);
                self.touched.insert(uid);
            }
            for id in suspects {
                self.pods.retry_now(&id, now);
                self.touched.extend(self.pods.pod_of(&id).cloned());
            }
        }
        self.pump(now);
    }

    // ----------------------------------------------------------------------------------------------- requests

    /// Waits for a view of the pod whose rows were requested later than `after`.
    pub fn wait(&mut self, now: Instant, waiter: WaiterId, uid: &PodUid, after: Instant) {
        match self.newer_view(uid, after) {
            Some(view) => self.out.push(Output::Answer {
                waiter,
                answer: Ok(view),
            }),
            None => self.enter(now, waiter, uid, after, false),
        }
    }

    /// Waits for a view whose details, too, were requested later than `after`.
    pub fn wait_for_details(
        &mut self,
        now: Instant,
        waiter: WaiterId,
        uid: &PodUid,
        after: Instant,
    ) {
        match self
            .newer_view(uid, after)
            .filter(|view| view.inspected > Some(after))
        {
            Some(view) => self.out.push(Output::Answer {
                waiter,
                answer: Ok(view),
            }),
            None => self.enter(now, waiter, uid, after, true),
        }
    }

    fn enter(
        &mut self,
        now: Instant,
        waiter: WaiterId,
        uid: &PodUid,
        after: Instant,
        details: bool,
    ) {
        self.waiters.wait(uid, waiter, after, details);
        self.touched.insert(uid.clone());
        self.pump(now);
    }

    /// The published view, if it is newer than that.
    fn newer_view(&mut self, uid: &PodUid, after: Instant) -> Option<PodView> {
        if self.pods.get(uid).is_some() {
            return self.pods.view(uid).filter(|view| view.as_of > Some(after));
        }
        let swept = self.progress.swept.filter(|&swept| swept > after)?;
        let nothing = Arc::new(PodStatus::nothing(uid.clone()));
        Some(PodView::new(nothing, Some(swept), None))
    }

    /// Reads the pod now.
    pub fn relist(&mut self, now: Instant, waiter: WaiterId, uid: &PodUid) {
        self.enter(now, waiter, uid, now, false);
    }

    /// Reads the pod and all its statuses now.
    pub fn reinspect(&mut self, now: Instant, waiter: WaiterId, uid: &PodUid) {
        self.enter(now, waiter, uid, now, true);
    }

    /// Lists the node now.
    pub fn relist_now(&mut self, now: Instant, waiter: WaiterId) {
        self.waiters.wait_for_relist(waiter, now);
        self.relist.by(now);
        self.pump(now);
    }

    /// Nobody waits for that answer any more.
    pub fn cancel(&mut self, waiter: WaiterId) {
        if let Some(uid) = self.waiters.cancel(waiter) {
            self.touched.insert(uid);
        }
    }

    // ----------------------------------------------------------------------------------- what must be read next

    /// Starts the reads that are due, and all else that time brings.
    fn pump(&mut self, now: Instant) {
        self.judge_stream(now);
        for uid in std::mem::take(&mut self.touched) {
            self.weigh(&uid);
        }
        self.start_probes(now);
        for id in self.announcements.overdue(now) {
            if let Some(uid) = self.pods.pod_of(&id).cloned() {
                self.announce(now, &uid, &Applied::default(), Source::Inspection);
            }
        }
        let (pods, schedule) = (&self.pods, &self.schedule);
        let relist = self.relist.in_flight();
        let may_come =
            |at| schedule.is_read_since(None, at) || relist.is_some_and(|(_, since)| since <= at);
        self.hints.satisfy(None, |id| pods.shown(id), may_come);
        if let Some(at) = self.hints.due(None) {
            self.relist.by_hint(at);
        }
        self.schedule.free_slots(now);
        // One relist serves a crowd of pods.
        let is_crowd = self.schedule.crowd(now) > CROWD && !self.relist.is_failing();
        self.schedule.hold_crowd(is_crowd);
        if is_crowd {
            self.relist.by_hint(now);
        }
        while let Some(uid) = self.schedule.next(now) {
            self.start_read(now, &uid);
        }
        if self.relist_due().is_some_and(|due| due <= now) {
            let ticket = self.out.ticket();
            let deadline = self.relist.start(ticket, now);
            self.schedule.relist_began();
            let known = self.pods.known_ids();
            self.out.push(Output::List {
                ticket,
                deadline,
                known,
            });
        }
        if let Some(relist) = self.progress.settled() {
            if relist.is_first {
                self.announcements.synced();
                self.out.push(Output::Synced);
            }
            self.read_hints(now, None, relist.as_of, |_| Absence::Proven);
            let pods = &self.pods;
            let is_published = |id: &Id| pods.record(id).is_some();
            self.stream.1.settled(relist.as_of, is_published);
            self.out.push(Output::ListApplied {
                as_of: relist.as_of,
                gone: relist.gone,
            });
        }
        if !self.touched.is_empty() {
            self.pump(now);
        }
    }

    /// Weighs the reasons to read a pod.
    fn weigh(&mut self, uid: &PodUid) {
        let (pods, schedule) = (&self.pods, &self.schedule);
        let may_come = |at| schedule.is_read_since(Some(uid), at);
        self.hints.satisfy(Some(uid), |id| pods.shown(id), may_come);
        let backoff = self.pods.backoff(uid);
        let waits = |at: Option<Instant>| at.max(at.and(backoff));
        let at_hand = self
            .reads
            .at_hand
            .get(uid)
            .map(|at_hand| at_hand.rows.as_of);
        let has_begun = self.announcements.has_begun();
        let mut reasons = [
            (Reason::Waiter, self.waiters.due(uid)),
            (Reason::Rows, at_hand),
            (
                Reason::Hint,
                waits(self.hints.due(Some(uid))).filter(|_| has_begun),
            ),
            (Reason::Again, waits(self.schedule.again_at(Some(uid)))),
            (Reason::Retry, self.pods.retry_at(uid)),
        ];
        if self.pods.needs_relist(uid) {
            for (reason, at) in &mut reasons {
                match (*reason, at.take()) {
                    (Reason::Rows, rows) => *at = rows,
                    (Reason::Waiter, Some(at)) => self.relist.by(at),
                    (_, Some(at)) => self.relist.by_hint(at),
                    (_, None) => {}
                }
            }
        }
        for (reason, at) in reasons {
            self.schedule.set(uid, reason, at);
        }
    }

    /// Counts missed events, and decides what they and the relists mean for the relist period.
    fn judge_stream(&mut self, now: Instant) {
        let (stream, check) = &mut self.stream;
        let missed = check.overdue(now);
        for &event in &missed {
            self.out.counters.missed.add(event);
        }
        if !missed.is_empty() {
            self.relist.shorten();
        }
        if stream.since().is_some() && check.is_dead(now) {
            self.out.counters.streams_renewed += 1;
            self.out.push(Output::Resubscribe);
        }
        let trust = Trust {
            is_good: stream.is_confirmed(now) && !check.has_missed() && !check.loss(now).is_lossy(),
            is_proven: stream.is_proven(),
        };
        self.relist.decide(check.numbers().1, trust);
    }

    // ------------------------------------------------------------------------------------------------ getters

    /// The state of health.
    pub fn health(&self, now: Instant) -> Health {
        let (stream, check) = &self.stream;
        let slow = self.schedule.slow();
        let failing = self.failing_pods();
        let named = |uids: &mut dyn Iterator<Item = &PodUid>| {
            uids.take(Health::NAMED)
                .map(|uid| self.pod_name(uid))
                .collect()
        };
        let pod_read = self.schedule.oldest();
        let pod_read = pod_read.map(|since| since.after(self.settings.inspection_deadline));
        let due = [
            self.poll_timeout(),
            self.relist.deadline(),
            self.probe.deadline(self.settings.inspection_deadline),
            pod_read,
        ];
        Health {
            due: due.into_iter().flatten().min().unwrap_or(now),
            last_list: self.relist.complete(),
            list_in_flight: self.relist.in_flight().map(|(_, since)| since),
            list_error: self.progress.list_error.clone(),
            silent_since: self.probe.silent_since(),
            period: self.relist.period(),
            stream: stream.state(now),
            behind_since: self.hints.oldest().filter(|&due| due < now),
            overdue: slow.len(),
            oldest_overdue: slow.first().map(|&(_, _, since)| since),
            overdue_pods: named(&mut slow.iter().map(|&(_, uid, _)| uid)),
            failing: failing.len(),
            failing_pods: named(&mut failing.into_iter()),
            unacknowledged: Vec::new(),
            missed: self.out.counters.missed.total(),
            loss: check.loss(now),
            splits_events_between_subscribers: check.profile().splits_events_between_subscribers,
            synced: self.progress.is_synced(),
            unready_after: self.settings.unready_after,
        }
    }

    /// The reads of pods that take long, oldest first: their ticket, pod and begin.
    pub fn slow_reads(&self) -> Vec<(Ticket, &PodUid, Instant)> {
        self.schedule.slow()
    }

    /// Pods that cannot be read, or of which a status cannot be read. None while the runtime as a whole fails.
    pub fn failing_pods(&self) -> BTreeSet<&PodUid> {
        match self.probe.version_failed() {
            false => self.pods.failing(),
            true => BTreeSet::new(),
        }
    }

    /// Whether a read of the pod is in flight or wanted.
    pub fn owes_read(&self, uid: &PodUid) -> bool {
        self.schedule.is_in_flight(uid) || self.schedule.is_wanted(uid)
    }

    /// Whether calls to the runtime as a whole fail.
    pub fn is_runtime_failing(&self) -> bool {
        self.probe.version_failed()
    }

    /// Whether the id is published as ended.
    pub fn has_died(&self, id: &Id) -> bool {
        self.pods.record(id).is_some_and(Record::has_ended)
    }

    /// The names of a pod.
    pub fn pod_name(&self, uid: &PodUid) -> PodName {
        let pod = self.pods.get(uid);
        PodName {
            uid: uid.clone(),
            namespace: pod.map(|pod| pod.namespace.clone()).unwrap_or_default(),
            name: pod.map(|pod| pod.name.clone()).unwrap_or_default(),
        }
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        Counters {
            streams_lost: self.stream.0.lost,
            ..self.out.counters.clone()
        }
    }

    /// Counts of pods and containers by state.
    pub const fn state_counts(&self) -> StateCounts {
        self.state_counts
    }

    /// Whether that is the ticket of the relist in flight.
    pub fn lists(&self, ticket: Ticket) -> bool {
        self.relist
            .in_flight()
            .is_some_and(|(own, _)| own == ticket)
    }

    /// Whether no call is in flight and no read is waiting for a slot.
    pub fn is_idle(&self) -> bool {
        self.schedule.is_idle() && self.relist.in_flight().is_none() && !self.probe.is_busy()
    }
}

/// What is announced of an id that no read has shown.
const LIFE: &[LifecycleType] = &[
    LifecycleType::ContainerStarted,
    LifecycleType::ContainerDied,
    LifecycleType::ContainerRemoved,
];

/// What is published of a record.
fn shown(record: &Record) -> Published {
    Published {
        state: record.state,
        unknown: record.unknown,
        was_started: record.kind() == Kind::Container && record.started_at().is_some(),
        exit_code: record.exit_code(),
        reason: record.reason(),
        code_is_due: record.code_is_due(),
    }
}

/// A lifecycle event about an id of the pod with that status.
fn event(
    now: Instant,
    uid: &PodUid,
    pod: &PodStatus,
    (id, record): (&Id, &Record),
    what: LifecycleType,
    source: Source,
    initial: bool,
) -> PodLifecycleEvent {
    let is_start = what == LifecycleType::ContainerStarted;
    PodLifecycleEvent {
        event: what,
        uid: uid.clone(),
        namespace: pod.namespace.clone(),
        pod_name: pod.name.clone(),
        subject: Some(Subject {
            id: id.clone(),
            kind: record.kind(),
            name: record.identity.name.clone().unwrap_or_default(),
            attempt: record.identity.attempt,
            exit_code: record.exit_code().filter(|_| !is_start),
            reason: if is_start {
                Default::default()
            } else {
                record.reason()
            },
        }),
        source,
        initial,
        detected: now,
        happened_at: match what {
            LifecycleType::ContainerStarted => record.started_at(),
            LifecycleType::ContainerDied => record.finished_at(),
            _ => None,
        },
    }
}

fn pod_sync(now: Instant, uid: &PodUid, pod: &PodStatus, source: Source) -> PodLifecycleEvent {
    PodLifecycleEvent {
        event: LifecycleType::PodSync,
        uid: uid.clone(),
        namespace: pod.namespace.clone(),
        pod_name: pod.name.clone(),
        subject: None,
        source,
        initial: false,
        detected: now,
        happened_at: None,
    }
}
