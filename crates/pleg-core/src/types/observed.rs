//! The observations of the sources: events, lists, inspections. Plain data, in domain types.
//!
//! One [`Report`] is what one answer of the runtime contains about one id, in a list row, in a
//! status or in an event. A field that the runtime left out is `None` or empty, and never means
//! that nothing exists (invariant 7).

use std::sync::Arc;

use crate::types::error::CallError;
use crate::types::ids::{Id, Kind, PodUid};
use crate::types::status::{ContainerDetails, SandboxDetails, Text};
use crate::types::time::{Instant, WallTime};

/// The state that a runtime reports for an id.
///
/// A sandbox is `Running` if the runtime reports READY, and `Exited` if it reports NOTREADY, as
/// upstream maps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReportedState {
    /// A container that exists and was not started.
    Created,
    /// A running container, a ready sandbox.
    Running,
    /// A container that exited, a sandbox that is not ready.
    Exited,
    /// The runtime does not know the state. Outside the order: it never moves a state.
    Unknown,
}

/// The identity of an id. Each field is recorded once, from the first answer that has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Sandbox or container.
    pub kind: Kind,
    /// The pod, according to this answer: a sandbox's metadata uid, else the pod-uid label.
    pub pod: Option<PodUid>,
    /// Whether there is no pod-uid label, or it differs from a sandbox's metadata uid. A list of
    /// one pod selects by that label and does not show such an id.
    pub unlabelled: bool,
    /// The pod's namespace.
    pub namespace: Option<Text>,
    /// The pod's name.
    pub pod_name: Option<Text>,
    /// A container's sandbox.
    pub sandbox: Option<Id>,
    /// A container's name; `None` for a sandbox.
    pub name: Option<Text>,
    /// The number of earlier attempts under the same name.
    pub attempt: u32,
    /// When it was created according to the runtime.
    pub created_at: Option<WallTime>,
}

impl Identity {
    /// An identity of which only the kind is known.
    pub const fn unknown(kind: Kind) -> Self {
        Self {
            kind,
            pod: None,
            unlabelled: false,
            namespace: None,
            pod_name: None,
            sandbox: None,
            name: None,
            attempt: 0,
            created_at: None,
        }
    }

    /// Whether it tells which container of its pod this is, and which of those of one name is the
    /// newest: what decides about the start of another one.
    pub(crate) const fn tells_apart(&self) -> bool {
        let is_named = match self.kind {
            Kind::Sandbox => true,
            Kind::Container => self.sandbox.is_some() && self.name.is_some(),
        };
        is_named && self.created_at.is_some()
    }

    /// Whether `said` has no field that is missing here.
    pub(crate) const fn knows(&self, said: &Self) -> bool {
        const fn fills<T>(known: &Option<T>, said: &Option<T>) -> bool {
            known.is_none() && said.is_some()
        }
        !fills(&self.pod, &said.pod)
            && !fills(&self.namespace, &said.namespace)
            && !fills(&self.pod_name, &said.pod_name)
            && !fills(&self.sandbox, &said.sandbox)
            && !fills(&self.name, &said.name)
            && !fills(&self.created_at, &said.created_at)
            && (self.attempt != 0 || said.attempt == 0)
            && (!self.unlabelled || said.unlabelled)
    }
}

/// The details of an id: everything but its state and identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Details {
    /// Those of a sandbox.
    Sandbox(Arc<SandboxDetails>),
    /// Those of a container.
    Container(Arc<ContainerDetails>),
}

impl From<SandboxDetails> for Details {
    fn from(details: SandboxDetails) -> Self {
        Self::Sandbox(Arc::new(details))
    }
}

impl From<ContainerDetails> for Details {
    fn from(details: ContainerDetails) -> Self {
        Self::Container(Arc::new(details))
    }
}

impl Details {
    /// Empty details.
    pub fn none(kind: Kind) -> Self {
        match kind {
            Kind::Sandbox => Self::Sandbox(Arc::default()),
            Kind::Container => Self::Container(Arc::default()),
        }
    }
}

/// What one answer of the runtime contains about one id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Report {
    /// The id. Never empty.
    pub id: Id,
    /// Its state.
    pub shown: ReportedState,
    /// Its identity.
    pub identity: Identity,
    /// Its details; a list row has fewer than a status.
    pub details: Details,
}

impl Report {
    /// Whether it reports that a container was started.
    pub(crate) fn was_started(&self) -> bool {
        matches!(&self.details, Details::Container(c) if c.started_at.is_some())
    }
}

