//! The fuzz targets: three functions that take any bytes and panic if an invariant is violated.
//!
//! `fuzz/` runs them on the inputs of libFuzzer; `tests/corpus.rs` runs them on the seeds and on past
//! failures in every test run, so neither can break unnoticed.
//!
//! * [`event_bytes`]: messages of the event stream as a runtime might send them;
//! * [`list_bytes`]: lists, likewise;
//! * [`operations`]: anything that the driver may do to the reconciler, in any order.
//!
//! `harness` runs two reconcilers, `checks` checks their outputs, `bytes` and `operations` decode the
//! inputs. Nothing here uses the core's order or merge rules.

#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::expect_used,
    reason = "not published; a panic reports a violation"
)]

#[cfg(feature = "bytes")]
mod bytes;
mod checks;
mod harness;
mod operations;

#[cfg(feature = "bytes")]
pub use bytes::{event_bytes, list_bytes};
pub use operations::operations;
