//! `soak FROM COUNT` runs COUNT random nodes (worlds), with seeds from FROM. `soak SEED` prints the trace of one seed.

use std::io::Write as _;
use std::process::ExitCode;

use pleg_proof::soak::{run, soak};

/// A soak of at least this many worlds fails if a fault, or a situation of `REQUIRED`, has not occurred.
const COMPLETE: u64 = 5_000;

fn main() -> std::io::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|n| n.parse().ok())
        .collect();
    let is_good = match numbers[..] {
        [seed] => {
            let (trace, outcome) = match run(seed, true) {
                Ok(world) => (world.trace().to_vec(), None),
                Err(failure) => {
                    let text = format!("{}\n{}", failure.violation, failure.faults);
                    (failure.trace, Some(text))
                }
            };
            writeln!(out, "{}", trace.join("\n"))?;
            writeln!(out, "{}", outcome.as_deref().unwrap_or("no violation"))?;
            outcome.is_none()
        }
        [from, count] => {
            let totals = soak(from, count, 2);
            writeln!(out, "{}", totals.coverage.text())?;
            for (seed, failure) in &totals.failures {
                writeln!(
                    out,
                    "seed {seed}: {}\n    {}",
                    failure.violation, failure.faults
                )?;
            }
            let missing = totals.coverage.missing();
            if !missing.is_empty() {
                writeln!(out, "never occurred: {}", missing.join(", "))?;
            }
            writeln!(out, "{}", totals.text())?;
            totals.failures.is_empty() && (missing.is_empty() || count < COMPLETE)
        }
        _ => {
            writeln!(out, "usage: soak FROM COUNT | soak SEED")?;
            false
        }
    };
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
