//! The proof of the invariants: random worlds in which the oracle is known (`oracle`), told badly
//! (`runtime`, `fault_profile`), and compared with what comes out of the reconciler (`checks`).
//!
//! Nothing here shares the core's idea of order or merging; of the core it uses the reconciler and
//! the types of what goes in and comes out.

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
pub mod rng;
pub mod runtime;
pub mod shrink;
pub mod simulation;
pub mod soak;
pub mod trace;
pub mod world;
