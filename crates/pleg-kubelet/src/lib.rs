//! What a kubelet builds on a pod lifecycle event generator.
//!
//! The parts are small and independent. Decisions are in pure modules, with time as an argument:
//! [`actions`] says what a pod needs now, from its [`spec`], its status, the [`history`] of its
//! worker and the crash [`backoff`]. I/O is in others: [`worker`] runs a reconcile function for
//! each pod when something changed, with a status that is newer than the worker's own last change.
//!
//! # A kubelet loop
//!
//! The runtime is a fake one here. With the CRI client of `pleg-cri` the calls are the same, and
//! take time: each is followed by [`Run::changed`](worker::Run::changed) with the instant after it,
//! whether it succeeded or not.
//!
//! ```
//! use std::{collections::BTreeMap, convert::Infallible, sync::Mutex, time::Duration};
//!
//! use pleg::core::{EventType, ReportedState::Running};
//! use pleg::runtime::fake::{self, FakeRuntime};
//! use pleg::{Pleg, PodUid};
//! use pleg_kubelet::actions::{Desired, decide};
//! use pleg_kubelet::spec::{ContainerSpec, PodSpec};
//! use pleg_kubelet::worker::{Next, PodWorkers, Reconcile, Run, WorkerSettings};
//! use pleg_kubelet::{backoff::BackOff, history::PodHistory};
//!
//! struct Kubelet {
//!     runtime: FakeRuntime,
//!     memory: Mutex<(BTreeMap<PodUid, PodHistory>, BackOff)>,
//! }
//! impl Reconcile for Kubelet {
//!     type Spec = PodSpec;
//!     type Error = Infallible;
//!     async fn reconcile(&self, run: &Run<PodSpec>) -> Result<Next, Infallible> {
//!         let desired = match &run.spec {
//!             Some(spec) => Desired::run(spec),
//!             None => Desired::terminate(run.last_spec.as_deref()),
//!         };
//!         let actions = {
//!             let (histories, back_off) = &mut *self.memory.lock().unwrap();
//!             let history = histories.entry(run.uid.clone()).or_default();
//!             let records = run.terminal_records();
//!             decide(&desired, &run.view, &records, history, back_off, run.now())
//!         };
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
//!         Ok(actions.due.into()) // stop, stop_sandboxes and remove are left out here
//!     }
//! }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = FakeRuntime::new();
//! let pleg = Pleg::builder(runtime.clone()).spawn()?;
//! let kubelet = Kubelet { runtime: runtime.clone(), memory: Mutex::default() };
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
pub mod decision;
#[cfg(feature = "k8s-openapi")]
mod downward;
pub mod ends;
#[cfg(feature = "k8s-openapi")]
mod from_pod;
pub mod gc;
pub mod history;
#[cfg(feature = "k8s-openapi")]
mod hosts;
mod mounts;
pub mod names;
#[cfg(feature = "k8s-openapi")]
pub mod node_condition;
#[cfg(feature = "k8s-openapi")]
pub mod perform;
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
