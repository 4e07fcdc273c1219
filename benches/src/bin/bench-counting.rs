//! `bench` with an allocator that counts. A subject runs in it where allocations are measured, and
//! only there: counting costs time.

use std::alloc::System;
use std::process::ExitCode;

use pleg_benches::Memory;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    pleg_benches::main(|| Some(allocated()))
}

fn allocated() -> Memory {
    let stats = ALLOCATOR.stats();
    // The bytes by which blocks grew in place count as allocated, those by which they shrank as
    // given back.
    let held = stats.bytes_allocated as i64 - stats.bytes_deallocated as i64;
    Memory {
        times: (stats.allocations + stats.reallocations) as u64,
        bytes: stats.bytes_allocated as u64,
        held: u64::try_from(held).unwrap_or(0),
    }
}
