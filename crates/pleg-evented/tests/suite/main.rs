//! The tests of this crate, as one binary: separate binaries would each build and link the same dependencies.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod failures;
mod reader;
mod scripted;
