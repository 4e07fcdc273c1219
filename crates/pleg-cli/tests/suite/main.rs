//! The tests of this crate, in one binary to save link time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod bad_input;
mod commands;
mod config;
mod generate;
mod support;
