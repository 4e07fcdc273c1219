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

mod backlog;
mod config;
mod counters;
mod details;
mod error;
mod evidence;
mod health;
mod ids;
mod inbox;
mod labels;
mod lifecycle;
mod loss;
mod observed;
mod order;
mod pending;
mod pod;
mod pod_read;
mod profile;
mod reconciler;
mod record;
mod records;
mod relist;
mod scheduler;
mod status;
mod stream;
mod terminal;
mod time;
mod tombstones;
mod waiters;

pub use backlog::Backlog;
pub use config::{InvalidSetting, Mode, Settings};
pub use counters::Counters;
pub use error::{CallError, CallErrorKind};
pub use health::{Degraded, Health, NotReady, PodName};
pub use ids::{Id, Kind, PodUid};
pub use inbox::Inbox;
pub use labels::{LabelKeys, Labels, Packed, Packing};
pub use lifecycle::{LifecycleType, PodLifecycleEvent, Source, Subject};
pub use loss::StreamLoss;
pub use observed::{
    Arrival, Details, EventType, FailedStatus, HeldId, Identity, Inspection, KnownIds, List,
    Report, ReportedState, Rows, RuntimeEvent, StatusRead, StreamChange, StreamEnd, Ticket,
    Version,
};
pub use pending::ExpectedEvent;
pub use pod_read::{PodCall, PodRead};
pub use profile::EventProfile;
pub use reconciler::{Confirmed, Output, Reconciler, StateCounts};
pub use scheduler::{Cause, Causes};
pub use status::{
    ContainerDetails, ContainerState, ContainerStatus, KnownState, PodStatus, PodView, Resources,
    SandboxDetails, SandboxState, SandboxStatus, Text,
};
pub use stream::StreamState;
pub use terminal::TerminalRecord;
pub use time::{Instant, WallTime};
pub use waiters::WaiterId;
