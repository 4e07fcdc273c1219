//! Building blocks of a kubelet, on top of a pod lifecycle event generator.
//!
//! Each run of a pod's worker takes three steps:
//!
//! 1. [`worker`] makes the [`Run`](worker::Run), with a status that is newer than the worker's own last change.
//! 2. [`plan::Planner`] plans what the pod needs, from its specification, status and exits, and the crash back-off.
//! 3. [`perform::Performer`] performs the [`Plan`](plan::Plan), or you make the calls of [`begin`](plan::Plan::begin).
//!
//! `docs/kubelet.md` has a complete loop, and a unit test of a worker on a runtime in memory.
//!
//! # Features
//!
//! `latest` selects the newest API version of `k8s-openapi`. Without it, your own dependency on that crate selects one:
//! Kubernetes 1.34 or later, because this crate reads fields that earlier versions do not have.

use std::any::Any;
use std::sync::{Mutex, MutexGuard, PoisonError};

pub mod actions;
pub mod backoff;
pub mod cri_config;
mod downward;
pub mod gc;
mod history;
mod mounts;
pub mod names;
#[cfg(test)]
#[path = "tests/notation.rs"]
mod notation;
pub mod perform;
pub mod plan;
pub mod pod_status;
pub mod probe;
pub mod quantity;
mod removal;
mod resources;
mod spec;
mod unsupported;
pub mod volumes;
pub mod worker;

/// The version of `k8s-openapi` whose types this crate uses. Convert types of another version through JSON.
pub use k8s_openapi;
pub use pod_status::api_time;
pub use spec::container_hash;
pub use unsupported::{fields_at, unsupported};

/// Locks a mutex, even if a thread panicked while it had the lock: no panic leaves the data half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The message of a panic.
fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "no message".to_owned())
}
