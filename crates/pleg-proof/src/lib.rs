//! Checks of the invariants in random worlds: an independent `oracle` holds the true state, `runtime`
//! and `fault_profile` report it imperfectly, and `checks` compares the reconciler's outputs with it.
//!
//! Nothing here uses the core's order or merge rules. It uses the core's reconciler and the types of
//! its inputs and outputs.

#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    reason = "an unpublished proof: each module says what it is"
)]

pub mod assertions;
pub mod checks;
pub mod coverage;
pub mod exhaustive;
pub mod fault_profile;
pub mod faults;
pub mod oracle;
pub mod plan;
pub mod pod_actions;
pub mod rng;
pub mod runtime;
pub mod shrink;
pub mod simulation;
pub mod soak;
pub mod trace;
pub mod world;
