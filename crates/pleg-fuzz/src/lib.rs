//! What the fuzzers call: three functions that take any bytes and panic if a invariant breaks.
//!
//! `fuzz/` hands them what libFuzzer invents; `tests/corpus.rs` hands them the seeds and what once
//! broke something, on every run of the tests. So neither can rot without the other.
//!
//! * [`event_bytes`]: messages of the event stream as a runtime might send them;
//! * [`list_bytes`]: lists, likewise;
//! * [`operations`]: anything that the driver may do to the reconciler, in any order.
//!
//! The rooms: `harness` drives the reconciler and its twin, `checks` knows what must be true of what
//! comes out whatever went in, `bytes` and `operations` are the ways in. Nothing here uses the
//! core's order or merge.

#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::expect_used,
    reason = "an unpublished proof: to panic is how it speaks"
)]

#[cfg(feature = "bytes")]
mod bytes;
mod checks;
mod harness;
mod operations;

#[cfg(feature = "bytes")]
pub use bytes::{event_bytes, list_bytes};
pub use operations::operations;
