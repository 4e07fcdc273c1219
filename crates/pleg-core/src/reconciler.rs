//! The reconciler: passes inputs and results between the state machines.
//!
//! Read this file from top to bottom. [`handle_hints`](Reconciler::handle_hints) takes what the event stream reports,
//! [`handle_list`](Reconciler::handle_list) the result of a relist. [`handle_pod_list`](Reconciler::handle_pod_list) and
//! [`handle_statuses`](Reconciler::handle_statuses) take the two results of a pod read. After each input,
//! [`pump`](Reconciler::pump) starts all due calls. `publishing.rs` applies and publishes reads, `announcing.rs`
//! announces changes, `probing.rs` makes single status and `Version` calls, `requests.rs` takes requests of consumers.

use std::collections::{BTreeMap, BTreeSet};

use crate::announcements::Announcements;
use crate::constants::CROWD;
use crate::hints::Hints;
use crate::look_again::LookAgain;
use crate::outage::Outage;
use crate::output::{Outbox, Output};
use crate::pod_read::{PodRead, PodReads};
use crate::pods::{Applied, PodRows, Pods, Sorted, rows_of};
use crate::probe::Probe;
use crate::progress::{Progress, SettledBy};
use crate::read_schedule::{ReadSchedule, Reasons};
use crate::relist::{Relist, StreamQuality};
use crate::stream::{Stream, StreamState};
use crate::stream_check::StreamCheck;
use crate::types::{
    CallError, EventProfile, Hint, Id, Instant, InvalidSetting, List, Mode, PodList, PodUid,
    Report, Rows, Settings, Source, Statuses, StreamChange, Ticket, Version,
};
use crate::waiters::Waiters;

/// The pod lifecycle event generator as a deterministic state machine. Observations go in; cache writes, announcements,
/// answers and requests to the read side come out. It reads no clock and does no I/O. Equal inputs give equal outputs.
///
/// Its methods are of four kinds:
///
/// * `handle_*` take an input: an observation of the stream or of the read side, or the passing of time. Instants must
///   not decrease, and a read must begin later than the input that caused it: otherwise it answers no waiter.
/// * requests ([`wait`](Self::wait), [`relist_now`](Self::relist_now), …) are inputs of consumers.
/// * [`poll_output`](Self::poll_output) and [`poll_timeout`](Self::poll_timeout) return what the driver must do. After
///   every input the driver takes outputs, in order, until there are none. When the instant of `poll_timeout` comes, it
///   calls [`handle_timeout`](Self::handle_timeout).
/// * getters ([`health`](Self::health), [`counters`](Self::counters)) change nothing.
///
/// The driver must answer every request to the read side exactly once, through its `handle_*`, even if the call fails.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reconciler {
    pub(crate) pods: Pods,
    pub(crate) hints: Hints,
    pub(crate) schedule: ReadSchedule,
    pub(crate) look_again: LookAgain,
    pub(crate) reads: PodReads,
    pub(crate) relist: Relist,
    pub(crate) progress: Progress,
    pub(crate) stream: Stream,
    pub(crate) stream_check: StreamCheck,
    pub(crate) announcements: Announcements,
    pub(crate) waiters: Waiters,
    pub(crate) probe: Probe,
    pub(crate) outage: Outage,
    pub(crate) out: Outbox,
}

impl Reconciler {
    /// A reconciler, created at `now`, that knows nothing of its node yet.
    ///
    /// # Errors
    /// If the settings are not valid.
    pub fn new(settings: Settings, now: Instant) -> Result<Self, InvalidSetting> {
        settings.validate()?;
        let stream = match settings.mode {
            Mode::Auto | Mode::Evented => StreamState::Starting { since: now },
            Mode::Polling => StreamState::Off,
        };
        let mut machine = Self {
            pods: Pods::default(),
            hints: Hints::default(),
            schedule: ReadSchedule::new(settings.inspections, settings.slot_time),
            look_again: LookAgain::default(),
            reads: PodReads::new(settings.inspection_deadline),
            probe: Probe::new(settings.probe_period, now),
            relist: Relist::new(settings, now),
            progress: Progress::default(),
            stream: Stream::new(stream),
            stream_check: StreamCheck::default(),
            announcements: Announcements::default(),
            waiters: Waiters::default(),
            outage: Outage::default(),
            out: Outbox::default(),
        };
        machine.pump(now);
        Ok(machine)
    }

