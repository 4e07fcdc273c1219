//! A CRI v1 client for container runtimes on unix sockets.
//!
//! * [`CriRuntime`] implements [`Runtime`](pleg_runtime::Runtime): lists (streaming lists where the
//!   runtime supports them), status calls and the event stream. Every call has a deadline, metrics
//!   ([`describe_metrics`]) and errors that name the operation.
//! * [`CriClient`] has the calls of a kubelet that a generator does not make: sandboxes, containers,
//!   images, `ExecSync`, the runtime's status. Each write returns the instant after it ([`Written`]).
//! * [`CriRuntime::with_layer`] wraps the calls in [`tower`] layers.
//! * [`diagnose`] reports why an [`Endpoint`] cannot be used. [`find`] looks for a socket in the
//!   well-known locations.
//! * [`convert`] is the only module that converts wire types to domain types. [`quirks`] is the
//!   table of runtime behavior that the CRI does not specify.
//! * [`v1`] contains the wire types and services. They are generated from
//!   `proto/runtime/v1/api.proto` and committed, so a build needs neither protoc nor a build script.
//!
//! The only I/O is on the runtime's socket. Decoders keep a bounded number of values from earlier
//! responses, to share them with later ones.

mod budget;
mod client;
mod config;
mod connection;
pub mod convert;
mod decode;
mod diagnose;
mod endpoint;
mod error;
mod events;
mod interner;
mod lists;
mod metrics;
pub mod quirks;
pub mod rows;
mod runtime;
mod transport;
pub mod v1;
mod wire;

pub use client::{CriClient, Written};
pub use config::{ConfigError, CriConfig};
pub use decode::EventDecoder;
pub use diagnose::{ConnectError, diagnose};
pub use endpoint::{Endpoint, EndpointError, WellKnown, find, well_known};
pub use events::Events;
pub use metrics::describe_metrics;
pub use runtime::CriRuntime;
pub use transport::{CallRequest, CallResponse, CallService};
