//! The tests of this crate, as one binary: separate binaries would each build the same stack.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod failures;
mod invariants;
mod names;
mod script;
mod serialization;
mod upstream_generic;
mod upstream_reinspection;
mod upstream_worker_loop;
