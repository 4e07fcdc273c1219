//! What the sources hand over: events, list rows, inspections. Plain data, in domain types.
//!
//! One [`Report`] says what one answer of the runtime said about one id, whether it came in a
//! list row, in a status or inside an event. A field that a runtime left out is `None` or empty,
//! and is never read as "nothing there" (law 7).

use std::num::NonZeroU64;
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
pub enum Shown {
    /// A container that exists and has not been started.
    Created,
    /// A running container, a ready sandbox.
    Running,
    /// A container that ended, a sandbox that is not ready.
    Exited,
    /// The runtime does not know. Outside the order: it never moves a state.
    Unknown,
}

/// Who an id is. Each field is believed once, from the first answer that has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// Sandbox or container.
    pub kind: Kind,
    /// The pod, as this answer names it: a sandbox's metadata uid, else the pod-uid label.
    pub pod: Option<PodUid>,
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
    pub shown: Shown,
    /// Who it is.
    pub identity: Identity,
    /// What else was said; a list row says less than a status.
    pub details: Details,
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
    /// nothing at all (law 5).
    pub rows: Result<Rows, CallError>,
}

/// The rows of a complete list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rows {
    /// Those that may say something new, as the runtime lists them.
    pub full: Vec<FullRow>,
    /// Those that say what they said before, but for the state, in order of their ids.
    ///
    /// A list that shows once more what the one before showed may hand over the very same slice:
    /// where nothing has happened since, it takes no look at any row.
    pub unchanged: Arc<[Unchanged]>,
}

impl FromIterator<Report> for Rows {
    /// All of them in full, and none by which it would be known again.
    fn from_iter<T: IntoIterator<Item = Report>>(reports: T) -> Self {
        let full = |report| FullRow {
            report,
            fingerprint: None,
        };
        Self {
            full: reports.into_iter().map(full).collect(),
            unchanged: Arc::default(),
        }
    }
}

/// A row of a list, and all that it says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FullRow {
    /// What it says.
    pub report: Report,
    /// By which it is known again; none where the runtime gives none.
    pub fingerprint: Option<Fingerprint>,
}

/// A row that says what an earlier one said, but for the state.
///
/// Whoever read it need not be believed in that: the row counts only where the last full row of
/// this id had the same fingerprint, and a list with a row that cannot be resolved so, or is out of
/// order, says nothing at all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unchanged {
    /// The id.
    pub id: Id,
    /// Sandbox or container.
    pub kind: Kind,
    /// Its state.
    pub shown: Shown,
    /// Of all that the row says, but for the state.
    pub fingerprint: Fingerprint,
}

/// A number that stands for all that a list row says, but for its state. Rows with equal
/// fingerprints say the same, of the same id; rows that say the same have equal ones as a rule. Zero
/// counts as [`u64::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
// So that one that may be missing takes no more room.
pub struct Fingerprint(NonZeroU64);

impl Fingerprint {
    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl From<u64> for Fingerprint {
    fn from(number: u64) -> Self {
        Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MAX))
    }
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
    /// Why the inspection is partial; `None` if it is complete.
    pub error: Option<CallError>,
}

/// One status, read for itself: no freshness and no absence follow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reading {
    /// Which request this answers.
    pub ticket: Ticket,
    /// Stamped before the call.
    pub began: Instant,
    /// Stamped after it.
    pub ended: Instant,
    /// The status.
    pub report: Result<Report, CallError>,
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
