//! The tests of this crate, as one binary: separate binaries would each link the same dependencies.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod driver;
mod failures;
mod support;
mod upstream_cache;
mod upstream_fifo;
