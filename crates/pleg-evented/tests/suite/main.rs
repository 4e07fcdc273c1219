//! The tests of this crate, as one binary: each would build the same stack anew.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod failures;
mod reader;
mod scripted;
