//! Faults between the generator and its runtime, with real gRPC: over in-process connections on paused
//! time, and over unix sockets in real time. The runtime is `pleg-sim`; every test has one of its own.
//!
//! Paused time runs ahead of the host's wall clock, so the generator and the runtime share a clock whose
//! wall clock advances with it ([`Clock::start_at`](pleg::runtime::clock::Clock)).

#![allow(clippy::print_stdout, reason = "a test prints what it measured")]
#![allow(
    clippy::large_futures,
    reason = "a CRI request is large; tests do not mind"
)]

mod call_faults;
mod consumer;
mod frames;
mod goaway;
mod in_process;
mod leaks;
mod outage;
mod readiness;
mod reconnects;
mod second_subscriber;
mod sockets;
mod stalls;
mod storm;
mod stream_proxy;

mod workers;
