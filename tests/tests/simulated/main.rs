//! Tests of the whole system on a simulated runtime (`pleg-sim`), on paused time. In-process connections break when a
//! test wants it. Every test has its own simulated runtime.
//!
//! Paused time runs ahead of the host's wall clock, so the generator and the runtime share a clock whose wall-clock
//! time advances with the paused time ([`Clock::start_at`](pleg::runtime::clock::Clock)).

#![allow(clippy::print_stdout, reason = "a test prints what it measured")]
#![allow(
    clippy::large_futures,
    reason = "a CRI request is large; tests do not mind"
)]

mod connect;
mod consumer;
mod cuts;
mod goaway;
mod hangs;
mod leaks;
mod node;
mod outages;
mod parity;
mod pipe;
mod second_subscriber;
mod workers;
