//! The reconciler, which merges both sources.
//!
//! The files of this module, in the order of the path of one observation:
//!
//! * `requests` and `read_requests`: what consumers request of the reconciler, and what it requests of
//!   the read side;
//! * `events`, `lists` and `reads` take observations in; `second_read` handles a pod whose lists and
//!   status calls disagree;
//! * `apply` applies an observation to the record of its id; `membership` decides to which pod an id
//!   belongs; `contradictions` and `removals` handle contradicted and removed ids;
//! * `publish` turns changes into cache writes and announcements, `answers` answers waiters; `output` has
//!   what is sent to the driver;
//! * `timers` holds what is due later, `probe` probes the runtime, `stream_check` checks the stream;
//! * `getters`, `health`, `counters` and `state_counts` report what the reconciler knows.

mod answers;
mod apply;
mod contradictions;
pub(crate) mod counters;
mod events;
#[cfg(test)]
mod fast_path_tests;
mod getters;
pub(crate) mod health;
mod lists;
mod membership;
mod output;
mod probe;
mod publish;
mod read_requests;
mod reads;
mod removals;
mod requests;
mod second_read;
mod state_counts;
mod stream_check;
mod timers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::reconciler::counters::Counters;
use crate::schedule::loss::LossWindow;
use crate::schedule::pending::{PendingEvents, Unrecorded};
use crate::schedule::profile::EventProfile;
use crate::schedule::relist::{RelistSchedule, Trust};
use crate::schedule::scheduler::InspectionScheduler;
use crate::schedule::stream::Stream;
use crate::schedule::waiters::Waiters;
use crate::state::pod::Pods;
use crate::state::records::Records;
use crate::state::terminal::Terminals;
use crate::state::tombstones::Tombstones;
use crate::types::config::{InvalidSetting, Mode, Settings};
use crate::types::error::CallError;
use crate::types::event::StreamChange;
use crate::types::ids::{Id, PodUid};
use crate::types::reads::Ticket;
use crate::types::time::Instant;

use apply::DirtyPod;
use events::Orphans;
pub use output::{Confirmed, Output};
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
    /// Containers of sandboxes whose pod no answer has named yet, by the sandbox.
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
    /// Until when the runtime as a whole failed, if a read is in flight that was requested by then.
    failing_until: Option<Instant>,
    /// When an outage last ended the backoff of every pod.
    backoff_cleared: Option<Instant>,
    /// Pods of the first complete list that were neither inspected nor failed yet.
    unsynced: Option<BTreeSet<PodUid>>,
    synced: bool,
}

/// For how many outputs capacity is kept.
const MOST_OUT: usize = 64;

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
            scheduler: InspectionScheduler::new((&settings).into()),
            relist: RelistSchedule::new((&settings).into(), now),
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
            failing_until: None,
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
        if next.is_none() {
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

    /// How far the stream has been checked.
    fn trust(&self, now: Instant) -> Trust {
        let (confirmed, proven) = self.stream.trust(now);
        Trust {
            confirmed,
            proven,
            lossy: self.loss.of_last_minutes(now).is_lossy(),
        }
    }

    /// Publishes what the input changed and starts the reads that may start.
    fn pump(&mut self, now: Instant) {
        if self.tombstones.len() > self.settings.tombstones_max {
            // Removals may arrive faster than lists.
            self.drop_old_tombstones(now);
        }
        self.publish(now);
        self.request_reads(now);
        self.watch_outage(now);
    }
}
