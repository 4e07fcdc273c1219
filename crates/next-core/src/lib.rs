//! A pod lifecycle event generator as a deterministic state machine.
//!
//! Events say where to look, reads say what is, and an end is final, so it is believed from either.
//! [`Reconciler`] wires small machines that do not know each other. No I/O, no clock, no wire types: observations
//! go in, outputs come out, and time is an argument.
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

mod announcements;
mod announcing;
mod backoff;
mod constants;
mod getters;
mod health;
mod hints;
mod inbox;
mod look_again;
mod loss;
mod outage;
mod output;
mod pod_read;
mod pods;
mod probe;
mod probing;
mod progress;
mod publishing;
mod read_schedule;
mod reconciler;
mod relist;
mod requests;
mod state_counts;
mod stream;
mod stream_check;
mod types;
mod waiters;

pub use health::{Degraded, Health, NotReady, PodName, Unacknowledged};
pub use inbox::Inbox;
pub use loss::StreamLoss;
pub use output::{Confirmed, Counters, EventCounts, MissedCounts, Output};
pub use reconciler::Reconciler;
pub use state_counts::StateCounts;
pub use stream::StreamState;
pub use stream_check::ExpectedEvent;
pub use types::config::{InvalidSetting, Mode, Settings};
pub use types::error::{CallError, CallErrorKind};
pub use types::event::{
    Arrival, EventType, RuntimeEvent, StreamChange, StreamEnd, StreamObservation,
};
pub use types::go_duration::GoDuration;
pub use types::hint::{Hint, HintMap};
pub use types::ids::{Id, Kind, PodUid};
pub use types::labels::{LabelKeys, Labels};
pub use types::lifecycle::{LifecycleType, PodLifecycleEvent, Source, Subject};
pub use types::profile::EventProfile;
pub use types::reads::{KnownIds, List, PodList, Rows, Statuses, Ticket, Version};
pub use types::report::{Details, Identity, Report, ReportedState};
pub use types::status::{
    ContainerDetails, ContainerState, ContainerStatus, KnownState, PodStatus, PodView, Resources,
    SandboxDetails, SandboxState, SandboxStatus, Text,
};
pub use types::time::{Instant, WallTime};
pub use waiters::WaiterId;
