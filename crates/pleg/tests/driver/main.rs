//! The whole generator on a runtime made by hand, in paused time: what the public API promises.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod events;
mod findings;
mod life;
mod requests;
#[path = "../support/mod.rs"]
mod support;
mod trouble;
mod waiting;
