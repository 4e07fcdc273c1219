//! Runs the commands with a simulated runtime, whose pods a test kubelet creates.

#![allow(
    clippy::large_futures,
    reason = "a CRI request is large; tests do not mind"
)]

mod agent;
mod agent_http;
mod bench;
mod memory;
mod pods;
mod run;
mod services;
mod sim;
mod watch;
