//! The whole generator on a hand-written runtime, in paused time: what the public API promises.
mod events;
mod findings;
mod life;
mod requests;
mod subscribing;
mod trouble;
mod waiting;
