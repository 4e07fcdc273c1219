//! The tests of this crate, as one binary.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod actions;
mod actions_history;
mod actions_init;
mod actions_random;
mod cri_config;
mod gc;
mod kubelet;
mod node_condition;
mod pod_status;
mod probes;
mod removals;
mod settings;
mod support;
mod workers;
