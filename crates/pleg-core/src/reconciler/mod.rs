//! The reconciler, which merges both sources.
//!
//! The files of this module, in the order of the path of one observation: `events`, `lists` and
//! `reads` take observations in, `apply` applies them to the records, `contradictions` and
//! `removals` handle contradicted and removed ids, `publish` turns changes into cache writes and
//! announcements, `timers` holds what is due later. `probe` probes the runtime, and `stream_check`
//! checks the stream.

mod apply;
mod contradictions;
mod events;
mod lists;
mod probe;
mod publish;
mod reads;
mod removals;
mod state_counts;
mod stream_check;
mod timers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::config::{InvalidSetting, Mode, Settings};
use crate::counters::Counters;
use crate::error::CallError;
use crate::health::{Health, PodName};
use crate::ids::{Id, Kind, PodUid};
use crate::lifecycle::PodLifecycleEvent;
use crate::loss::LossWindow;
use crate::observed::{HeldId, KnownIds, StreamChange, Ticket};
use crate::pending::{PendingEvents, Unrecorded};
use crate::pod::Pods;
use crate::profile::EventProfile;
use crate::record::Record;
use crate::records::Records;
use crate::relist::{RelistSchedule, Trust};
use crate::scheduler::{Cause, Causes, InspectionScheduler};
use crate::status::{PodStatus, PodView};
use crate::stream::Stream;
use crate::terminal::{TerminalRecord, Terminals};
use crate::time::Instant;
use crate::tombstones::Tombstones;
use crate::waiters::{Waiter, WaiterId, Waiters};

use apply::DirtyPod;
use events::Orphans;
use probe::Probe;
pub use state_counts::StateCounts;
use stream_check::Silence;
use timers::{Timer, Timers};

/// The pod lifecycle event generator as a deterministic state machine. Observations go in; cache
/// writes, announcements, answers and requests to the read side come out. It reads no clock and
/// does no I/O; time is an argument. Equal inputs give equal outputs.
///
/// Its methods are of four kinds:
///
/// * `handle_*` take an input: an observation of the stream or of the read side, or that time has
///   passed. Instants must not go backwards from call to call.
/// * requests ([`wait`](Self::wait), [`relist_now`](Self::relist_now), …) are inputs of consumers.
/// * [`poll_output`](Self::poll_output) and [`poll_timeout`](Self::poll_timeout) give what is to
///   be done: after every input the driver takes outputs until there are none, in order, and
///   calls [`handle_timeout`](Self::handle_timeout) when the instant of `poll_timeout` comes.
/// * getters ([`health`](Self::health), [`counters`](Self::counters)) change nothing.
///
/// Every [`Output::List`], [`Output::Inspect`], [`Output::Read`] and [`Output::Version`] must be
/// answered exactly once by the corresponding `handle_*`, also if the call fails. After an
/// [`Output::Cancel`] the answer is ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reconciler {
    settings: Settings,
    records: Records,
    pods: Pods,
    /// Pods that do not exist since that instant, until a list begun later confirms it.
    removed_pods: BTreeMap<PodUid, Instant>,
    tombstones: Tombstones,
    orphans: Orphans,
    /// Containers whose sandbox is not known yet, by the sandbox.
    awaiting_sandbox: BTreeMap<Id, BTreeSet<Id>>,
    scheduler: InspectionScheduler,
    relist: RelistSchedule,
    stream: Stream,
    profile: EventProfile,
    pending: PendingEvents,
    unrecorded: Unrecorded,
    loss: LossWindow,
    silence: Silence,
    /// Ids that may be unsettled.
    unsettled: BTreeSet<Id>,
    /// Ids that a list of their pod may not show, because they lack the pod-uid label.
    unlabelled: BTreeSet<Id>,
    /// Pods whose waiters are to be answered by a complete list.
    read_by_list: BTreeSet<PodUid>,
    waiters: Waiters,
    terminals: Terminals,
    timers: Timers,
    /// Status calls in flight, and when they were requested.
    status_reads: BTreeMap<Ticket, (Id, Instant)>,
    probe: Probe,
    /// The effects of the present input, per pod; empty between inputs.
    dirty: BTreeMap<PodUid, Box<DirtyPod>>,
    out: VecDeque<Output>,
    /// The number of the last request to the read side.
    number: u64,
    counters: Counters,
    /// Counts of the pods and containers in the cache.
    state_counts: StateCounts,
    list_error: Option<CallError>,
    behind_since: Option<Instant>,
    /// When an outage last ended the backoff of every pod.
    backoff_cleared: Option<Instant>,
    /// Pods of the first complete list that were neither inspected nor failed yet.
    unsynced: Option<BTreeSet<PodUid>>,
    synced: bool,
}

