//! What the sources hand over: events, list rows, inspections. Plain data, in domain types.
//!
//! One [`Report`] says what one answer of the runtime said about one id, whether it came in a
//! list row, in a status or inside an event. A field that a runtime left out is `None` or empty,
//! and is never read as "nothing there" (invariant 7).

use std::sync::Arc;

use crate::error::CallError;
use crate::ids::{Id, Kind, PodUid};
use crate::status::{ContainerDetails, SandboxDetails, Text};
use crate::time::{Instant, WallTime};

/// The state in which a runtime shows an id.
///
/// A sandbox is shown as `Running` where the runtime says READY and as `Exited` where it says
/// NOTREADY, as upstream maps them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReportedState {
    /// A container that exists and has not been started.
    Created,
    /// A running container, a ready sandbox.
    Running,
    /// A container that ended, a sandbox that is not ready.
    Exited,
    /// The runtime does not know. Outside the order: it never moves a state.
    Unknown,
}

/// Who an id is. Each field is recorded once, from the first answer that has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Sandbox or container.
    pub kind: Kind,
    /// The pod, as this answer names it: a sandbox's metadata uid, else the pod-uid label.
    pub pod: Option<PodUid>,
    /// There is no pod-uid label, or it names another pod than a sandbox's metadata uid. A list of
    /// one pod, which selects by that label, does not show such an id.
    pub unlabelled: bool,
    /// The pod's namespace.
    pub namespace: Option<Text>,
    /// The pod's name.
    pub pod_name: Option<Text>,
    /// A container's sandbox.
    pub sandbox: Option<Id>,
    /// A container's name; a sandbox has none of its own.
    pub name: Option<Text>,
    /// How often this was tried before under the same name.
    pub attempt: u32,
    /// When the runtime says that it was created.
    pub created_at: Option<WallTime>,
}

impl Identity {
    /// An identity of which nothing is known but the kind.
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

    /// Whether nothing is said that could fill a field of this one.
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

/// What is known of an id besides its state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Details {
    /// Of a sandbox.
    Sandbox(Arc<SandboxDetails>),
    /// Of a container.
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
    /// Details of which nothing is known.
    pub fn none(kind: Kind) -> Self {
        match kind {
            Kind::Sandbox => Self::Sandbox(Arc::default()),
            Kind::Container => Self::Container(Arc::default()),
        }
    }
}

/// What one answer of the runtime said about one id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Report {
    /// The id. Never empty.
    pub id: Id,
    /// Its state.
    pub shown: ReportedState,
    /// Who it is.
    pub identity: Identity,
    /// What else was said; a list row says less than a status.
    pub details: Details,
}

impl Report {
    /// Whether it says that a container was started.
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
    /// A number that this contract does not know: only a hint that something happened.
    Other(i32),
}

/// One message of the event stream, as the runtime sent it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuntimeEvent {
    /// The sandbox or container that the event is about.
    pub id: Id,
    /// What happened to it.
    pub event: EventType,
    /// When the runtime stamped the event, after it had read the statuses: raw nanoseconds, any
    /// number. Used for plausibility and latency only, never for order.
    pub created_at: i64,
    /// The one sandbox status that came along.
    pub sandbox: Option<Report>,
    /// The container statuses that came along.
    pub containers: Vec<Report>,
}

/// An event with the reader's stamps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arrival {
    /// What arrived.
    pub event: RuntimeEvent,
    /// When the reader had it in hand.
    pub arrived: Instant,
    /// Our wall clock at that moment.
    pub wall: WallTime,
}

/// Why a stream is over, or never was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StreamEnd {
    /// The runtime does not know the call.
    NeverOffered,
    /// The runtime ended the call at once and in good order: events are switched off (CRI-O).
    Disabled,
    /// Nobody listens on the socket, or the runtime refuses while it starts.
    Refused(CallError),
    /// The stream broke before anything had arrived on it.
    Cut(CallError),
    /// The stream ended after it had lived.
    Ended(Option<CallError>),
}

/// What the stream side observes besides the events themselves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum StreamChange {
    /// A call was issued; whether the runtime has taken it nobody can tell yet.
    Subscribed {
        /// Stamped before the call was issued.
        at: Instant,
        /// Our wall clock at that moment.
        wall: WallTime,
    },
    /// The call is over, or could not be issued.
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
    /// Which request this answers.
    pub ticket: Ticket,
    /// Stamped before the first call.
    pub began: Instant,
    /// Stamped after the last one.
    pub ended: Instant,
    /// All sandboxes and all containers, or why there are none: a list that is not complete says
    /// nothing at all (invariant 5).
    pub rows: Result<Rows, CallError>,
}

