//! Runs many random worlds, each from a seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::choose::{Bytes, Seeded};
use crate::coverage::Coverage;
use crate::world::{Failure, World};

/// A soak ends after this number of failed worlds.
const ENOUGH: usize = 10;

/// The results of a soak.
#[derive(Debug, Default)]
pub struct Totals {
    /// How often each fault and situation occurred, in all worlds together.
    pub coverage: Coverage,
    /// The number of worlds that were run.
    pub worlds: u64,
    /// The seeds of failed worlds, each with its failure.
    pub failures: Vec<(u64, Failure)>,
    /// The CPU time of all threads that ran worlds, in nanoseconds.
    pub cpu: u64,
}

/// Runs the random world that a seeded generator chooses.
///
/// # Errors
/// The violation that the checker found.
pub fn run(seed: u64, with_trace: bool) -> Result<World, Failure> {
    let mut choose = Seeded::new(seed);
    let mut world = World::random(&mut choose, with_trace);
    world.run(&mut choose)?;
    Ok(world)
}

/// Runs the random world whose choices are read from `bytes`.
///
/// # Errors
/// The violation that the checker found.
pub fn run_bytes(bytes: &[u8], with_trace: bool) -> Result<World, Failure> {
    let mut choose = Bytes::new(bytes);
    let mut world = World::random(&mut choose, with_trace);
    world.run(&mut choose)?;
    Ok(world)
}

/// Runs `count` worlds on `threads` threads, with the seeds from `from` upwards.
pub fn soak(from: u64, count: u64, threads: usize) -> Totals {
    let next = AtomicU64::new(from);
    let totals = Mutex::new(Totals::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| work(&next, from + count, &totals));
        }
    });
    totals.into_inner().unwrap_or_default()
}

fn work(next: &AtomicU64, end: u64, totals: &Mutex<Totals>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            break;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, false)));
        let Ok(mut totals) = totals.lock() else { break };
        totals.worlds += 1;
        match outcome {
            Ok(Ok(world)) => totals.coverage.add(world.coverage()),
            Ok(Err(failure)) => totals.failures.push((seed, failure)),
            Err(_) => {
                let failure = Failure {
                    violation: "a panic".to_owned(),
                    faults: String::new(),
                    trace: Vec::new(),
                };
                totals.failures.push((seed, failure));
            }
        }
        if totals.failures.len() >= ENOUGH {
            break;
        }
    }
    if let Ok(mut totals) = totals.lock() {
        totals.cpu += cpu();
    }
}

/// The CPU time of this thread in nanoseconds; 0 if unknown.
fn cpu() -> u64 {
    let reported = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = reported.split_whitespace().next();
    first.and_then(|n| n.parse().ok()).unwrap_or(0)
}

impl Totals {
    /// A line with the totals of the soak.
    pub fn text(&self) -> String {
        let coverage = &self.coverage;
        let per_second = match self.cpu {
            0 => 0,
            cpu => u128::from(coverage.events) * 1_000_000_000 / u128::from(cpu),
        };
        format!(
            "{} worlds, {} simulated events ({per_second}/s per core), {} calls, {} simulated hours, {}.{} % of the budget of calls, {} failures",
            self.worlds,
            coverage.events,
            coverage.calls,
            coverage.nanos / 3_600_000_000_000,
            coverage.budget_used / 10,
            coverage.budget_used % 10,
            self.failures.len()
        )
    }
}
