//! The tests of this crate, as one binary.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod manifests;
mod running;
mod validation;
