//! A pod lifecycle event generator (PLEG): the part of a kubelet that detects what the container
//! runtime does to its pods.
//!
//! It takes changes from the runtime's event stream as they happen, checks the stream against
//! periodic lists, and loses no change that either source shows. One task owns the pod records. It
//! publishes a cache, announces lifecycle events and keeps a health state.
//!
//! ```
//! use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = pleg::runtime::fake::FakeRuntime::new();
//! // `runtime` implements `Runtime`: a CRI runtime (`pleg::cri::CriRuntime`; `Pleg::connect` makes
//! // one and a client for the write side), or a fake one (`pleg::runtime::fake`, feature `fake`).
//! let mut builder = pleg::Pleg::builder(runtime);
//! let mut events = builder.subscribe();
//! let pleg = builder.spawn()?;
//! pleg.wait_until_synced().await?;
//!
//! // When a lifecycle event arrives, the cache shows it already.
//! let watching = pleg.clone();
//! tokio::spawn(async move {
//!     while let Some(delivery) = events.next().await {
//!         match delivery {
//!             pleg::Delivery::Event(event) => {
//!                 let id = event.subject.as_ref().map(|s| &s.id);
//!                 println!("{} {}/{} {id:?}", event.event, event.namespace, event.pod_name);
//!             }
//!             pleg::Delivery::Synced => println!("all that existed at the start was announced"),
//!             // This task was too slow, and ends were lost: continue from a snapshot.
//!             _ => println!("{} pods", watching.snapshot().len()),
//!         }
//!     }
//! });
//!
//! // After a change in the runtime: get a status that is newer than the change.
//! let changed = pleg.now();
//! let uid = "8b9c7f0e-pod".into();
//! let view = pleg.newer_than(&uid, changed, Duration::from_secs(10)).await?;
//! assert!(view.status.is_nothing(), "a pod that does not exist is an answer, not an error");
//!
//! pleg.health().ready()?;
//! pleg.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What is guaranteed
//!
//! * State only moves forward: late, duplicate, reordered and replayed events do no harm. If reads
//!   prove that a recorded state is wrong, a new incarnation of the id is announced.
//! * Only reads answer [`Pleg::newer_than`], never an event or a timer.
//! * Each transition of an (id, incarnation) is announced at most once, and exactly once to a
//!   [`Subscription`] that keeps up. One that lags never loses a Died or Removed without getting
//!   [`Delivery::Lagged`].
//! * Events of what existed at the start are marked
//!   [`initial`](PodLifecycleEvent::initial); [`Delivery::Synced`] follows them.
//! * A hung pod does not delay other pods, and the node stays ready.
//! * Reconnecting never stops. When a lost stream returns, it is used again.
//!
//! # Crates
//!
//! [`core`] merges the sources; it is a deterministic state machine without I/O. [`runtime`] has
//! the [`Runtime`](runtime::Runtime) trait that a container runtime implements. The feature `cri`
//! (on by default) adds a CRI client (`cri`, `Pleg::connect`); only it links tonic and prost.

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
#[cfg(feature = "cri")]
pub use pleg_cri as cri;
pub use pleg_evented::{InvalidPolicy, ReconnectSettings};
pub use pleg_runtime as runtime;
pub use subscription::{Delivery, Subscription};
