//! Tests of the simulated runtime over gRPC, in one binary to save link time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::large_futures,
    reason = "tests"
)]

mod calls;
mod common;
mod control;
mod delivery;
mod delivery_by_runtime;
mod fault_profile;
mod lists;
mod second_subscriber;
mod sequences;
mod serving;
mod shutdown;
