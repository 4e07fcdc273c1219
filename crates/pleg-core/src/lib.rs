//! A pod lifecycle event generator as a deterministic state machine.
//!
//! A kubelet has two sources for the state of its containers, and each has a flaw: the event stream
//! is immediate, but may drop, duplicate, reorder, delay and replay events; a list is correct for
//! the moment it was read, but late. [`Reconciler`] merges both: the state of an id only moves
//! forward, only reads make a status fresher, and every transition is announced at most once.
//!
//! This crate does no I/O, reads no clock and knows no wire type. Observations go in, outputs come
//! out, and time is an argument.
//!
//! ```
//! use pleg_core::{Instant, Output, Reconciler, Settings};
//!
//! let now = Instant::from_nanos(1);
//! let mut machine = Reconciler::new(Settings::default(), now)?;
//! // The first output is a request for a list of the node.
//! assert!(matches!(machine.poll_output(), Some(Output::List { .. })));
//! # Ok::<(), pleg_core::InvalidSetting>(())
//! ```

//! # Feature `serde`
//!
//! Off by default. Ids, times, states, details, lifecycle events and terminal records implement
//! `Serialize` and `Deserialize`. An [`Instant`] and a [`WallTime`] are numbers of nanoseconds;
//! `Instant`s have a meaning only in the process that they come from. Types that may hold a
//! [`CallError`] implement `Serialize` alone, because the name of its operation is a
//! `&'static str`: [`PodStatus`], [`PodView`], [`SandboxStatus`], [`ContainerStatus`], [`Health`],
//! [`Degraded`], [`StreamState`] and [`StreamEnd`].

mod queues;
mod reconciler;
mod schedule;
mod state;
mod types;

pub use queues::inbox::Inbox;
pub use queues::stream_queue::{Kept, QueueBounds, QueueCounts, StreamQueue};
pub use reconciler::counters::{CauseCounts, Counters, EventCounts, MissedCounts};
pub use reconciler::health::{Degraded, Health, NotReady, PodName};
pub use reconciler::{Confirmed, Output, Reconciler, StateCounts};
pub use schedule::cause::{Cause, Causes};
pub use schedule::loss::StreamLoss;
pub use schedule::pod_read::{PodCall, PodRead};
pub use schedule::profile::EventProfile;
pub use schedule::stream::StreamState;
pub use schedule::waiters::WaiterId;
pub use state::reports::ExpectedEvent;
pub use state::terminal::{ConsumerId, TerminalRecord, Unacknowledged};
pub use types::config::{InvalidSetting, Mode, Settings};
pub use types::error::{CallError, CallErrorKind};
pub use types::event::{
    Arrival, EventType, RuntimeEvent, StreamChange, StreamEnd, StreamObservation,
};
pub use types::go_duration::GoDuration;
pub use types::ids::{Id, Kind, PodUid};
pub use types::labels::{LabelKeys, Labels};
pub use types::lifecycle::{LifecycleType, PodLifecycleEvent, Source, Subject};
pub use types::reads::{
    FailedStatus, HeldId, Inspection, KnownIds, List, Rows, StatusRead, Ticket, Version,
};
pub use types::report::{Details, Identity, Report, ReportedState};
pub use types::status::{
    ContainerDetails, ContainerState, ContainerStatus, KnownState, PodStatus, PodView, Resources,
    SandboxDetails, SandboxState, SandboxStatus, Text,
};
pub use types::time::{Instant, WallTime};
