//! A CRI v1 client for container runtimes on unix sockets.
//!
//! ```no_run
//! use pleg_cri::{CriConfig, CriRuntime};
//! use pleg_runtime::{Runtime as _, Scope};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let endpoint = "unix:///run/containerd/containerd.sock".parse()?;
//! let runtime = CriRuntime::new(CriConfig::new(endpoint))?;
//! let version = runtime.version().await?;
//! println!("{} {}", version.name, version.version);
//! let mut containers = 0;
//! runtime.list_containers(&Scope::Node, &mut |_row| containers += 1).await?;
//! println!("{containers} containers");
//! # Ok(())
//! # }
//! ```
//!
//! * [`CriRuntime`] implements [`Runtime`](pleg_runtime::Runtime): lists (streaming lists where the runtime supports
//!   them), status calls and the event stream. Every call except the event stream has a deadline. All have metrics
//!   ([`describe_metrics`]) and errors that name the operation.
//! * [`CriClient`] has the CRI calls that a kubelet makes but its PLEG does not: for sandboxes, containers, images,
//!   `ExecSync`, the runtime's status. Each write returns the instant at which it ended ([`Written`]).
//! * [`CriRuntime::with_layer`] wraps the calls in [`tower`] layers.
//! * [`diagnose()`] reports why an [`Endpoint`] cannot be used. [`find`] looks for a socket in the
//!   well-known locations.
//! * [`convert`] and [`rows`] convert wire types to domain types. [`quirks`] is the
//!   table of runtime behavior that the CRI does not specify.
//! * [`v1`] contains the wire types and services. They are generated from
//!   `proto/runtime/v1/api.proto` and committed, so a build needs neither protoc nor a build script.
//!
//! | feature | default | what it adds |
//! | --- | --- | --- |
//! | `server` | no | the server traits of the services in [`v1`], for simulators and tests |
//!
//! All I/O is on connections to the runtime, except that [`find`] and [`diagnose()`] also read the types of files.

mod budget;
mod client;
mod config;
mod connection;
pub mod convert;
mod diagnose;
mod endpoint;
mod error;
mod events;
mod lists;
mod metrics;
pub mod quirks;
pub mod rows;
mod runtime;
mod subscriber_check;
mod transport;
pub mod v1;

pub use client::{CriClient, Written};
pub use config::{ConfigError, CriConfig};
pub use diagnose::{ConnectError, diagnose};
pub use endpoint::{Endpoint, EndpointError, WellKnown, find, well_known};
pub use events::Events;
pub use metrics::describe_metrics;
pub use runtime::CriRuntime;
pub use transport::{CallBody, CallRequest, CallResponse, CallService};
