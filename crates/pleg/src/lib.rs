//! A pod lifecycle event generator (PLEG): the part of a kubelet that knows what the container
//! runtime has done to its pods.
//!
//! It hears of changes from the runtime's event stream at once, checks itself against slow lists,
//! and loses nothing that either of them shows. One task owns all that is known; it publishes a
//! cache, announces lifecycle events and keeps a health state.
//!
//! ```
//! use std::time::Duration;
//! # use pleg::core::{CallError, Id, Report, RuntimeEvent};
//! # use pleg::runtime::{Row, Runtime, RuntimeVersion, Scope};
//! # struct Quiet;
//! # impl Runtime for Quiet {
//! #     type Events = futures::stream::Pending<Result<RuntimeEvent, CallError>>;
//! #     async fn list_sandboxes(
//! #         &self, _: &Scope, _: &mut (dyn FnMut(Row<'_>) + Send),
//! #     ) -> Result<(), CallError> { Ok(()) }
//! #     async fn list_containers(
//! #         &self, _: &Scope, _: &mut (dyn FnMut(Row<'_>) + Send),
//! #     ) -> Result<(), CallError> { Ok(()) }
//! #     async fn sandbox_status(&self, _: &Id) -> Result<Report, CallError> { unreachable!() }
//! #     async fn container_status(&self, _: &Id) -> Result<Report, CallError> { unreachable!() }
//! #     async fn subscribe(&self) -> Result<Self::Events, CallError> {
//! #         Ok(futures::stream::pending())
//! #     }
//! #     async fn version(&self) -> Result<RuntimeVersion, CallError> { unreachable!() }
//! # }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = Quiet;
//! // `runtime` is anything that implements `Runtime`: a CRI runtime by its endpoint
//! // (`CriRuntime` of `pleg-cri`, or `Pleg::connect`), or one made by hand in a test.
//! let mut builder = pleg::Pleg::builder(runtime);
//! let mut events = builder.subscribe();
//! let pleg = builder.spawn()?;
//! pleg.wait_until_synced().await?;
//!
//! // Lifecycle events. When one arrives, the cache shows it already.
//! let watching = pleg.clone();
//! tokio::spawn(async move {
//!     while let Some(delivery) = events.next().await {
//!         match delivery {
//!             pleg::Delivery::Event(event) => {
//!                 let id = event.subject.as_ref().map(|s| &s.id);
//!                 println!("{} {}/{} {id:?}", event.event, event.namespace, event.pod_name);
//!             }
//!             // Too slow for too long: go on from what exists now.
//!             _ => println!("{} pods", watching.snapshot().len()),
//!         }
//!     }
//! });
//!
//! // After changing something in the runtime: a status that cannot be from before the change.
//! let changed = pleg.now();
//! let uid = "8b9c7f0e-pod".into();
//! let view = pleg.newer_than(&uid, changed, Duration::from_secs(10)).await?;
//! assert!(view.status.is_nothing(), "as of then, nothing: an answer, not an error");
//!
//! pleg.health().ready()?;
//! pleg.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What is guaranteed
//!
//! * State only moves forward: late, doubled, swapped and replayed events do no harm. Where
//!   reads prove that something believed was wrong, a new incarnation of the id is announced.
//! * [`Pleg::newer_than`] is answered by reads alone, never by an event or a timer.
//! * Each transition of an (id, incarnation) is announced at most once, and each to a
//!   [`Subscription`] that keeps up; one that lags never loses an end in silence.
//! * A hung pod is a hung pod: the others go on, and the node stays ready.
//! * There is no last retry. When a lost stream is back, it is used again.
//!
//! # Rooms
//!
//! The merge itself is [`core`], a deterministic machine without I/O. [`runtime`] is the seam to
//! a container runtime. With the feature `cri` (on by default) a runtime is reached by its
//! endpoint, and only then are tonic and prost linked.

mod builder;
mod cache;
#[cfg(feature = "cri")]
mod connect;
mod driver;
mod error;
mod fifo;
mod handle;
#[cfg(all(test, shuttle))]
mod interleavings;
mod log;
mod metrics;
mod outputs;
mod requests;
mod subscription;
mod sync;

pub use builder::Builder;
#[cfg(feature = "cri")]
pub use connect::ConnectError;
pub use error::{RelistError, StartError, WaitError};
pub use fifo::{Fifo, FifoEvent};
pub use handle::{HealthWatch, Pleg};
pub use pleg_core as core;
pub use pleg_core::{
    ContainerState, ContainerStatus, Health, Id, Instant, Kind, LifecycleType, Mode, NotReady,
    PodLifecycleEvent, PodStatus, PodUid, PodView, Settings, Source, Subject, TerminalRecord,
    WallTime,
};
pub use pleg_evented::{InvalidPolicy, ReconnectSettings};
pub use pleg_runtime as runtime;
pub use subscription::{Delivery, Subscription};