/// What the reconciler requests of the driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Output {
    /// Write this into the cache.
    Publish {
        /// The pod.
        uid: PodUid,
        /// Its status and freshness.
        view: PodView,
    },
    /// Nothing of the pod exists any more. The cache keeps an empty status, as fresh as the pod
    /// was, until a list has confirmed it.
    Remove {
        /// The pod.
        uid: PodUid,
    },
    /// A complete list began: pods that are not in the cache did not exist at that instant.
    ListApplied {
        /// The begin of the list.
        as_of: Instant,
        /// Withdrawn pods whose end the list has confirmed: remove them from the cache.
        gone: Vec<PodUid>,
    },
    /// A list showed these pods unchanged: they are fresh as of its begin.
    Refresh {
        /// The begin of the list.
        as_of: Instant,
        /// The pods.
        pods: Confirmed,
    },
    /// The terminal records of this pod, oldest first. None: remove them.
    Terminals {
        /// The pod.
        uid: PodUid,
        /// Its terminal records.
        records: Arc<[TerminalRecord]>,
    },
    /// Announce this to every subscriber. The cache shows it already.
    Announce(PodLifecycleEvent),
    /// Every pod of the first complete list was inspected or failed once, and was announced. Sent
    /// once.
    Synced,
    /// Answer a waiter.
    Answer {
        /// The waiter.
        waiter: WaiterId,
        /// Its answer.
        answer: Result<PodView, CallError>,
    },
    /// Answer a waiter for a full list.
    Listed {
        /// The waiter.
        waiter: WaiterId,
        /// The result of the list.
        outcome: Result<(), CallError>,
    },
    /// Read a full list.
    List {
        /// To be returned with the answer.
        ticket: Ticket,
        /// How long the whole list may take.
        deadline: Duration,
        /// The ids of which a row can only report a state. The [rows](crate::Rows) are built for
        /// them.
        known: KnownIds,
    },
    /// Inspect one pod.
    Inspect {
        /// To be returned with the answer.
        ticket: Ticket,
        /// The pod.
        uid: PodUid,
        /// The ids that are held for it.
        held: Vec<HeldId>,
        /// The causes.
        causes: Causes,
        /// How long the inspection may take as a whole.
        deadline: Duration,
    },
    /// Read one status.
    Read {
        /// To be returned with the answer.
        ticket: Ticket,
        /// The id.
        id: Id,
        /// Sandbox or container.
        kind: Kind,
        /// How long the call may take.
        deadline: Duration,
    },
    /// Call `Version`, to check whether the runtime answers.
    Version {
        /// To be returned with the answer.
        ticket: Ticket,
        /// How long the call may take.
        deadline: Duration,
    },
    /// End the stream and subscribe again: it reports no event while reads show changes.
    Resubscribe,
    /// Cancel this inspection.
    Cancel {
        /// The ticket of its request.
        ticket: Ticket,
    },
}

/// For how many outputs capacity is kept.
const MOST_OUT: usize = 64;

/// Pods that a list showed unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Confirmed {
    /// Every pod that the cache holds. None of them is withdrawn.
    All,
    /// These.
    These(Vec<PodUid>),
}

impl Confirmed {
    /// The names of these pods, if the cache holds the pods `cached`.
    pub fn among(&self, cached: impl IntoIterator<Item = PodUid>) -> Vec<PodUid> {
        match self {
            Self::All => cached.into_iter().collect(),
            Self::These(pods) => pods.clone(),
        }
    }
}

