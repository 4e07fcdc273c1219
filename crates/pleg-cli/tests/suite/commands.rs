//! Runs the commands with a simulated runtime, whose pods a test kubelet creates.

#![allow(
    clippy::large_futures,
    reason = "a CRI request is large; tests do not mind"
)]

mod agent;
mod agent_events;
mod agent_flood;
mod agent_http;
mod agent_metrics;
mod agent_problems;
mod agent_service;
mod alerts;
mod doctor;
mod doctor_host;
mod log;
mod measure;
pub(crate) mod memory;
mod page;
mod page_load;
mod pods;
pub(crate) mod run;
mod sim;
mod top;
mod watch;
