//! A pod lifecycle event generator as a deterministic machine.
//!
//! A kubelet must know what the container runtime has done to its pods. It has two ways to find
//! out, and both lose something: the event stream is immediate and may drop, duplicate, reorder,
//! delay and replay; the list is true for the moment it was read, and late. [`Reconciler`] merges
//! both into one truth: the state of an id only moves forward, freshness comes from reads alone,
//! and every transition is announced at most once.
//!
//! Nothing here does I/O, reads a clock or knows a wire type: observations go in, outputs come
//! out, time is an argument.
//!
//! ```
//! use pleg_core::{Instant, Output, Reconciler, Settings};
//!
//! let now = Instant::from_nanos(1);
//! let mut machine = Reconciler::new(Settings::default(), now)?;
//! // The first thing that it wants is a list of the node.
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
