//! Tests what the public API promises: the whole generator runs on the fake runtime, in paused time.
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
