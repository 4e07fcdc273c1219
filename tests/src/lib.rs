//! Support for the tests of the whole system: private containerd daemons ([`daemon`]), a client that creates pods
//! ([`kubelet`]) and leads them through their lifecycle ([`lives`]), pod workers that act on what the generator reports
//! ([`workers`]), a runtime that records calls and events ([`recording`]), a generator under test ([`generator`]), and
//! checks that compare its announcements and cache with the kubelet's calls and the runtime's lists ([`check`]). Checks
//! while another client takes a share of the generator's events: [`second_subscriber`]. The mini-kubelet `static_pods`
//! as a process on a daemon: [`static_pods`]. The resource usage of a process: [`usage`].

#![allow(
    clippy::print_stdout,
    reason = "a test prints what it measured and why it skips"
)]
#![allow(clippy::missing_errors_doc, reason = "a test fails with every error")]
#![allow(
    clippy::large_futures,
    reason = "a CRI request is large; tests do not mind"
)]

pub mod check;
pub mod daemon;
pub mod environment;
pub mod fuse;
pub mod generator;
pub mod kubelet;
pub mod lives;
pub mod recording;
pub mod second_subscriber;
pub mod static_pods;
pub mod usage;
pub mod wait;
pub mod workers;
