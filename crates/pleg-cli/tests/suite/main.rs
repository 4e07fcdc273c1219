//! The tests of this crate, as one binary: each would build the same stack anew.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod bad_input;
mod commands;
mod support;
