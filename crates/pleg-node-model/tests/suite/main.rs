//! Tests what each runtime reports from the creation to the removal of a pod, and each rule of the model.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers outside of tests fail as tests do"
)]

mod common;
mod rules;
mod sequences;
