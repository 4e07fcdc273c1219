//! The seam between a pod lifecycle event generator and a container runtime.
//!
//! [`Runtime`] is what the sources call: two lists, two statuses, the event stream. It speaks the
//! domain types of `pleg-core` only, so that a runtime can be written by hand in a test, without
//! gRPC, and so that no wire type reaches the core. [`clock`] is the one place that reads a clock.

pub mod clock;
mod row;
mod runtime;

pub use pleg_core as core;
pub use row::Row;
pub use runtime::{Runtime, RuntimeVersion, Scope};
