//! Tests of the simulated runtime over gRPC, in one binary to save link time.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::large_futures,
    reason = "tests"
)]

mod calls;
mod common;
mod control;
mod knobs;
mod lists;
mod sequences;
mod serving;
mod streams;
