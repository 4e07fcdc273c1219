//! Checks the invariants on the outputs of the reconciler: a copy of the cache, and a record of what
//! each id's events, reads and announcements showed.

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

/// The input that caused an output.
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
    /// The last inspection requested before it.
    number: Ticket,
    /// The pod and the runtime work, so an answer must come soon.
    urgent: bool,
}

/// What inputs and outputs showed of one id.
#[derive(Clone, Debug, Default)]
struct IdRecord {
    /// Some observation showed it running.
    seen_running: bool,
    /// Some observation named it.
    known: bool,
    /// The first observation of it was its removal.
    first_seen_removed: bool,
    published: bool,
    /// When an event first reported its removal.
    deleted: Option<u64>,
    /// When an event last reported its exit or removal.
    end_reported: Option<Instant>,
    /// When the last inspection that showed it as UNKNOWN began. Invariant 2 lets an event that
    /// advances the id clear that, whatever its true state.
    unknown_since: Option<Instant>,
    last_event: Option<Instant>,
    /// The state in the cache, and since when.
    shown: Option<(State, u64)>,
    /// The pod in which the cache showed it last.
    shown_in: Option<PodUid>,
    /// When the cache first showed it in its own pod.
    in_own_pod_since: Option<u64>,
    /// When it left the cache, and from which pod; until it is announced as the next incarnation.
    left_cache: Option<(u64, PodUid)>,
    /// When the newest read began that showed it.
    read: Option<Instant>,
    incarnation: u32,
    /// The announcements of this incarnation.
    started: bool,
    died: bool,
    removed: bool,
    changed: bool,
    /// An exit code was reported for this incarnation.
    code: bool,
}

/// The starts of reads that a view may be as of.
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

    /// The first one after that instant.
    fn first_after(&self, t: Instant) -> Option<Instant> {
        self.0.iter().copied().find(|&began| began > t)
    }
}

#[derive(Debug, Default)]
pub struct Checks {
    pub trace: Trace,
    pub coverage: Coverage,
    /// Events may be false.
    false_events: bool,
    /// Ids may lack a pod label; their pods are read by complete lists.
    pub missing_labels: bool,
    cache: ByPod<PodView>,
    records: Vec<IdRecord>,
    /// The starts of complete lists, and of complete inspections per pod.
    lists: ReadStarts,
    inspections: ByPod<ReadStarts>,
    /// The starts of reads that returned a status.
    status_reads: BTreeSet<Instant>,
    /// The last failed inspection of each pod.
    failed: ByPod<Ticket>,
    /// Pods whose last inspection failed.
    failing: BTreeSet<PodUid>,
    /// Pods with a failed status.
    status_failed: BTreeSet<PodUid>,
    /// Ids that a complete inspection listed without a status, its pod, and when it ended.
    unsettled: BTreeMap<Id, (PodUid, u64)>,
    /// The last complete inspection, and the ids it found.
    last_found: Option<(Instant, Vec<Id>)>,
    last_inspection: Ticket,
    in_flight: BTreeMap<Ticket, (PodUid, u64)>,
    waiting: BTreeMap<WaiterId, Waiter>,
    /// When pods were inspected only because the last read failed.
    retries: BTreeMap<PodUid, VecDeque<u64>>,
    /// The number of announced ids that are not removed.
    present: u64,
    input: Option<Input>,
}

impl Checks {
    pub fn new(trace: Trace, fault_profile: &FaultProfile) -> Self {
        Self {
            trace,
            false_events: fault_profile.false_events(),
            missing_labels: [Fault::MissingMetadata, Fault::WrongLabel]
                .iter()
                .any(|&fault| fault_profile.percent(fault) > 0),
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

    /// Whether reads have overruled a recorded state of the id.
    pub fn is_overruled(&self, oracle: &Oracle, id: &Id) -> bool {
        self.lookup(oracle, id)
            .is_some_and(|record| record.incarnation > 0)
    }

    // --- inputs ---

    /// Sets the input that causes the next outputs.
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
            if deleted && gone {
                record.deleted.get_or_insert(now.as_nanos());
            }
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
        self.read_at(oracle, began, report);
    }

    /// A read that began then shows the id.
    fn read_at(
        &mut self,
        oracle: &Oracle,
        began: Instant,
        report: &Report,
    ) -> Option<&mut IdRecord> {
        let record = self.read_one(oracle, report)?;
        record.read = record.read.max(Some(began));
        Some(record)
    }

    fn read_one(&mut self, oracle: &Oracle, report: &Report) -> Option<&mut IdRecord> {
        let record = self.record_mut(oracle, &report.id)?;
        record.known = true;
        record.seen_running |= report.shown == ReportedState::Running;
        Some(record)
    }

    pub fn list_read(&mut self, oracle: &Oracle, began: Instant, rows: &[Report]) {
        self.lists.add(began);
        self.unsettled.retain(|id, (_, since)| {
            began.as_nanos() <= *since || rows.iter().any(|row| row.id == *id)
        });
        for row in rows {
            self.read_at(oracle, began, row);
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
            if let Some(record) = self.read_at(oracle, began, report)
                && unknown
            {
                record.unknown_since = Some(began);
            }
        }
        self.status_reads.insert(began);
        self.last_found = None;
        if self.in_flight.remove(&ticket).is_none() {
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

    // --- outputs ---

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
                // Its backoff ends with it.
                self.retries.remove(uid);
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

/// The state of each id in a status; none if unknown.
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
