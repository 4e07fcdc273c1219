//! Random worlds on the machine: no seed breaks a law.
//!
//! `PLEG_LAWS_SEEDS=n` runs n seeds, `PLEG_LAWS_SEED=s` runs one and prints its history.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

use pleg_proof::story::live;
use pleg_proof::world::Tally;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_world_breaks_a_law() {
    if let Some(seed) = number("PLEG_LAWS_SEED") {
        if let Err((broken, history)) = live(seed, true) {
            panic!("{history}\nseed {seed}: {broken}");
        }
        return;
    }
    let seeds = number("PLEG_LAWS_SEEDS").unwrap_or(2000);
    let threads = 2;
    let totals: Vec<(Tally, Vec<(u64, String)>)> = std::thread::scope(|scope| {
        let run = |first: u64| {
            move || {
                let mut total = Tally::default();
                let mut broken = Vec::new();
                for seed in (first..seeds).step_by(threads) {
                    match live(seed, false) {
                        Ok(tally) => {
                            total.steps += tally.steps;
                            total.events += tally.events;
                            total.inspections += tally.inspections;
                            total.lists += tally.lists;
                        }
                        Err((what, _)) => broken.push((seed, what)),
                    }
                }
                (total, broken)
            }
        };
        let running: Vec<_> = (0..threads as u64).map(|n| scope.spawn(run(n))).collect();
        running
            .into_iter()
            .map(|t| t.join().expect("a world that panics"))
            .collect()
    });
    let broken: Vec<_> = totals.iter().flat_map(|t| &t.1).collect();
    for (total, _) in &totals {
        println!("{total:?}");
    }
    for (seed, what) in broken.iter().take(40) {
        println!(
            "seed {seed}: {}",
            what.chars().take(300).collect::<String>()
        );
    }
    if let Some((seed, _)) = broken.first()
        && let Err((what, history)) = live(*seed, true)
    {
        println!("{history}\nseed {seed}: {what}");
    }
    assert!(
        broken.is_empty(),
        "{} of {seeds} seeds break a law",
        broken.len()
    );
}
