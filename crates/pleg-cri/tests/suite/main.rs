//! The tests of this crate, in one binary to save link time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod budget;
mod calls;
mod client;
mod codegen;
mod common;
mod contract;
mod diagnose;
mod events;
mod failures;
mod layers;
mod metrics;
mod rows;
