//! `bench` with an allocator that counts. Only subjects whose allocations are measured run in it,
//! because counting costs time.

use std::alloc::System;
use std::process::ExitCode;

use pleg_benches::Allocations;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    pleg_benches::main(|| Some(allocated()))
}

fn allocated() -> Allocations {
    let stats = ALLOCATOR.stats();
    // Bytes by which a block grows in place count as allocated. Bytes by which it shrinks count as
    // freed.
    let live_bytes = stats.bytes_allocated as i64 - stats.bytes_deallocated as i64;
    Allocations {
        count: (stats.allocations + stats.reallocations) as u64,
        bytes: stats.bytes_allocated as u64,
        live_bytes: u64::try_from(live_bytes).unwrap_or(0),
    }
}
