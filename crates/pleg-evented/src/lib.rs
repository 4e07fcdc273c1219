//! The stream side: subscribes to a runtime's events, drains them, classifies the end of a stream,
//! and reconnects, for ever.
//!
//! [`run`] is its entry point. It stamps each event and passes it on, in the order of arrival,
//! without interpreting it. It never waits for the writer, because a subscriber that stops reading
//! blocks containerd's own container creation (invariant 8). While the writer is slow, queued
//! events are joined per id.
//!
//! It uses only [`Runtime::subscribe`] of its [`Runtime`], and the clock: no gRPC, no merge, no
//! lock that is held elsewhere.
//!
//! ```
//! use std::sync::Arc;
//!
//! use pleg_evented::{ReconnectPolicy, ReconnectSettings, handover, run};
//! use pleg_runtime::core::{StreamChange, StreamObservation};
//! use pleg_runtime::fake::FakeRuntime;
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = FakeRuntime::new();
//! let (sender, mut observations) = handover(16);
//! let shutdown = CancellationToken::new();
//! let reader = tokio::spawn(run(
//!     Arc::new(runtime.clone()),
//!     runtime.clock(),
//!     ReconnectPolicy::new(ReconnectSettings::default())?,
//!     sender,
//!     Arc::default(),
//!     shutdown.clone(),
//! ));
//! let first = observations.recv().await;
//! assert!(matches!(
//!     first,
//!     Some(StreamObservation::Change(StreamChange::Subscribed { .. }))
//! ));
//! shutdown.cancel();
//! reader.await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Runtime`]: pleg_runtime::Runtime
//! [`Runtime::subscribe`]: pleg_runtime::Runtime::subscribe

mod backoff;
mod gauges;
mod handover;
mod policy;
mod reader;
mod stream_end;

pub use gauges::ReaderGauges;
pub use handover::{ObservationSender, Observations, handover};
pub use policy::{InvalidPolicy, ReconnectPolicy, ReconnectSettings};
pub use reader::run;
