//! Tests the reconciler's rules, and event sequences that broke earlier designs. Each test scripts what a runtime does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod consumers;
mod node;
mod script;

mod absence;
mod announcing;
mod bounds;
mod ends;
mod events;
mod freshness;
mod health;
mod outages;
mod reads;
mod requests;
mod statuses;
mod stream;

mod catalogue;
mod lives;
mod names;
mod serialization;