/// The type of a container event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EventType {
    /// CONTAINER_CREATED_EVENT
    Created,
    /// CONTAINER_STARTED_EVENT
    Started,
    /// CONTAINER_STOPPED_EVENT
    Stopped,
    /// CONTAINER_DELETED_EVENT
    Deleted,
    /// An unknown event type: only a hint that something changed.
    Other(i32),
}

/// One message of the event stream, as the runtime sent it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuntimeEvent {
    /// The sandbox or container that the event is about.
    pub id: Id,
    /// What happened to it.
    pub event: EventType,
    /// The runtime's timestamp of the event, in raw nanoseconds, any value. The runtime sets it
    /// after it has read the statuses. Used for plausibility and latency only, never for order.
    pub created_at: i64,
    /// The sandbox status in the event, if any.
    pub sandbox: Option<Report>,
    /// The container statuses in the event.
    pub containers: Vec<Report>,
}

/// An event with the reader's stamps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// The event.
    pub event: RuntimeEvent,
    /// When the reader received it.
    pub arrived: Instant,
    /// The local wall clock at that moment.
    pub wall: WallTime,
}

/// Why a stream ended, or could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamEnd {
    /// The runtime does not implement the call.
    NeverOffered,
    /// The runtime ended the call at once with OK: events are disabled (CRI-O).
    Disabled,
    /// The socket refuses connections, or the runtime refuses the call while it starts.
    Refused(CallError),
    /// The stream broke before anything arrived on it.
    Cut(CallError),
    /// The stream ended after an event had arrived, or after some time.
    Ended(Option<CallError>),
}

/// An observation of the stream side other than an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StreamChange {
    /// A call was issued. Whether the runtime has accepted it is not known yet.
    Subscribed {
        /// Stamped before the call was issued.
        at: Instant,
        /// The local wall clock at that moment.
        wall: WallTime,
    },
    /// The call has ended, or could not be issued.
    Ended {
        /// When the reader saw the end.
        at: Instant,
        /// How it ended.
        why: StreamEnd,
        /// When the next call will be issued at the earliest.
        retry_at: Instant,
    },
}

impl StreamChange {
    /// When it happened.
    pub const fn at(&self) -> Instant {
        match self {
            Self::Subscribed { at, .. } | Self::Ended { at, .. } => *at,
        }
    }
}

/// A complete or failed list of the whole node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct List {
    /// The request that this answers.
    pub ticket: Ticket,
    /// Stamped before the first call.
    pub began: Instant,
    /// Stamped after the last one.
    pub ended: Instant,
    /// All sandboxes and all containers, or the error: a list that is not complete says nothing
    /// (invariant 5).
    pub rows: Result<Rows, CallError>,
}

/// The ids that the reconciler knows with complete identity, in the order of ids.
///
/// An identity never changes, so a list row of such an id can only report a state. A list request
/// names these ids, and the reader decodes only the rows of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KnownIds(Arc<[(Id, Kind)]>);

impl KnownIds {
    /// The known ids, which must be sorted.
    pub(crate) fn new(in_order: Arc<[(Id, Kind)]>) -> Self {
        debug_assert!(in_order.is_sorted());
        Self(in_order)
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The index of an id of that kind.
    fn place(&self, id: &str, kind: Kind) -> Option<usize> {
        let place = self
            .0
            .binary_search_by(|(known, _)| known.cmp_str(id))
            .ok()?;
        (self.0[place].1 == kind).then_some(place)
    }
}

/// The rows of a complete list.
///
/// Built row by row: [`state_of`](Self::state_of) for each row, and [`push`](Self::push) for each
/// row that it does not accept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rows {
    known: KnownIds,
    /// The listed state of each known id; `None` if it is not listed.
    states: Box<[Option<ReportedState>]>,
    new: Vec<Report>,
}

impl Rows {
    /// The rows of an answer to a request that named the ids `known`, still empty.
    pub fn new(known: KnownIds) -> Self {
        Self {
            states: vec![None; known.len()].into(),
            known,
            new: Vec::new(),
        }
    }

    /// The rows of an answer to a request that named the ids `known`, from fully decoded rows.
    pub fn of(known: KnownIds, rows: impl IntoIterator<Item = Report>) -> Self {
        let mut all = Self::new(known);
        for row in rows {
            if !all.state_of(row.id.as_str(), row.identity.kind, row.shown) {
                all.push(row);
            }
        }
        all
    }

    /// Adds a row of which only id, kind and state are decoded, if the request named that id.
    /// Returns false if it did not, or if the id was listed before: then the row must be fully
    /// decoded and pushed.
    #[must_use]
    pub fn state_of(&mut self, id: &str, kind: Kind, shown: ReportedState) -> bool {
        let Some(place) = self.known.place(id, kind) else {
            return false;
        };
        let state = &mut self.states[place];
        let first = state.is_none();
        if first {
            *state = Some(shown);
        }
        first
    }

