//! Benchmarks of this PLEG and of ports of upstream's PLEGs, on the same runtime.
//!
//! The harness ([`harness`]) starts two processes for each measurement: the runtime ([`runtime`]),
//! which serves answers that were encoded in advance, and one subject ([`subject`]). It sends orders
//! to both ([`protocol`]) and writes the measured values as lines of JSON ([`results`]). [`report`]
//! generates `docs/benchmarks.md` from them.

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

/// The allocations of a process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocations {
    /// The number of allocations.
    pub count: u64,
    /// The number of allocated bytes.
    pub bytes: u64,
    /// The number of bytes that are not freed.
    pub live_bytes: u64,
}

impl Allocations {
    /// Returns the allocations since `before`.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            count: self.count - before.count,
            bytes: self.bytes - before.bytes,
            live_bytes: self.live_bytes,
        }
    }
}

/// Returns the allocations of this process, if the executable counts them.
pub type AllocationCounter = fn() -> Option<Allocations>;
