//! Benchmarks of the pod lifecycle event generator beside its rivals, on the same runtime.
//!
//! The harness ([`harness`]) starts two processes for each measurement: the runtime ([`runtime`]),
//! which serves a table of answers encoded ahead, and one subject ([`subject`]). It tells both what to
//! do ([`protocol`]), and writes what they used and how long it took as lines of JSON
//! ([`results`]), from which [`report`] makes `docs/benchmarks.md`.

pub mod harness;
pub mod node;
pub mod payload;
pub mod protocol;
pub mod random;
pub mod report;
pub mod results;
pub mod runtime;
pub mod stats;
pub mod subject;
pub mod usage;
pub mod wire;

mod command;

pub use command::main;

/// What a process has allocated so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// How often.
    pub times: u64,
    /// How many bytes in all.
    pub bytes: u64,
    /// How many of them it has not given back.
    pub held: u64,
}

impl Memory {
    /// What was allocated since.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            times: self.times - before.times,
            bytes: self.bytes - before.bytes,
            held: self.held,
        }
    }
}

/// Counts allocations, in the executable that does.
pub type Allocated = fn() -> Option<Memory>;
