//! Statuses of pods, letter by letter.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod containers;
mod pods;
mod setup;
