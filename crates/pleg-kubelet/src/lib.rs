//! What a kubelet builds on a pod lifecycle event generator.
//!
//! The parts are small and independent. Decisions are in pure modules, with time as an argument;
//! I/O is in others.

pub mod probe;
pub mod spec;
pub mod volumes;
