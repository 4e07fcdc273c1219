//! The tests of this crate, as one binary: separate binaries would each build the same stack.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    dead_code,
    reason = "tests"
)]

mod consumers;
mod node;
mod script;

mod failures;
mod names;
mod serialization;
mod upstream;
