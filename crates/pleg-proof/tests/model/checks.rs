//! Checks the invariants on the inputs and outputs of the reconciler. Each violation starts with the
//! name of its assertion, `invariant-<number>-<what>`, which seeded bugs refer to.
//!
//! These checks are written independently of those of the random worlds in `src/`.

mod announcements;
mod cache;
mod events;
mod liveness;
mod reads;

use std::collections::{BTreeMap, BTreeSet};

use pleg_core::{
    EventType, Id, Instant, Kind, Output, PodUid, PodView, Report, ReportedState, Settings, Ticket,
    WaiterId,
};

use super::harness::Violation;
use super::node::{Node, State};
use announcements::Announced;
pub use announcements::Lagging;
pub use cache::seen;
use events::Plausible;

/// Returns a violation unless the condition holds.
macro_rules! hold {
    ($condition:expr, $violation:literal, $($words:tt)*) => {
        if !$condition {
            return Err(format!("{}: {}", $violation, format_args!($($words)*)));
        }
    };
}
pub(crate) use hold;

/// The input that caused an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    Event,
    /// A list or an inspection.
    Read,
    OneStatus,
    Request,
    /// Time passed, or the stream began or ended.
    Time,
}

/// A call that shows states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    List,
    Inspection,
}

/// A waiter.
#[derive(Clone, Debug)]
pub struct Waiter {
    pub uid: PodUid,
    pub after: u64,
    pub asked: u64,
    /// The last read requested before it asked.
    pub number: Ticket,
}

/// A read that showed an id.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    by: By,
    began: u64,
    state: State,
}

pub struct Checks {
    settings: Settings,
    trace: Option<Vec<String>>,
    /// The cache as the driver keeps it.
    pub cache: BTreeMap<PodUid, PodView>,
    /// The last requested read.
    number: Ticket,
    /// Tickets and starts of complete lists and complete inspections.
    lists: Vec<(Ticket, u64)>,
    inspections: BTreeMap<PodUid, Vec<(Ticket, u64)>>,
    /// Failed inspections.
    failed: BTreeMap<PodUid, Vec<Ticket>>,
    /// Inspections that are in flight.
    in_flight: BTreeMap<Ticket, (PodUid, u64)>,
    pub waiting: BTreeMap<WaiterId, Waiter>,
    pub waiting_for_list: BTreeMap<WaiterId, Ticket>,
    /// The recorded state as the cache or a removal last showed it, and since when.
    recorded: BTreeMap<Id, (State, u64)>,
    ever_shown: BTreeSet<Id>,
    /// How often each id was overruled.
    went_back: BTreeMap<Id, u32>,
    /// Reads that showed an id since it was recorded in its current state.
    sightings: BTreeMap<Id, Vec<Sighting>>,
    /// When reads began that returned a status.
    status_reads: BTreeSet<Instant>,
    /// An event named an id without a label.
    unlabelled: bool,
    failed_lists: Vec<Ticket>,
    /// Ids that a false event reported, and when the last one did.
    pub misreported_at: BTreeMap<Id, u64>,
    /// Ids that some observation named.
    named: BTreeSet<Id>,
    /// Ids first reported as removed, which must not be announced.
    first_seen_removed: BTreeSet<Id>,
    /// Ids that some observation showed running.
    seen_running: BTreeSet<Id>,
    /// The start of the last read that showed an id as UNKNOWN.
    unknown_since: BTreeMap<Id, u64>,
    plausible: Plausible,
    /// What is in the backlog of the busy writer.
    in_backlog: BTreeSet<(Id, Pushed)>,
    pub announced: BTreeMap<(Id, u32), Announced>,
    pub lagging: Lagging,
    liveness: liveness::Liveness,
}

/// What must leave a backlog if it entered it (invariant 8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pushed {
    Event(EventType),
    ReportedState(ReportedState),
}

impl Checks {
    pub fn new(settings: Settings, now: u64, keep_history: bool) -> Self {
        Self {
            settings,
            trace: keep_history.then(Vec::new),
            cache: BTreeMap::new(),
            number: Ticket::default(),
            lists: Vec::new(),
            inspections: BTreeMap::new(),
            failed: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            waiting: BTreeMap::new(),
            waiting_for_list: BTreeMap::new(),
            recorded: BTreeMap::new(),
            ever_shown: BTreeSet::new(),
            went_back: BTreeMap::new(),
            sightings: BTreeMap::new(),
            status_reads: BTreeSet::new(),
            unlabelled: false,
            failed_lists: Vec::new(),
            misreported_at: BTreeMap::new(),
            named: BTreeSet::new(),
            first_seen_removed: BTreeSet::new(),
            seen_running: BTreeSet::new(),
            unknown_since: BTreeMap::new(),
            plausible: Plausible::default(),
            in_backlog: BTreeSet::new(),
            announced: BTreeMap::new(),
            lagging: Lagging::new(),
            liveness: liveness::Liveness::new(now),
        }
    }

    pub fn note(&mut self, now: u64, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now:>7} {}", line()));
        }
    }

    pub fn trace(&self) -> String {
        self.trace.as_deref().unwrap_or_default().join("\n")
    }

    /// Every id that was ever in the cache.
    pub fn ever_shown(&self) -> impl Iterator<Item = &Id> {
        self.ever_shown.iter()
    }

    fn name(&mut self, report: &Report) {
        self.named.insert(report.id.clone());
        if report.shown == ReportedState::Running {
            self.seen_running.insert(report.id.clone());
        }
    }

    /// Checks one output.
    pub fn output(
        &mut self,
        node: &Node,
        now: u64,
        output: &Output,
        input: Input,
    ) -> Result<(), Violation> {
        match output {
            Output::Publish { uid, view } => self.publish(node, now, uid, view),
            Output::Remove { uid } => self.pod_removed(now, uid),
            Output::ListApplied { as_of, gone } => self.list_applied(node, now, *as_of, gone),
            Output::Refresh { as_of, pods } => self.refreshed(node, now, *as_of, pods),
            Output::Terminals { records, .. } => self.terminal_records(node, records),
            Output::Announce(event) => self.announce(node, event),
            Output::Answer { waiter, answer } => {
                self.answer(node, now, *waiter, answer.as_ref(), input)
            }
            Output::Listed { waiter, .. } => {
                let number = self.waiting_for_list.remove(waiter);
                hold!(
                    number.is_some(),
                    "invariant-4-answered-once",
                    "{waiter:?} does not wait for a list"
                );
                Ok(())
            }
            Output::List { ticket, .. } => {
                self.number = self.number.max(*ticket);
                self.liveness.list_asked(now)
            }
            Output::Inspect {
                ticket,
                uid,
                causes,
                ..
            } => {
                self.number = self.number.max(*ticket);
                self.inspection_asked(now, *ticket, uid, *causes)
            }
            Output::Read { ticket, .. } | Output::Version { ticket, .. } => {
                self.number = self.number.max(*ticket);
                Ok(())
            }
            // A cancelled read counts as failed.
            Output::Cancel { ticket } => {
                if let Some((uid, _)) = self.in_flight.remove(ticket) {
                    self.liveness.inspection_ended(now, &uid);
                    self.failed.entry(uid).or_default().push(*ticket);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The state that an event's type reports of its subject.
fn event_state(kind: Kind, event: EventType) -> Option<State> {
    match event {
        EventType::Created if kind == Kind::Container => Some(State::Created),
        EventType::Created | EventType::Started => Some(State::Running),
        EventType::Stopped => Some(State::Exited),
        EventType::Deleted => Some(State::Removed),
        _ => None,
    }
}
