//! What each runtime reports of a pod's life, and one test per rule of the model.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers outside of tests fail as tests do"
)]

mod common;
mod rules;
mod sequences;
