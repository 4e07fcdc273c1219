//! The tests of this crate, in one binary to save link time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod support;
mod upstream_cache;
mod upstream_evented;
mod upstream_generic;
