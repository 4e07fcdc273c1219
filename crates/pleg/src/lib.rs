//! A pod lifecycle event generator (PLEG): the part of a kubelet that detects what the runtime does to its pods.
//!
//! After an event about a pod, the generator reads the pod, unless the event shows an exit and its code (which is
//! final). Periodic lists find changes without an event. No start, exit or removal that events or lists show is missed.
//! One task, the driver, owns all state, and publishes pod statuses, health and lifecycle events.
//!
//! ```
//! use std::time::Duration;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = pleg::runtime::fake::FakeRuntime::new();
//! // `runtime` is any implementation of `Runtime`, here a fake one (`pleg::runtime::fake`, feature `fake`). For a CRI
//! // runtime, `Pleg::connect` returns the builder, and a client for calls that change something.
//! let mut builder = pleg::Pleg::builder(runtime);
//! let mut events = builder.subscribe();
//! let pleg = builder.spawn()?;
//! pleg.wait_until_synced().await?;
//!
//! // When a subscriber gets a lifecycle event, the cache already shows the change.
//! let watching = pleg.clone();
//! tokio::spawn(async move {
//!     while let Some(delivery) = events.next().await {
//!         match delivery {
//!             pleg::Delivery::Event(event) => {
//!                 let id = event.subject.as_ref().map(|s| &s.id);
//!                 println!("{} {}/{} {id:?}", event.event, event.namespace, event.pod_name);
//!             }
//!             pleg::Delivery::Synced => println!("all that existed at the start was announced"),
//!             // `Lagged`: this task was too slow, and announcements were dropped. Continue from a snapshot.
//!             _ => println!("{} pods", watching.snapshot().len()),
//!         }
//!     }
//! });
//!
//! // After this program has changed something in the runtime: get a status that was read after the change.
//! let changed = pleg.now();
//! let uid = "8b9c7f0e-pod".into();
//! let view = pleg.newer_than(&uid, changed, Duration::from_secs(10)).await?;
//! assert!(!view.status.exists(), "a pod that does not exist is an answer, not an error");
//!
//! pleg.health().ready()?;
//! pleg.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! The worker of a pod waits for changes of that pod and reads a status newer than its own last change. The generator
//! stores exit records until the worker has acknowledged them:
//!
//! ```
//! use std::time::Duration;
//!
//! use pleg::{
//!     CallErrorKind, Consumer, ContainerState, ContainerStatus, Instant, PodHandle, SandboxState,
//!     SandboxStatus, Exit, WaitError,
//! };
//!
//! fn blocks_new_sandbox(sandbox: &SandboxStatus) -> bool {
//!     sandbox.state == SandboxState::Ready
//! }
//!
//! fn has_failed(container: &ContainerStatus) -> bool {
//!     // An exit code that is not known may become known later.
//!     container.state == ContainerState::Exited && container.details.exit_code != Some(0)
//! }
//!
//! fn restarts(records: &[Exit]) -> u32 {
//!     records.iter().map(|r| r.attempt + 1).max().unwrap_or(0)
//! }
//!
//! async fn work(mut pod: PodHandle, consumer: Consumer, mut own_change: Instant) {
//!     while pod.changed().await {
//!         let view = match pod.newer_than(own_change, Duration::from_secs(10)).await {
//!             Ok(view) => view,
//!             Err(WaitError::Closed) => return,
//!             Err(WaitError::Read { error, .. }) if error.kind == CallErrorKind::Unavailable => {
//!                 continue; // The runtime restarts. Later, `changed` reports what happened meanwhile.
//!             }
//!             Err(error) => {
//!                 eprintln!("{}: {error}", pod.uid());
//!                 continue;
//!             }
//!         };
//!         let ends = pod.exits();
//!         let restarts = restarts(&ends);
//!         let failed = view.status.containers.iter().filter(|c| has_failed(c));
//!         for container in failed {
//!             println!("{} has failed ({restarts} times so far)", container.name);
//!             // A real worker restarts the container here, and sets `own_change` to the instant after the call.
//!         }
//!         if !view.status.sandboxes.iter().any(blocks_new_sandbox) {
//!             println!("the pod needs a sandbox");
//!         }
//!         for end in ends.iter() {
//!             consumer.acknowledge(end).await;
//!         }
//!     #   own_change = own_change.max(view.as_of.unwrap_or(own_change));
//!     }
//! }
//! # use pleg::runtime::fake::{FakeRuntime, exited};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let runtime = FakeRuntime::new();
//! # runtime.run_pod("p");
//! # let pleg = pleg::Pleg::builder(runtime.clone()).spawn()?;
//! # pleg.wait_until_synced().await?;
//! # let consumer = pleg.register_consumer("worker").await?;
//! # let worker = tokio::spawn(work(pleg.pod(&"p".into()), consumer, pleg.now()));
//! # let id = "p-c".into();
//! # assert!(!pleg.is_acknowledged(&id).await);
//! # runtime.put_and_emit(exited("p", "c", 1), pleg::core::EventType::Stopped);
//! # while !pleg.is_acknowledged(&id).await {
//! #     tokio::task::yield_now().await;
//! # }
//! # pleg.shutdown().await;
//! # worker.await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is guaranteed
//!
//! * Late, duplicate, reordered and replayed events do no harm: an event only causes a read, except that the generator
//!   records an exit at once if the status in the event shows it. An exit is final, unless a read that begins more than
//!   10 s after its detection shows that the container is running.
//! * Only reads answer [`Pleg::newer_than`], never an event or a timer.
//! * Each change of state of a container or sandbox is announced at most once, unless a read has shown that its exit
//!   was wrong. A [`Subscription`] that keeps up gets every announcement. A subscription that lags gets
//!   [`Delivery::Lagged`] if it loses the last Died or Removed of a container or sandbox.
//! * Events about containers and sandboxes that existed at the start are marked
//!   [`initial`](PodLifecycleEvent::initial); [`Delivery::Synced`] follows them.
//! * If the calls about one pod hang, other pods are read without delay, and the node stays ready.
//! * After the loss of the event stream, the generator tries to reconnect until it succeeds; then it uses events again.
//!
//! # Crates
//!
//! [`core`] is a deterministic state machine without I/O that decides what to read and applies the results. [`runtime`]
//! has the [`Runtime`] trait that a container runtime implements. `cri` is a CRI client; only it links tonic and prost.
//!
//! # Features
//!
//! | feature | default | adds |
//! | --- | --- | --- |
//! | `cri` | yes | `Pleg::connect` and the module `cri`: a client of CRI runtimes, for reads and writes |
//! | `fake` | no | [`runtime::fake`](pleg_runtime): a runtime in memory, for tests |
//! | `serde` | no | `Serialize` and `Deserialize` for the published types ([`core`] says which) |
//!
//! # Failures
//!
//! | what fails | what happens |
//! | --- | --- |
//! | a setting is invalid, or there is no tokio runtime | [`Builder::spawn`] returns [`StartError`]; nothing was started |
//! | the runtime does not answer, or restarts | the generator retries and reconnects without end. [`HealthWatch::degraded`] reports it; [`HealthWatch::ready`] fails after 3 min |
//! | a list fails or hangs | the list has a deadline (30 s, growing to 2 min); the next list follows after 1 s |
//! | calls about one pod hang or fail | its last good status stays, with the error ([`PodStatus::error`]); [`HealthWatch::pod_problems`] names the pod; other pods and readiness are not affected |
//! | the stream loses events | lists show the lost changes; the relist period becomes 1 s; once the stream has lost two events and 1 % of the expected ones in 10 min, [`Degraded`] reports the share |
//! | a wait takes too long | [`WaitError::DeadlineExceeded`]; the cache does not change |
//! | a consumer is too slow | its announcements are coalesced per id, then [`Delivery::Lagged`]: take a [`snapshot`](Pleg::snapshot) |
//! | the event stream panics | its reader subscribes again, as after a lost stream, and counts the panic |
//! | the driver panics, or the tokio runtime is dropped | subscriptions end, waits return [`WaitError::Closed`], statuses have an error, readiness fails at once |
//!
//! # Metrics
//!
//! Metrics go to the global recorder of the crate `metrics`, or to the recorder of [`Builder::metrics`], with the label
//! `name` if [`Builder::name`] is set. No label has the name or id of a pod or container. The most important ones:
//!
//! | metric | type | meaning |
//! | --- | --- | --- |
//! | `pleg_ready` | gauge | 1 while [`HealthWatch::ready`] succeeds: complete lists are recent, and the driver is not stalled |
//! | `pleg_not_ready`, `pleg_degraded` | gauge | 1 for each `reason` that applies now |
//! | `pleg_relist_period_seconds` | gauge | the present relist period: 1 s to 60 s |
//! | `pleg_list_in_flight_seconds` | gauge | time since the start of the list in flight |
//! | `kubelet_pleg_relist_duration_seconds` | histogram | duration of a full list, even if it failed |
//! | `pleg_event_latency_seconds` | histogram | time from the runtime's timestamp of an event to its arrival |
//! | `pleg_missed_events_total` | counter | events that the stream did not deliver |
//! | `pleg_pods_failing` | gauge | pods that cannot be read |
//! | `pleg_unacknowledged_timestamp_seconds` | gauge | detection time of the earliest exit that a registered `consumer` has not acknowledged; 0 if there is none |
//!
//! [`describe_metrics`] registers the descriptions of a generator's metrics, as [`Builder::spawn`] does.
//! `pleg_cri::describe_metrics` registers those of the metrics about calls to a CRI runtime.

