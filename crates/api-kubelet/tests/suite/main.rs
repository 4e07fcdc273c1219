//! The kubelet on a simulated runtime, with an API server in memory.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod api_server;
mod lives;
mod node;
