//! The example `static_pods` on simulated runtimes: its worker, in this process.

#![cfg(feature = "manifests")]
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(
    clippy::print_stdout,
    unreachable_pub,
    reason = "the example is a program"
)]

mod fields;
#[path = "../../examples/static_pods/kubelet.rs"]
mod kubelet;
mod node;
mod runtimes;
mod trouble;
mod valid;
