//! Runs the commands with a simulated runtime, whose pods a test kubelet creates. One binary, to save link time.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::large_futures,
    reason = "tests; a CRI request is large"
)]

mod agent;
mod agent_flood;
mod agent_http;
mod agent_metrics;
mod agent_records;
mod browser;
mod doctor;
mod input;
mod log;
mod measure;
mod page;
mod pods;
mod run;
mod sim;
mod top;
mod watch;
