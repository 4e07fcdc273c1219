//! The invariants, as a consumer can check them: a shadow of the cache, and a book of what was told,
//! read, asked and announced.

mod announcements;
mod by_pod;
mod cache;
mod convergence;
mod health;
mod losses;
mod read_schedule;
mod subscribers;
mod waiters;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pleg_core::{
    ContainerState, EventType, Id, Instant, Kind, Output, PodStatus, PodUid, PodView, Report,
    ReportedState, RuntimeEvent, SandboxState, Ticket, WaiterId,
};

use crate::assertions::CheckResult;
use crate::coverage::{CoverPoint, Coverage};
use crate::fault_profile::FaultProfile;
use crate::faults::Fault;
use crate::oracle::{Oracle, State};
use crate::trace::Trace;
use by_pod::ByPod;

pub use health::ExpectedHealth;
pub use losses::Losses;
pub use read_schedule::ReadSchedule;
pub use subscribers::Subscribers;

/// What the reconciler was handed before it put something out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Timer,
    Stream,
    Event,
    List,
    Inspection,
    StatusRead,
    Request,
    Cancel,
}

/// A waiter.
#[derive(Clone, Debug)]
struct Waiter {
    pod: PodUid,
    after: Instant,
    asked: Instant,
    /// The last inspection that had been asked for by then.
    number: Ticket,
    /// The pod was well when it was asked about; an answer must come soon.
    urgent: bool,
}

/// What is known here of one id.
#[derive(Clone, Debug, Default)]
struct IdRecord {
    /// Something has shown it running.
    seen_running: bool,
    /// Something has named it.
    known: bool,
    /// A removal was the first that was told of it.
    first_seen_removed: bool,
    published: bool,
    /// When somebody was last told that it ended or is removed.
    end_reported: Option<Instant>,
    /// When the last inspection began that showed it as unknown. Invariant 2 lets an event that
    /// advances the id clear that, whatever it was in truth by then.
    unknown_since: Option<Instant>,
    last_event: Option<Instant>,
    /// The state that the cache shows, and since when.
    shown: Option<(State, u64)>,
    /// The pod in which the cache showed it last.
    shown_in: Option<PodUid>,
    /// When the cache showed it no longer, and in which pod it was.
    left_cache: Option<(u64, PodUid)>,
    incarnation: u32,
    /// What was announced of this incarnation.
    started: bool,
    died: bool,
    removed: bool,
    changed: bool,
    /// The exit code was told, in this incarnation.
    code: bool,
}

/// Begins of reads that a view may still be as of.
#[derive(Clone, Debug, Default)]
struct ReadStarts(VecDeque<Instant>);

impl ReadStarts {
    const MOST: usize = 128;

    fn add(&mut self, began: Instant) {
        if self.0.len() == Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back(began);
    }

    fn contain(&self, t: Instant) -> bool {
        self.0.iter().rev().any(|&b| b == t)
    }

    fn any_after(&self, t: Instant) -> bool {
        self.0.back().is_some_and(|&b| b > t)
    }
}

#[derive(Debug, Default)]
pub struct Checks {
    pub trace: Trace,
    pub coverage: Coverage,
    /// Events may have told of what did not happen.
    false_events: bool,
    /// Lists may show what is removed.
    listed_after_removal: bool,
    /// Ids may be known without a label: their pods are read by complete lists.
    pub missing_labels: bool,
    cache: ByPod<PodView>,
    records: Vec<IdRecord>,
    /// Begins of the complete lists, and of the complete inspections per pod.
    lists: ReadStarts,
    inspections: ByPod<ReadStarts>,
    /// Reads that returned a status, inspections or not.
    status_reads: BTreeSet<Instant>,
    /// Failed inspections: the last one of each pod.
    failed: ByPod<Ticket>,
    /// Pods whose last inspection failed.
    failing: BTreeSet<PodUid>,
    /// Pods of which a status has failed.
    status_failed: BTreeSet<PodUid>,
    /// Pods of which the last complete inspection listed ids that had no status.
    unsettled: BTreeSet<PodUid>,
    /// The complete inspection that was handed over last, and what it found.
    last_found: Option<(Instant, Vec<Id>)>,
    last_inspection: Ticket,
    under_way: BTreeMap<Ticket, (PodUid, u64)>,
    waiting: BTreeMap<WaiterId, Waiter>,
    /// When pods were inspected again for no other reason than that the last read had failed.
    retries: BTreeMap<PodUid, VecDeque<u64>>,
    /// Ids that were announced and not announced as removed.
    present: u64,
    input: Option<Input>,
}

impl Checks {
    pub fn new(trace: Trace, fault_profile: &FaultProfile, listed_after_removal: bool) -> Self {
        Self {
            trace,
            false_events: fault_profile.false_events(),
            missing_labels: fault_profile.percent(Fault::MissingMetadata) > 0,
            listed_after_removal,
            ..Self::default()
        }
    }

    pub fn log(&mut self, now: u64, line: impl FnOnce() -> String) {
        self.trace.log(now, line);
    }

