//! What a kubelet builds on a pod lifecycle event generator.
//!
//! The parts are small and independent. Decisions are in pure modules, with time as an argument;
//! I/O is in others.

#[cfg(feature = "k8s-openapi")]
mod api_time;
#[cfg(feature = "k8s-openapi")]
pub mod cri_config;
#[cfg(feature = "k8s-openapi")]
mod from_pod;
pub mod gc;
#[cfg(feature = "manifests")]
pub mod manifest;
#[cfg(feature = "k8s-openapi")]
pub mod node_condition;
#[cfg(feature = "k8s-openapi")]
pub mod pod_status;
#[cfg(feature = "k8s-openapi")]
pub mod quantity;
pub mod runtime_state;
pub mod spec;

#[cfg(feature = "k8s-openapi")]
pub use from_pod::container_hash;
