//! Exact texts and values of pod statuses.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod containers;
mod pods;
mod setup;