mod builder;
mod cache;
#[cfg(feature = "cri")]
mod connect;
mod consumer;
mod driver;
mod error;
mod exit_records;
mod fifo;
mod handle;
mod inbox;
#[cfg(all(test, shuttle))]
mod interleavings;
mod log;
mod metrics;
mod outputs;
mod pod;
mod problems;
mod reads;
mod recorder;
mod requests;
mod subscription;
mod sync;

pub use builder::Builder;
#[cfg(feature = "cri")]
pub use connect::ConnectError;
pub use consumer::Consumer;
pub use error::{RelistError, StartError, WaitError};
pub use exit_records::Exit;
pub use fifo::{Fifo, FifoEvent};
pub use handle::{HealthWatch, Pleg};
pub use metrics::describe_metrics;
pub use pleg_core as core;
pub use pleg_core::{
    CallError, CallErrorKind, ContainerDetails, ContainerState, ContainerStatus, Counters,
    Degraded, EventCounts, Health, Id, Instant, InvalidSetting, Kind, KnownState, Labels,
    LifecycleType, MissedCounts, Mode, NotReady, PodLifecycleEvent, PodName, PodStatus, PodUid,
    PodView, Resources, SandboxDetails, SandboxState, SandboxStatus, Settings, Source, StreamEnd,
    StreamLoss, StreamState, Subject, Text, Unacknowledged, WallTime,
};
#[cfg(feature = "cri")]
pub use pleg_cri as cri;
pub use pleg_evented::{InvalidPolicy, ReconnectSettings};
pub use pleg_runtime as runtime;
pub use pleg_runtime::Runtime;
pub use pleg_runtime::clock::Clock;
pub use pod::PodHandle;
pub use problems::{PodProblem, PodProblemKind};
pub use subscription::{Delivery, Events, Subscription};

/// Compiles the code in the documentation pages about the workspace's crates.
#[cfg(all(doctest, feature = "cri"))]
mod pages {
    #[doc = include_str!("../../../docs/first-steps.md")]
    mod first_steps {}
    #[doc = include_str!("../../../docs/migrating.md")]
    mod migrating {}
    #[doc = include_str!("../../../README.md")]
    mod readme {}
}
