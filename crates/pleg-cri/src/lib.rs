//! CRI v1 over unix sockets: how a container runtime is reached, asked and understood.
//!
//! * [`CriRuntime`] implements [`Runtime`](pleg_runtime::Runtime): lists (streamed where the
//!   runtime offers it), statuses, the event stream; every call with a deadline, a measurement
//!   ([`describe_metrics`]) and an error that names it.
//! * [`diagnose`] says what is wrong with an [`Endpoint`]; [`find`] looks at the usual places.
//! * [`convert`] is the only place where wire types become domain types, and [`quirks`] the one
//!   table of what runtimes do beside the contract.
//! * [`v1`] holds the wire types and services, generated from this project's own
//!   `proto/runtime/v1/api.proto` and committed: building needs no protoc and no build script.
//!
//! May touch: the runtime's socket. Of what an answer said it keeps, bounded, only what the next
//! one is likely to say again.

mod config;
pub mod convert;
mod decode;
mod diagnose;
mod endpoint;
mod error;
mod events;
mod lists;
mod metrics;
mod pool;
pub mod quirks;
pub mod rows;
mod runtime;
mod transport;
pub mod v1;
mod wire;

pub use config::{ConfigError, CriConfig};
pub use decode::EventDecoder;
pub use diagnose::{ConnectError, diagnose};
pub use endpoint::{Endpoint, EndpointError, WellKnown, find, well_known};
pub use events::Events;
pub use metrics::describe_metrics;
pub use runtime::CriRuntime;
