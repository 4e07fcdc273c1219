//! `explore [STATES] [WORLD]` tries all orders of a few actions, up to STATES states, in small worlds named `*WORLD*`.

use std::io::Write as _;
use std::process::ExitCode;

use pleg_proof::small::{LARGE_WORLDS, WORLDS, explore};

fn main() -> std::io::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let most = std::env::args().nth(1).and_then(|n| n.parse().ok());
    let mut is_good = true;
    let which = std::env::args().nth(2).unwrap_or_default();
    let worlds = WORLDS.iter().chain(LARGE_WORLDS);
    for (name, build) in worlds.filter(|(name, _)| name.contains(&which)) {
        let found = explore(&build(), most.unwrap_or(1_000_000));
        let complete = if found.is_complete {
            "complete"
        } else {
            "not complete"
        };
        let (states, steps, ends) = (found.states, found.steps, found.ends);
        writeln!(
            out,
            "{name}: {states} states, {steps} steps, {ends} ends, {complete}"
        )?;
        if let Some((violation, trace)) = found.failure {
            writeln!(out, "{}\n{violation}", trace.join("\n"))?;
            is_good = false;
        }
    }
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
