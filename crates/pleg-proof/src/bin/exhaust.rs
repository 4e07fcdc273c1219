//! Checks small worlds: `exhaust` all of them, `exhaust NAME…` some, `exhaust --shortest NAME…` for the
//! shortest counterexample.

#![allow(clippy::print_stdout, reason = "a command")]

use std::process::ExitCode;

use pleg_proof::exhaustive::search::{Search, check};
use pleg_proof::exhaustive::worlds::{LARGE_WORLDS, WORLDS};

fn main() -> ExitCode {
    let mut search = Search::All;
    let mut names: Vec<String> = Vec::new();
    for arg in std::env::args().skip(1) {
        match arg.as_str() {
            "--shortest" => search = Search::Shortest,
            name => names.push(name.to_owned()),
        }
    }
    let all = || WORLDS.iter().chain(LARGE_WORLDS);
    if let Some(name) = names.iter().find(|&n| !all().any(|w| w.name == n)) {
        println!("there is no world {name}");
        return ExitCode::FAILURE;
    }
    let mut failed = false;
    for world in all() {
        if !names.is_empty() && !names.iter().any(|n| n == world.name) {
            continue;
        }
        let report = check(world, search, 2);
        println!("{report}");
        println!("    {}: {}", world.scenario.about, world.budget);
        if let Some(counterexample) = &report.counterexample {
            println!("{}\n{}", counterexample.trace, counterexample.violation);
            failed = true;
        }
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
