//! The proof of the laws: random worlds in which the truth is known (`truth`), told badly
//! (`runtime`, `weather`), and compared with what comes out of the machine (`checks`).
//!
//! Nothing here shares the core's idea of order or merging; of the core it uses the machine and
//! the types of what goes in and comes out.

#![allow(
    missing_docs,
    clippy::missing_errors_doc,
    reason = "an unpublished proof: each module says what it is"
)]

pub mod checks;
pub mod dice;
pub mod exhaustive;
pub mod faults;
pub mod history;
pub mod laws;
pub mod plan;
pub mod runtime;
pub mod shrink;
pub mod soak;
pub mod story;
pub mod tally;
pub mod truth;
pub mod weather;
pub mod world;