impl Reconciler {
    /// A reconciler without any records, at `now`.
    ///
    /// # Errors
    /// If the settings are not valid.
    pub fn new(settings: Settings, now: Instant) -> Result<Self, InvalidSetting> {
        settings.validate()?;
        let mut machine = Self {
            records: Records::default(),
            pods: BTreeMap::new(),
            removed_pods: BTreeMap::new(),
            tombstones: Tombstones::default(),
            orphans: Orphans::default(),
            awaiting_sandbox: BTreeMap::new(),
            scheduler: InspectionScheduler::new(settings.lanes()),
            relist: RelistSchedule::new(settings.periods(), now),
            stream: Stream::new(settings.mode == Mode::Evented, now),
            profile: EventProfile::UNKNOWN,
            pending: PendingEvents::default(),
            unrecorded: Unrecorded::default(),
            loss: LossWindow::default(),
            silence: Silence::default(),
            unsettled: BTreeSet::new(),
            unlabelled: BTreeSet::new(),
            read_by_list: BTreeSet::new(),
            waiters: Waiters::default(),
            terminals: Terminals::default(),
            timers: Timers::default(),
            status_reads: BTreeMap::new(),
            probe: Probe::default(),
            dirty: BTreeMap::new(),
            out: VecDeque::new(),
            number: 0,
            counters: Counters::default(),
            state_counts: StateCounts::default(),
            list_error: None,
            behind_since: None,
            backoff_cleared: None,
            unsynced: None,
            synced: false,
            settings,
        };
        let first_probe = now.after(machine.settings.probe_period);
        machine.timers.set(first_probe, Timer::Probe);
        machine.pump(now);
        Ok(machine)
    }

    /// The next output; `None` if there are no more.
    pub fn poll_output(&mut self) -> Option<Output> {
        let next = self.out.pop_front();
        if next.is_none() && self.out.capacity() > MOST_OUT {
            // The first list of a large node leaves a capacity that is not needed again.
            self.out.shrink_to(MOST_OUT);
        }
        next
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.relist.due(), self.timers.next()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.run_timers(now);
        self.pump(now);
    }

    /// The stream was subscribed to, or has ended.
    pub fn handle_stream(&mut self, now: Instant, change: StreamChange) {
        match change {
            StreamChange::Subscribed { at, wall } => {
                self.stream.subscribed(at, wall, now);
                // Whether removals are reported is known of the present stream only.
                let ended: Vec<PodUid> = self.pods.keys().cloned().collect();
                for uid in ended {
                    self.watch_ended_pod(now, &uid);
                }
                // Subscribe, then list: the list shows what happened before it began.
                self.stream_lost();
                self.relist.by(now);
            }
            StreamChange::Ended { at, why, retry_at } => {
                if self.stream.ended(at, why, retry_at, now) {
                    self.stream_lost();
                }
            }
        }
        self.pump(now);
    }

    /// Whether events wait at the reader. While they do, pending events do not time out, and
    /// tombstones do not age.
    pub fn handle_backlog(&mut self, now: Instant, behind: bool) {
        self.stream.set_behind(behind, now);
        self.behind_since = behind.then(|| self.behind_since.unwrap_or(now));
    }

    /// Something other than a list arrived from the runtime at `at`.
    fn runtime_answers(&mut self, now: Instant, at: Instant) {
        self.probe.heard(at);
        self.relist.runtime_answers(now);
    }