    /// Adds a fully decoded row.
    pub fn push(&mut self, row: Report) {
        self.new.push(row);
    }

    /// The ids that the request named.
    pub(crate) fn known_ids(&self) -> KnownIds {
        self.known.clone()
    }

    /// Whether both have the same rows, for the same set of known ids.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.known.0, &other.known.0)
            && self.states == other.states
            && self.new == other.new
    }

    /// Each id that the request named, with its listed state.
    pub(crate) fn known(&self) -> impl Iterator<Item = (&Id, Kind, Option<ReportedState>)> {
        let ids = self.known.0.iter().zip(&self.states);
        ids.map(|((id, kind), state)| (id, *kind, *state))
    }

    /// The fully decoded rows, in the order of the list.
    pub fn new_rows(&self) -> &[Report] {
        &self.new
    }

    /// Whether a known id of that kind is listed.
    pub(crate) fn lists_known(&self, id: &Id, kind: Kind) -> bool {
        let place = self.known.place(id.as_str(), kind);
        place.is_some_and(|place| self.states[place].is_some())
    }

    /// Whether every known id is listed, and no other id.
    pub(crate) fn lists_exactly_known(&self) -> bool {
        self.new.is_empty() && self.states.iter().all(Option::is_some)
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.new.len() + self.states.iter().flatten().count()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl FromIterator<Report> for Rows {
    /// The rows of an answer to a request that named no id.
    fn from_iter<T: IntoIterator<Item = Report>>(reports: T) -> Self {
        Self {
            new: reports.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// An id that is held for a pod, in the request for its inspection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeldId {
    /// The id.
    pub id: Id,
    /// Sandbox or container.
    pub kind: Kind,
    /// The recorded state. If the lists show it, the id has not changed.
    pub shown: ReportedState,
    /// Whether its status must be read even if the id has not changed.
    pub owed: bool,
}

/// A status call that failed or timed out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FailedStatus {
    /// The id.
    pub id: Id,
    /// Its row, if a list of the inspection showed it.
    pub row: Option<Report>,
    /// The error.
    pub error: CallError,
}

/// The result of reading one pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inspection {
    /// The request that this answers.
    pub ticket: Ticket,
    /// Stamped before the first call.
    pub began: Instant,
    /// Stamped after the last one.
    pub ended: Instant,
    /// Every status that was read.
    pub found: Vec<Report>,
    /// Every id that the request named, that no list of this inspection showed, and whose status
    /// call returned NotFound.
    pub gone: Vec<Id>,
    /// The row of every id that a list of this inspection showed and whose status call returned
    /// NotFound.
    pub unsettled: Vec<Report>,
    /// Every id whose status was not read, because the lists showed it in the state that the
    /// request gave.
    pub unchanged: Vec<(Id, ReportedState)>,
    /// Every status call that failed with another error.
    pub failed: Vec<FailedStatus>,
    /// Why a list of the inspection failed. Then only the statuses in `found` count.
    pub error: Option<CallError>,
}

impl Inspection {
    /// An empty inspection, failed if there is an error.
    pub const fn new(error: Option<CallError>) -> Self {
        Self {
            ticket: Ticket(0),
            began: Instant::ORIGIN,
            ended: Instant::ORIGIN,
            found: Vec::new(),
            gone: Vec::new(),
            unsettled: Vec::new(),
            unchanged: Vec::new(),
            failed: Vec::new(),
            error,
        }
    }

    /// Whether the inspection says something of the id.
    pub fn names(&self, id: &Id) -> bool {
        self.found.iter().any(|report| report.id == *id)
            || self.gone.contains(id)
            || self.unsettled.iter().any(|row| row.id == *id)
            || self.unchanged.iter().any(|(other, _)| other == id)
            || self.failed.iter().any(|failed| failed.id == *id)
    }
}

/// The read of a single status. It proves no freshness and no absence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StatusRead {
    /// The request that this answers.
    pub ticket: Ticket,
    /// Stamped before the call.
    pub began: Instant,
    /// Stamped after it.
    pub ended: Instant,
    /// The status.
    pub report: Result<Report, CallError>,
}

/// The result of a `Version` call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// The request that this answers.
    pub ticket: Ticket,
    /// Stamped after the call.
    pub ended: Instant,
    /// Success, or the error.
    pub outcome: Result<(), CallError>,
}

/// The number of a request to the read side. Later requests have higher numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<u64> for Ticket {
    fn from(number: u64) -> Self {
        Self(number)
    }
}