    fn record_mut(&mut self, oracle: &Oracle, id: &Id) -> Option<&mut IdRecord> {
        let n = oracle.index_of(id)?;
        if self.records.len() <= n {
            self.records.resize_with(n + 1, IdRecord::default);
        }
        self.records.get_mut(n)
    }

    fn lookup(&self, oracle: &Oracle, id: &Id) -> Option<&IdRecord> {
        self.records.get(oracle.index_of(id)?)
    }

    // --- what goes in ---

    /// The reconciler is handed something: what comes out next follows from it.
    pub const fn set_input(&mut self, input: Input) {
        self.input = Some(input);
    }

    pub fn event_received(&mut self, oracle: &Oracle, now: Instant, event: &RuntimeEvent) {
        let shown = event.sandbox.iter().chain(&event.containers);
        let own = shown.clone().find(|r| r.id == event.id);
        let deleted = event.event == EventType::Deleted;
        let gone = own
            .is_none_or(|r| r.identity.kind == Kind::Sandbox && r.shown != ReportedState::Running);
        let sandbox = own.is_some_and(|r| r.identity.kind == Kind::Sandbox)
            || event.id.as_str().starts_with("sbx");
        let runs =
            event.event == EventType::Started || (event.event == EventType::Created && sandbox);
        if let Some(record) = self.record_mut(oracle, &event.id) {
            record.first_seen_removed |= deleted && !record.known && gone;
            record.seen_running |= runs;
            if matches!(event.event, EventType::Stopped | EventType::Deleted) {
                record.end_reported = Some(now);
            }
            record.last_event = Some(now);
            record.known = true;
        }
        for report in shown {
            if let Some(record) = self.read_one(oracle, report) {
                record.last_event = Some(now);
            }
        }
    }

    pub fn status_read(&mut self, oracle: &Oracle, began: Instant, report: &Report) {
        self.status_reads.insert(began);
        self.read_one(oracle, report);
    }

    fn read_one(&mut self, oracle: &Oracle, report: &Report) -> Option<&mut IdRecord> {
        let record = self.record_mut(oracle, &report.id)?;
        record.known = true;
        record.seen_running |= report.shown == ReportedState::Running;
        Some(record)
    }

    pub fn list_read(&mut self, oracle: &Oracle, began: Instant, rows: &[Report]) {
        self.lists.add(began);
        for row in rows {
            self.read_one(oracle, row);
        }
    }

    pub fn inspected(
        &mut self,
        oracle: &Oracle,
        (uid, ticket): (&PodUid, Ticket),
        began: Instant,
        found: &[Report],
        failed: bool,
    ) {
        for report in found {
            let unknown = report.shown == ReportedState::Unknown;
            if let Some(record) = self.read_one(oracle, report)
                && unknown
            {
                record.unknown_since = Some(began);
            }
        }
        self.status_reads.insert(began);
        self.last_found = None;
        if self.under_way.remove(&ticket).is_none() {
            return;
        }
        if failed {
            self.failed.insert(uid, ticket);
            self.failing.insert(uid.clone());
        } else {
            self.failing.remove(uid);
            self.retries.remove(uid);
            self.inspections.entry(uid).add(began);
            let ids = found.iter().map(|r| r.id.clone()).collect();
            self.last_found = Some((began, ids));
        }
    }

    // --- what comes out ---

    /// # Errors
    /// An invariant is violated.
    pub fn output(&mut self, oracle: &Oracle, now: u64, output: &Output) -> CheckResult {
        self.coverage.checked += 1;
        match output {
            Output::Publish { uid, view } => {
                self.coverage.hit(CoverPoint::Published);
                self.publish(oracle, now, uid, view)?;
            }
            Output::Remove { uid } => {
                self.coverage.hit(CoverPoint::PodRemoved);
                self.pod_removed(oracle, now, uid);
            }
            Output::ListApplied { as_of, gone } => self.list_applied(*as_of, gone)?,
            Output::Refresh { as_of, pods } => {
                self.coverage.hit(CoverPoint::PodRefreshed);
                self.refreshed(oracle, now, *as_of, pods)?;
            }
            Output::Terminals { records, .. } => self.terminal_records(oracle, records)?,
            Output::Announce(event) => self.announce(oracle, event)?,
            Output::Answer { waiter, answer } => self.answer(oracle, now, *waiter, answer)?,
            Output::Listed { outcome, .. } => self.coverage.hit(match outcome {
                Ok(()) => CoverPoint::ListedOk,
                Err(_) => CoverPoint::ListedFailed,
            }),
            _ => {}
        }
        Ok(())
    }
}

/// What a status shows, by id; no state where it is unknown.
pub fn states(status: &PodStatus) -> impl Iterator<Item = (&Id, Option<State>)> {
    let sandboxes = status.sandboxes.iter().map(|s| {
        let state = match s.state {
            SandboxState::Ready => Some(State::Running),
            SandboxState::NotReady => Some(State::Exited),
            _ => None,
        };
        (&s.id, state)
    });
    let containers = status.containers.iter().map(|c| {
        let state = match c.state {
            ContainerState::Created => Some(State::Created),
            ContainerState::Running => Some(State::Running),
            ContainerState::Exited => Some(State::Exited),
            _ => None,
        };
        (&c.id, state)
    });
    sandboxes.chain(containers)
}
