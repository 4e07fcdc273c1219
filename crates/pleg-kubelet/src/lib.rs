//! What a kubelet builds on a pod lifecycle event generator.
//!
//! The parts are small and independent. Decisions are in pure modules, with time as an argument;
//! I/O is in others.

#[cfg(feature = "k8s-openapi")]
mod api_time;
pub mod gc;
#[cfg(feature = "k8s-openapi")]
pub mod node_condition;
#[cfg(feature = "k8s-openapi")]
pub mod quantity;
pub mod runtime_state;
pub mod spec;