    /// When the next work is due: a timer, or the deadline of a call in flight. Something is always
    /// due.
    fn due(&self, now: Instant) -> Instant {
        let inspection = self.settings.inspection_deadline;
        let status_reads = self.status_reads.values().map(|(_, since)| *since);
        let oldest_read = status_reads.chain(self.scheduler.oldest()).min();
        [
            self.poll_timeout(),
            self.relist.deadline(),
            self.probe.deadline(),
            oldest_read.map(|since| since.after(inspection)),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(now)
    }

    /// Requests the status of one id.
    fn read_status(&mut self, now: Instant, id: &Id, kind: Kind) -> Ticket {
        let ticket = self.next_ticket();
        self.status_reads.insert(ticket, (id.clone(), now));
        self.records.attempted(id, now);
        self.out.push_back(Output::Read {
            ticket,
            id: id.clone(),
            kind,
            deadline: self.settings.inspection_deadline,
        });
        ticket
    }

    /// Registers a waiter for a view of the pod that is newer than `after`: one that a read begun
    /// later has shown. Answered by [`Output::Answer`], unless it is [`cancelled`](Self::cancel).
    pub fn wait(&mut self, now: Instant, waiter: WaiterId, uid: &PodUid, after: Instant) {
        self.ask(now, waiter, uid, after, Cause::Waiter);
    }

    /// Registers a waiter for a view of the pod whose details, too, are newer than `after`: every
    /// status is read. Answered by [`Output::Answer`], with an error if a status cannot be read.
    pub fn wait_for_details(
        &mut self,
        now: Instant,
        waiter: WaiterId,
        uid: &PodUid,
        after: Instant,
    ) {
        self.ask(now, waiter, uid, after, Cause::Details);
    }

    /// Reads the pod now. Answered by [`Output::Answer`].
    pub fn relist(&mut self, now: Instant, waiter: WaiterId, uid: &PodUid) {
        self.ask(now, waiter, uid, now, Cause::Relist);
    }

    /// Reads the pod now and announces PodSync even if nothing changed: for changes of details,
    /// such as resources (upstream k#123940). If the read finds a change of state, that is
    /// announced instead. Answered by [`Output::Answer`].
    pub fn reinspect(&mut self, now: Instant, waiter: WaiterId, uid: &PodUid) {
        self.ask(now, waiter, uid, now, Cause::Reinspect);
    }

    fn ask(&mut self, now: Instant, id: WaiterId, uid: &PodUid, after: Instant, cause: Cause) {
        let waiter = Waiter {
            id,
            after,
            number: self.number,
            details: cause == Cause::Details,
        };
        let known = self.view_newer_than(uid, after).filter(|view| match cause {
            Cause::Waiter => true,
            Cause::Details => view.inspected > Some(after),
            _ => false,
        });
        if let Some(view) = known {
            self.out.push_back(Output::Answer {
                waiter: id,
                answer: Ok(view),
            });
            return;
        }
        self.waiters.register(uid, waiter);
        if after > now {
            self.timers.set(after, Timer::Waiter(uid.clone()));
        } else if self.needs_complete_list(uid) {
            self.read_by_list(now, uid);
            if matches!(cause, Cause::Reinspect | Cause::Details) {
                self.request_inspection(now, uid, cause);
            }
        } else if cause != Cause::Waiter || !self.read_under_way_serves(uid, after) {
            self.request_inspection(now, uid, cause);
        }
        self.pump(now);
    }

    /// Whether the inspection in flight was requested after `after`.
    fn read_under_way_serves(&self, uid: &PodUid, after: Instant) -> bool {
        self.scheduler
            .in_flight(uid)
            .is_some_and(|(_, issued)| issued > after)
    }

    /// Lists the node now. Answered by [`Output::Listed`].
    pub fn relist_now(&mut self, now: Instant, waiter: WaiterId) {
        self.waiters.register_list(waiter, self.number);
        self.relist.by(now);
        self.pump(now);
    }

    /// Removes a waiter.
    pub fn cancel(&mut self, waiter: WaiterId) {
        if let Some((uid, after)) = self.waiters.cancel(waiter)
            && !self.waiters.of(&uid).iter().any(|w| w.after == after)
        {
            self.timers.cancel(after, Timer::Waiter(uid));
        }
    }

    /// The consumer acknowledges the terminal record of that id.
    pub fn acknowledge(&mut self, id: &Id) {
        if let Some(uid) = self.terminals.acknowledge(id) {
            let records = self.terminals.of(&uid);
            self.out.push_back(Output::Terminals { uid, records });
        }
    }

    /// The present health.
    pub fn health(&self, now: Instant) -> Health {
        let hung = self.scheduler.hung();
        let failing = self.failing_pods();
        Health {
            due: self.due(now),
            last_list: self.relist.complete(),
            list_in_flight: self.relist.in_flight().map(|(_, since)| since),
            list_error: self.list_error.clone(),
            silent_since: self.probe.silent_since(),
            period: self.relist.period(),
            stream: self.stream.state(now),
            behind_since: self.behind_since,
            overdue: hung.len(),
            oldest_overdue: hung.first().map(|&(_, since)| since),
            overdue_pods: self.named(hung.into_iter().map(|(uid, _)| uid)),
            failing: failing.len(),
            failing_pods: self.named(failing.into_iter()),
            missed: self.counters.missed.iter().sum(),
            loss: self.loss.of_last_minutes(now),
            splits_events_between_subscribers: self.profile.splits_events_between_subscribers,
            synced: self.synced,
            unready_after: self.settings.unready_after,
        }
    }

    /// Pods whose last inspection failed, or that have an unsettled id.
    fn failing_pods(&self) -> BTreeSet<&PodUid> {
        let unsettled = self.unsettled.iter().filter_map(|id| {
            let record = self.records.get(id)?;
            if !record.unsettled || record.is_removed() {
                return None;
            }
            record.identity.pod.as_ref()
        });
        self.scheduler.failing_pods().chain(unsettled).collect()
    }

    /// The first of these pods, as named in health.
    fn named<'a>(&self, pods: impl Iterator<Item = &'a PodUid>) -> Vec<PodName> {
        let name = |uid: &PodUid| {
            let pod = self.pods.get(uid);
            PodName {
                uid: uid.clone(),
                namespace: pod.map(|p| p.namespace.clone()).unwrap_or_default(),
                name: pod.map(|p| p.name.clone()).unwrap_or_default(),
            }
        };
        pods.take(Health::NAMED).map(name).collect()
    }

