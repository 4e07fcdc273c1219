//! What a kubelet builds on a pod lifecycle event generator.
//!
//! The parts are small and independent. A run of a pod takes three steps:
//!
//! 1. [`worker`] makes the [`Run`](worker::Run), with a status that is newer than the worker's own
//!    last change. `PodWorkers` does that for all pods, or a loop of your own for one.
//! 2. [`plan::Planner`] plans what the pod needs, from its [`spec`], its status, how its containers
//!    ended and the crash back-off.
//! 3. `perform::Performer` (feature `k8s-openapi`) performs the [`Plan`](plan::Plan). With a client
//!    of your own, [`begin`](plan::Plan::begin) it and make its calls.
//!
//! # A kubelet loop
//!
//! The runtime is a fake one here, and the client is of the author's own. The calls of the CRI client
//! take time: each is followed by [`Run::changed`](worker::Run::changed) with the instant after it,
//! whether it succeeded or not.
//!
//! ```
//! use std::time::Duration;
//!
//! use pleg::core::{EventType, ReportedState::Running};
//! use pleg::runtime::fake::{self, FakeRuntime};
//! use pleg::{Pleg, PodUid, WaitError};
//! use pleg_kubelet::actions::Desired;
//! use pleg_kubelet::backoff::BackOffSettings;
//! use pleg_kubelet::plan::Planner;
//! use pleg_kubelet::spec::{ContainerSpec, PodSpec};
//! use pleg_kubelet::worker::{Action, PodWorkers, Reconcile, Run, WorkerSettings};
//!
//! struct Kubelet {
//!     runtime: FakeRuntime,
//!     planner: Planner,
//! }
//! impl Reconcile for Kubelet {
//!     type Spec = PodSpec;
//!     type Error = WaitError;
//!     async fn reconcile(&self, run: &Run<PodSpec>) -> Result<Action, WaitError> {
//!         let desired = Desired::of(run, run.last_spec.as_deref());
//!         let actions = self.planner.plan(run, desired, None).await?.begin().await;
//!         let uid = run.uid.as_str();
//!         if actions.create_sandbox.is_some() {
//!             self.runtime.put(fake::sandbox(uid, "s", Running));
//!             run.changed(run.now());
//!         }
//!         for start in &actions.start {
//!             let mut container = fake::container(uid, &start.name, Running);
//!             container.id = format!("{}-{}", container.id, start.attempt).into();
//!             container.identity.attempt = start.attempt;
//!             self.runtime.put(container);
//!             run.changed(run.now());
//!         }
//!         Ok(Action::await_change()) // stops, removals and garbage are left out here
//!     }
//!     async fn finish(&self, _: &Run<PodSpec>) -> Result<(), WaitError> {
//!         Ok(())
//!     }
//! }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = FakeRuntime::new();
//! let pleg = Pleg::builder(runtime.clone()).spawn()?;
//! let planner = Planner::new(BackOffSettings::default())?;
//! let kubelet = Kubelet { runtime: runtime.clone(), planner };
//! let workers = PodWorkers::spawn(pleg.clone(), kubelet, WorkerSettings::default(), [])?;
//! let uid = PodUid::from("pod");
//! let mut events = pleg.subscribe_pod(&uid);
//! workers.set(&uid, PodSpec::new(vec![ContainerSpec::new("web")]));
//! let attempt = || pleg.get(&uid).status.container("web").map(|c| c.attempt);
//! while attempt() != Some(0) { events.next().await; }
//! let mut ended = fake::exited("pod", "web", 1);
//! ended.id = "pod-web-0".into();
//! runtime.put_and_emit(ended, EventType::Stopped); // it crashes, and another one is started
//! while attempt() != Some(1) { events.next().await; }
//! workers.shutdown(pleg.now().after(Duration::from_secs(30))).await;
//! # Ok(()) }
//! ```
//!
//! # Features
//!
//! None is on by default.
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `k8s-openapi` | conversions to and from Kubernetes API types: CRI configurations, pod status, node condition, probes, admission of pods, and `Performer`, which makes the calls |
//! | `latest` | the newest API version of `k8s-openapi`, for tests and examples; a binary selects its own |
//!
//! # Failures
//!
//! | what fails | what happens |
//! | --- | --- |
//! | a reconcile function returns an error or panics | the run is repeated after `error_policy`; other pods are not affected |
//! | a write fails or times out | its end is recorded, the next view is newer, and a create is never repeated with the same attempt |
//! | an exit code is missing | nothing that needs it is decided until its status was read or the id is gone |
//! | a container cannot be removed | the removal is repeated after 10 s doubling to 5 min; it is no error of the run |
//! | a finish function returns an error | it is repeated after `error_policy`, until it succeeds |
//! | a volume or a directory hangs | an error of its pod after 10 s |
//! | the generator ends | runs end; [`worker::PodWorkers::ended`] completes |

pub mod actions;
#[cfg(feature = "k8s-openapi")]
pub mod admission;
#[cfg(feature = "k8s-openapi")]
mod api_time;
pub mod backoff;
#[cfg(feature = "k8s-openapi")]
pub mod cri_config;
#[cfg(feature = "k8s-openapi")]
mod downward;
#[cfg(feature = "k8s-openapi")]
mod from_pod;
pub mod gc;
mod history;
#[cfg(feature = "k8s-openapi")]
mod hosts;
mod mounts;
pub mod names;
#[cfg(feature = "k8s-openapi")]
pub mod node_condition;
#[cfg(feature = "k8s-openapi")]
pub mod perform;
pub mod plan;
#[cfg(feature = "k8s-openapi")]
mod pod_name;
#[cfg(feature = "k8s-openapi")]
pub mod pod_status;
pub mod probe;
#[cfg(feature = "k8s-openapi")]
pub mod quantity;
mod removal;
pub mod runtime_state;
pub mod spec;
#[cfg(feature = "k8s-openapi")]
mod sub_path;
#[cfg(feature = "k8s-openapi")]
mod termination;
#[cfg(feature = "k8s-openapi")]
mod unsupported;
pub mod volumes;
pub mod worker;

#[cfg(feature = "k8s-openapi")]
pub use from_pod::container_hash;
#[cfg(feature = "k8s-openapi")]
pub use unsupported::unsupported;

/// The code of the guide.
#[cfg(all(doctest, feature = "k8s-openapi"))]
#[doc = include_str!("../../../docs/kubelet.md")]
mod guide {}
