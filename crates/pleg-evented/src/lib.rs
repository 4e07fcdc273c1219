//! The stream side of the pod lifecycle event generator (PLEG): subscribes to a runtime's events, drains them,
//! classifies the end of a stream, and always reconnects.
//!
//! [`run`] is the entry point of this crate. It merges each event into the hint of the event's id. It never waits for
//! the receiver of the hints, because a subscriber that stops reading blocks containerd's container creation.
//!
//! The crate uses only the clock and two methods of [`Runtime`]: [`Runtime::subscribe`] and `stream_hazard`. It uses no
//! gRPC, and holds no lock for longer than it takes to swap a map.
//!
//! ```
//! use std::sync::Arc;
//!
//! use pleg_evented::{ReconnectPolicy, ReconnectSettings, handover, run};
//! use pleg_runtime::core::StreamChange;
//! use pleg_runtime::fake::FakeRuntime;
//! use tokio_util::sync::CancellationToken;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = FakeRuntime::new();
//! let (sender, hints) = handover();
//! let shutdown = CancellationToken::new();
//! let reader = tokio::spawn(run(
//!     Arc::new(runtime.clone()),
//!     runtime.clock(),
//!     ReconnectPolicy::new(ReconnectSettings::default())?,
//!     sender,
//!     Arc::default(),
//!     shutdown.clone(),
//! ));
//! hints.wait().await;
//! let first = hints.take().changes.pop_front();
//! assert!(matches!(first, Some(StreamChange::Subscribed { .. })));
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
pub use handover::{Batch, HintSender, Hints, handover};
pub use policy::{InvalidPolicy, ReconnectPolicy, ReconnectSettings};
pub use reader::run;
