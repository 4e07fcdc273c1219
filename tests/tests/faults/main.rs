//! Faults of the way between the generator and its runtime, with real I/O: gRPC over connections
//! within the process on paused time, and over unix sockets in real time. The runtime itself is
//! `pleg-sim`; every test has one of its own.
//!
//! Paused time runs ahead of the host's wall clock, so that the generator and the runtime share a
//! clock whose wall clock goes along ([`Clock::start_at`](pleg::runtime::clock::Clock)).

#![allow(clippy::print_stdout, reason = "a test says what it measured")]
#![allow(
    clippy::large_futures,
    reason = "a CRI request is large; tests do not mind"
)]

mod consumer;
mod frames;
mod goaway;
mod inside;
mod leaks;
mod outage;
mod readiness;
mod second_subscriber;
mod sockets;
mod stalls;
mod storms;
mod trouble;
mod workers;