    /// The counters since the start.
    pub fn counters(&self) -> Counters {
        Counters {
            tombstones: self.tombstones.len() as u64,
            streams_lost: self.stream.lost(),
            ..self.counters.clone()
        }
    }

    /// How many pods, sandboxes and containers exist, by state.
    pub const fn state_counts(&self) -> StateCounts {
        self.state_counts
    }

    /// Whether no inspection, status call or list is queued, in flight or owed.
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle()
            && self.status_reads.is_empty()
            && self.relist.in_flight().is_none()
    }

    /// How far the stream has been checked.
    fn trust(&self, now: Instant) -> Trust {
        let (confirmed, proven) = self.stream.trust(now);
        Trust {
            confirmed,
            proven,
            lossy: self.loss.of_last_minutes(now).is_lossy(),
        }
    }

    /// The view of the pod, if a read begun after `after` has shown it.
    fn view_newer_than(&self, uid: &PodUid, after: Instant) -> Option<PodView> {
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

    /// Requests an inspection of the pod.
    fn request_inspection(&mut self, now: Instant, uid: &PodUid, cause: Cause) {
        if let Some(retry_at) = self.scheduler.request_inspection(uid, cause) {
            self.timers
                .set(retry_at.max(now), Timer::Retry(uid.clone()));
        }
    }

    fn next_ticket(&mut self) -> Ticket {
        self.number += 1;
        Ticket(self.number)
    }

    /// Publishes what the input changed and starts the reads that may start.
    fn pump(&mut self, now: Instant) {
        if self.tombstones.len() > self.settings.tombstones_max {
            // Removals may arrive faster than lists.
            self.drop_old_tombstones(now);
        }
        self.publish(now);
        let ticket = Ticket(self.number + 1);
        if let Some(due) = self.relist.start(ticket, now) {
            self.number += 1;
            self.counters.lists += 1;
            self.out.push_back(Output::List {
                ticket: due.ticket,
                deadline: due.deadline,
                known: self.records.known(),
            });
        }
        while self.scheduler.can_start() {
            let ticket = self.next_ticket();
            let Some(start) = self.scheduler.start(ticket, now) else {
                break;
            };
            self.timers.set(
                now.after(self.scheduler.slot_time()),
                Timer::Overdue(start.ticket),
            );
            for cause in start.causes.iter() {
                self.counters.inspections_by_cause[cause as usize] += 1;
            }
            self.counters.inspections += 1;
            let held = self.held(now, &start.uid, start.causes);
            for held in held.iter().filter(|held| held.owed) {
                self.records.attempted(&held.id, now);
            }
            self.out.push_back(Output::Inspect {
                ticket: start.ticket,
                held,
                uid: start.uid,
                causes: start.causes,
                deadline: self.settings.inspection_deadline,
            });
        }
    }

    /// The ids of a pod that is to be inspected: all that are published. If every cause needs only the
    /// state, only owed statuses are read; otherwise every status. A failed status is read again when
    /// its retry is due, or for a waiter that needs details.
    fn held(&self, now: Instant, uid: &PodUid, causes: Causes) -> Vec<HeldId> {
        let Some(pod) = self.pods.get(uid) else {
            return Vec::new();
        };
        let state_only = causes.iter().all(Cause::asks_for_state);
        let repeats =
            causes.iter().any(Cause::asks_for_details) || self.scheduler.may_be_retried(uid, now);
        let open = pod.first_read.as_ref().map(|first| &first.open);
        let held = |(id, record): (&Id, &Record)| {
            let asked_again = pod.contradicted.contains(id)
                || pod.reappeared.contains_key(id)
                || open.is_some_and(|open| open.contains(id));
            let owed = match record.error.is_some() {
                true => repeats,
                false => !state_only || asked_again || record.owes_status(),
            };
            HeldId {
                id: id.clone(),
                kind: record.kind(),
                shown: record.shown(),
                owed,
            }
        };
        let mut ids: Vec<HeldId> = pod.shown(&self.records).map(held).collect();
        ids.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        ids
    }
}