/// The ids that the reconciler knows with complete identity, in the order of ids.
///
/// An identity never changes, so the state is all that a list row of such an id can say. A list
/// request names these ids, and whoever reads the list decodes only the rows of the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KnownIds(Arc<[(Id, Kind)]>);

impl KnownIds {
    /// The known ids, which must be in order.
    pub(crate) fn new(in_order: Arc<[(Id, Kind)]>) -> Self {
        debug_assert!(in_order.is_sorted());
        Self(in_order)
    }

    /// The number of ids.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The place of an id of that kind.
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
/// Built row by row: [`state_of`](Self::state_of) for each row, and [`push`](Self::push) for
/// those that it does not take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rows {
    known: KnownIds,
    /// The listed state of each known id; `None` if it is not listed.
    states: Box<[Option<ReportedState>]>,
    new: Vec<Report>,
}

impl Rows {
    /// The answer to a list request that named the ids `known`, with no row yet.
    pub fn new(known: KnownIds) -> Self {
        Self {
            states: vec![None; known.len()].into(),
            known,
            new: Vec::new(),
        }
    }

    /// The answer to a list request that named the ids `known`, from rows that are all decoded.
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
    /// If it did not, or if the id was listed before, returns false: the row must be decoded as a
    /// whole, and pushed.
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

    /// Adds a row that was decoded as a whole.
    pub fn push(&mut self, row: Report) {
        self.new.push(row);
    }

    /// The ids that the request named.
    pub(crate) fn known_ids(&self) -> KnownIds {
        self.known.clone()
    }

    /// Whether both answer a request for the very same known ids, and alike.
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

    /// The rows that were decoded as a whole, in the order of the list.
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

    /// Whether no row was listed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl FromIterator<Report> for Rows {
    /// The answer to a request that named no id.
    fn from_iter<T: IntoIterator<Item = Report>>(reports: T) -> Self {
        Self {
            new: reports.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// An id that is held of a pod, in the request for its inspection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeldId {
    /// The id.
    pub id: Id,
    /// Sandbox or container.
    pub kind: Kind,
    /// The recorded state. Where the lists show it, the id has not changed.
    pub shown: ReportedState,
    /// Its status is to be read even if the id has not changed.
    pub owed: bool,
}

/// A status call that failed, or was not answered in time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FailedStatus {
    /// Of which id.
    pub id: Id,
    /// Its row, if a list of the inspection showed it.
    pub row: Option<Report>,
    /// How it failed.
    pub error: CallError,
}

/// What was read of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inspection {
    /// Which request this answers.
    pub ticket: Ticket,
    /// Stamped before the first call.
    pub began: Instant,
    /// Stamped after the last one.
    pub ended: Instant,
    /// Every status that was read.
    pub found: Vec<Report>,
    /// Every id that the request named, that no list of this inspection showed and whose own
    /// status call said NotFound.
    pub gone: Vec<Id>,
    /// The row of every id that a list of this inspection showed and whose own status call said
    /// NotFound.
    pub unsettled: Vec<Report>,
    /// Every id whose status was not read, because the lists of this inspection showed it in the
    /// state that the request gave.
    pub unchanged: Vec<(Id, ReportedState)>,
    /// Every status call that failed in another way.
    pub failed: Vec<FailedStatus>,
    /// Why a list of the inspection failed. If one did, the inspection says nothing but the
    /// statuses that it found.
    pub error: Option<CallError>,
}

impl Inspection {
    /// One that has read nothing yet, or failed.
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

/// One status, read for itself: no freshness and no absence follow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StatusRead {
    /// Which request this answers.
    pub ticket: Ticket,
    /// Stamped before the call.
    pub began: Instant,
    /// Stamped after it.
    pub ended: Instant,
    /// The status.
    pub report: Result<Report, CallError>,
}

/// The end of a call of `Version`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Version {
    /// Which request this answers.
    pub ticket: Ticket,
    /// Stamped after the call.
    pub ended: Instant,
    /// Whether the runtime answered.
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
