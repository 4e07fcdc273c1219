//! `bench` with an allocator that counts bytes. Used only for measurements of memory: counting costs time.

use std::alloc::System;
use std::process::ExitCode;

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    pleg_benches::main(|| {
        let stats = ALLOCATOR.stats();
        Some(
            stats
                .bytes_allocated
                .saturating_sub(stats.bytes_deallocated) as u64,
        )
    })
}
