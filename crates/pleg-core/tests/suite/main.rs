//! Tests the rules of the reconciler, and event sequences that broke earlier designs. Each test is a script of a node.

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
