//! The promises of the public API, with the whole generator on a hand-written runtime, in paused time.
mod acknowledging;
mod findings;
mod life;
mod metrics;
mod misuse;
mod pods;
mod problems;
mod requests;
mod spans;
mod subscribing;
mod trouble;
