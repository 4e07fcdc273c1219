//! Benchmarks of this PLEG and of ports of upstream's PLEGs, on the same runtime.
//!
//! For each measurement the harness starts a simulated runtime in a thread and one subject in its own process. It
//! sends commands to both, and appends the measured values to a file of JSON lines. `scripts/benchmarks.py` makes
//! `docs/benchmarks.md`, its plots and the table of the README from this file.

mod command;
mod harness;
mod protocol;
mod results;
mod runtime;
mod subject;
#[path = "../hot/typical.rs"]
mod typical;

pub use command::main;

/// Returns the number of bytes in use, if the executable counts them.
pub type LiveBytes = fn() -> Option<u64>;
