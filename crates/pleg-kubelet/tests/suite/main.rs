//! The tests of this crate, as one binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod cri_config;
mod guide;
mod kubelet;
mod plan;
mod pod_status;
mod probes;
mod removals;
mod settings;
mod workers;

const SECOND: std::time::Duration = std::time::Duration::from_secs(1);