    /// The next output; `None` if there are no more.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.pop()
    }

    /// The instant at which the driver must call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = [
            self.relist_due(),
            self.schedule.due(),
            Some(self.probe.due()),
            self.outage.due(),
            self.stream_check.due(),
            self.announcements.due(),
        ];
        due.into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.pump(now);
    }

    // --------------------------------------------------------------------------------------- the event stream

    /// The stream began or ended.
    pub fn handle_stream(&mut self, now: Instant, change: StreamChange) {
        let begins = matches!(change, StreamChange::Subscribed { .. });
        // Subscribe, then relist: the relist shows what happened before the subscribe call.
        if begins {
            self.relist.by(now);
        }
        if begins || self.stream.since().is_some() {
            self.relist.shorten();
        }
        self.stream_check.stream_changed();
        self.stream.changed(change);
        self.pump(now);
    }

    /// Sets the profile of the runtime's events, once the driver knows it.
    pub fn handle_profile(&mut self, now: Instant, profile: EventProfile) {
        self.stream_check.set_profile(profile);
        self.pump(now);
    }

    /// Events arrived, merged into one hint per id. `lost`: the number of events that the full `HintMap` dropped.
    pub fn handle_hints(&mut self, now: Instant, hints: BTreeMap<Id, Hint>, lost: u64) {
        let before = self.out.counters.events_lost;
        self.out.counters.events_lost += lost;
        let mut ended = BTreeSet::new();
        for (id, hint) in hints {
            ended.extend(self.take_hint(now, id, hint));
        }
        for uid in ended {
            self.publish(now, &uid, &Applied::default(), Source::Stream);
        }
        // A relist shows the changes that the dropped events reported.
        if self.out.counters.events_lost > before {
            self.relist.by(now);
        }
        self.pump(now);
    }

    /// Takes the merged events about one id. If they show the end of a published id, returns its pod, to be published.
    fn take_hint(&mut self, now: Instant, id: Id, mut hint: Hint) -> Option<PodUid> {
        self.stream.delivered();
        let last = hint.last_arrival;
        let mut has_room = self.stream_check.arrived(&id, hint.types, last, now);
        self.announce_late(now, &id, &hint);
        let published = self.pods.pod_of(&id).cloned();
        if let Some(uid) = &published {
            hint.pod = Some(uid.clone()).filter(|uid| !self.pods.needs_relist(uid));
        }
        let pod = hint.pod.clone();
        let ended = published.clone().filter(|_| hint.end().is_some());
        if let (Some(uid), Some(end)) = (&ended, hint.end()) {
            self.end(now, uid, &id, end);
        }
        let waits = self.hints.get(&id).is_some();
        if waits || !Hints::is_shown(&hint, self.pods.shown(&id)) || published.is_none() {
            has_room &= self.hints.add(id.clone(), hint);
        }
        // If an earlier hint of the id waits, reads the pod of the merged hint: the events may name different pods.
        let joined = self.hints.pod_of(&id).filter(|_| waits);
        let pod = joined.cloned().or(pod);
        self.look_again.restart(pod.as_ref());
        match pod.or(published) {
            Some(uid) => self.schedule.touch(&uid),
            None => self.satisfy(&[id]),
        }
        self.out.counters.events_lost += u64::from(!has_room);
        ended
    }

    /// An event shows that a published id has ended.
    pub(crate) fn end(&mut self, now: Instant, uid: &PodUid, id: &Id, end: &Report) {
        let before = self.pods.get(uid).and_then(|pod| pod.as_of);
        if self.pods.end(id, end, now) && self.stream.reports(before) {
            self.stream_check.reported(now);
        }
    }

    // ----------------------------------------------------------------------------------------------- relists

    /// The instant of the next relist; `None` while pods of the previous relist wait for a slot.
    fn relist_due(&self) -> Option<Instant> {
        self.relist.due().filter(|_| !self.reads.any_waits())
    }

    fn start_relist(&mut self, now: Instant) {
        let ticket = self.out.ticket();
        let deadline = self.relist.start(ticket, now);
        self.outage.began(ticket, now);
        self.schedule.relist_began();
        let known = self.pods.known_ids();
        self.out.push(Output::List {
            ticket,
            deadline,
            known,
        });
    }

    /// A relist has ended.
    pub fn handle_list(&mut self, now: Instant, list: List) {
        let error = list.rows.as_ref().err().cloned();
        self.out.counters.lists += 1;
        // Not `call_ended`, which relists after an outage of the runtime: if this relist ends the outage, it suffices.
        self.outage.ended(list.ticket, error.as_ref());
        match list.rows {
            Ok(rows) => self.relisted(now, list.began, &rows),
            Err(error) => self.relist_failed(now, list.began, error),
        }
        for waiter in self.waiters.relisted(list.began) {
            let outcome = error.clone().map_or(Ok(()), Err);
            self.out.push(Output::Listed { waiter, outcome });
        }
        self.pump(now);
    }

    fn relist_failed(&mut self, now: Instant, began: Instant, error: CallError) {
        self.out.counters.lists_failed += 1;
        // Sends this relist's error to callers that wait for pods whose lists lack some ids: only relists read them.
        let waited = self.waiters.pods();
        let by_relist = waited.filter(|uid| self.pods.needs_relist(uid));
        for uid in by_relist.cloned().collect::<Vec<_>>() {
            self.refuse(&uid, began, &error);
        }
        self.relist.failed(error, now);
    }

    fn relisted(&mut self, now: Instant, began: Instant, rows: &Rows) {
        self.relist.succeeded(began, now);
        self.stream.relisted(began);
        self.pods.gone.expire(now);
        // If a pod is being read or a waiter wants its details, takes its rows as if they had changed (in `differ`).
        let (schedule, waiters) = (&self.schedule, &self.waiters);
        let is_read = |uid: &PodUid| schedule.is_in_flight(uid) || waiters.want_details(uid, began);
        let mut sorted = Sorted::new(rows, &mut self.pods, began, is_read, now);
        for uid in self.schedule.concerned().chain(self.progress.pending()) {
            sorted.add_absent(uid, began);
        }
        self.publish_moves(now);
        // Moves each hint to the pod whose rows have its id: in the rows of the pod that events named, it seems gone.
        for (uid, rows) in &sorted.differ {
            rows.rows.keys().for_each(|id| self.hints.belongs(id, uid));
        }
        self.begin_announcements(now, rows);
        let pending = sorted.differ.iter().map(|(uid, rows)| {
            let overlaps = self.schedule.overlaps_relist(uid);
            let by = SettledBy {
                since: if overlaps { now } else { began },
                relist: self.pods.is_unlabelled(uid, rows),
            };
            (uid.clone(), by)
        });
        self.progress.relisted(began, pending.collect());
        self.confirm(now, began, &sorted);
        for (uid, rows) in sorted.differ {
            self.take_relist_rows(now, uid, rows);
        }
        self.relist.await_expected(self.stream_check.last_number());
    }

    // --------------------------------------------------------------------------------------------- pod reads

    /// Starts the read of a pod: with the rows of a relist if they are at hand, otherwise with a list of the pod.
    fn start_read(&mut self, now: Instant, uid: &PodUid) {
        let ticket = self.out.ticket();
        let all = self.waiters.want_details(uid, now);
        let rows = self.take_rows_at_hand(uid, now);
        let lists = rows.is_none();
        self.schedule.began(uid, lists, now);
        self.reads.begin(uid, ticket, PodRead::new(now, all, rows));
        if !lists {
            return self.read_statuses(now, ticket);
        }
        self.outage.began(ticket, now);
        self.out.push(Output::ListPod {
            ticket,
            uid: uid.clone(),
            deadline: self.reads.deadline(),
        });
    }

    /// Takes the relist rows of the pod, unless a waiter needs later rows: then the read lists the pod instead.
    fn take_rows_at_hand(&mut self, uid: &PodUid, now: Instant) -> Option<PodRows> {
        let rows = &self.reads.at_hand(uid)?.rows;
        let waiter = self.waiters.due(uid);
        let needs_later = waiter.is_some_and(|at| at >= rows.as_of && at <= now);
        let is_listable = !self.pods.needs_relist(uid) && !self.pods.is_unlabelled(uid, rows);
        if needs_later && is_listable {
            return None;
        }
        Some(self.reads.take_at_hand(uid)?.rows)
    }

    /// The lists of a pod have ended.
    pub fn handle_pod_list(&mut self, now: Instant, list: PodList) {
        let Some((uid, read)) = self.reads.get_mut(list.ticket) else {
            return;
        };
        self.schedule.rows_answered(uid);
        match list.rows {
            Ok(rows) => {
                read.rows = Some(rows_of(uid, rows, &self.pods, list.began));
                self.call_ended(now, list.ticket, None);
                self.read_statuses(now, list.ticket);
            }
            Err(error) => {
                self.call_ended(now, list.ticket, Some(&error));
                self.pod_list_failed(now, list.ticket, list.began, &error);
            }
        }
        self.pump(now);
    }

    /// Requests the statuses that complete the rows.
    fn read_statuses(&mut self, now: Instant, ticket: Ticket) {
        let Some((uid, read)) = self.reads.get_mut(ticket) else {
            return;
        };
        let (uid, all) = (uid.clone(), read.all);
        let Some(rows) = read.rows.take() else { return };
        let ids = self.statuses_due(&uid, &rows, all, now);
        if let Some((_, read)) = self.reads.get_mut(ticket) {
            read.rows = Some(rows);
        }
        if ids.is_empty() {
            return self.end_read(now, ticket);
        }
        let deadline = self.reads.time_left(ticket, now);
        self.request_statuses(now, ticket, ids, deadline);
    }

    /// The status calls of a pod read, or a single status call, have ended.
    pub fn handle_statuses(&mut self, now: Instant, statuses: Statuses) {
        for (_, answer) in &statuses.answers {
            self.call_ended(now, statuses.ticket, answer.as_ref().err());
        }
        if let Some(id) = self.probe.ended(statuses.ticket) {
            if let Some((_, answer)) = statuses.answers.into_iter().next() {
                self.take_single_status(now, id, statuses.began, answer);
            }
        } else if let Some((_, read)) = self.reads.get_mut(statuses.ticket) {
            read.answers.extend(statuses.answers);
            self.end_read(now, statuses.ticket);
        }
        self.pump(now);
    }

    /// Rows and statuses of the pod were read.
    fn end_read(&mut self, now: Instant, ticket: Ticket) {
        if let Some((uid, read)) = self.reads.end(ticket) {
            self.schedule.ended(&uid);
            self.out.counters.pod_reads += 1;
            self.apply_read(now, &uid, read);
        }
    }

    /// The list of the pod failed: the pod's last good view stays, with the error added.
    fn pod_list_failed(&mut self, now: Instant, ticket: Ticket, began: Instant, error: &CallError) {
        let Some((uid, _)) = self.reads.end(ticket) else {
            return;
        };
        self.schedule.ended(&uid);
        self.out.counters.pod_reads += 1;
        self.out.counters.pod_reads_failed += 1;
        self.refuse(&uid, began, error);
        let outage = self.outage.excuses(now);
        self.pods.list_failed(&uid, error, outage, now);
        self.publish(now, &uid, &Applied::default(), Source::Inspection);
        self.schedule.touch(&uid);
        if let Some(at_hand) = self.reads.take_at_hand(&uid) {
            self.apply_at_hand(now, uid, at_hand);
        }
    }

    /// `Version` has ended.
    pub fn handle_version(&mut self, now: Instant, version: Version) {
        self.version_ended(now, version);
        self.pump(now);
    }

    // ----------------------------------------------------------------------------------- what must be done next

    /// Starts all calls and announcements that are due.
    pub(crate) fn pump(&mut self, now: Instant) {
        self.judge_stream(now);
        self.announce_without_code(now);
        self.start_probes(now);
        self.schedule.free_slots(now);
        loop {
            while let Some(uid) = self.schedule.take_touched() {
                self.weigh(&uid);
            }
            if let Some(at) = self.hints.relist_due() {
                self.relist.by_hint(at);
            }
            // If many pods wait, one relist replaces their reads.
            let is_crowd = self.schedule.crowd(now) > CROWD && self.relist.serves_soon(now);
            self.schedule.hold_crowd(is_crowd);
            if is_crowd {
                self.relist.by_hint(now);
            }
            if let Some(uid) = self.schedule.next(now) {
                self.start_read(now, &uid);
            } else if self.relist_due().is_some_and(|due| due <= now) {
                self.start_relist(now);
            } else if let Some(settled) = self.progress.take_settled() {
                self.settle(now, settled);
            } else {
                return;
            }
        }
    }

    /// Updates the reasons to read a pod.
    fn weigh(&mut self, uid: &PodUid) {
        self.satisfy(&self.hints.subjects(Some(uid)));
        let backoff = self.pods.failures.retry_at(uid);
        let after_backoff = |at: Option<Instant>| at.max(at.and(backoff));
        let hint = self.hints.due(uid);
        let hint = hint.filter(|_| self.announcements.has_begun());
        let other = [
            after_backoff(hint),
            after_backoff(self.look_again.due(Some(uid))),
            self.pods.retry_at(uid),
        ];
        let mut reasons = Reasons {
            waiter: self.waiters.due(uid),
            rows: self.reads.at_hand(uid).map(|at_hand| at_hand.rows.as_of),
            other: other.into_iter().flatten().min(),
        };
        if self.pods.needs_relist(uid) {
            if let Some(at) = reasons.waiter.take()
                && !self.reads.has_rows_requested_after(uid, at)
                && self.relist.in_flight().is_none_or(|(_, since)| since < at)
            {
                self.relist.by(at);
            }
            if let Some(at) = reasons.other.take() {
                self.relist.by_hint(at);
            }
        }
        self.schedule.set(uid, reasons);
    }

    /// Counts missed events. Each missed event resets the relist period; relists without missed events may lengthen it.
    fn judge_stream(&mut self, now: Instant) {
        let check = &mut self.stream_check;
        for missed in check.overdue(now) {
            self.out.counters.missed.add(missed);
            self.relist.shorten();
        }
        if self.stream.since().is_some() && check.must_renew(now) {
            self.out.counters.streams_renewed += 1;
            self.out.push(Output::Resubscribe);
        }
        let is_lossy = check.loss(now).is_lossy();
        let quality = StreamQuality {
            is_good: self.stream.is_confirmed(now) && !check.is_mute() && !is_lossy,
            is_proven: self.stream.is_proven(),
        };
        self.relist.decide(check.first_open(), quality);
    }
}
