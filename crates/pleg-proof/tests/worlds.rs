//! Random worlds on the machine: no seed breaks a law, and equal seeds live equal lives.
//!
//! The test is quick. `simulate` (a binary of this package) replays one seed, runs many, and
//! soaks; CI runs it over 20 million simulated events (`just simulate-ci`).

#![allow(missing_docs, clippy::expect_used, clippy::panic, reason = "tests")]

use pleg_proof::history::History;
use pleg_proof::plan::Plan;
use pleg_proof::soak::{Run, Totals};
use pleg_proof::story::live;

const SEEDS: u64 = 2000;

/// The small worlds only: what is left out, `simulate` has.
fn small(seed: u64) -> Plan {
    let mut plan = Plan::of(seed);
    plan.pods = plan.pods.min(4);
    plan.trouble = plan.trouble.min(20);
    plan
}

#[test]
fn no_world_breaks_a_law() {
    let run = Run::new(small, Totals::default(), SEEDS);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| run.work(|| true));
        }
    });
    let (totals, broken) = run.totals();
    let told: Vec<String> = broken
        .iter()
        .map(|(plan, broken)| format!("seed {}: {broken}", plan.seed))
        .collect();
    assert!(
        broken.is_empty(),
        "`simulate SEED` explains:\n{}",
        told.join("\n")
    );
    assert_eq!(totals.tally.seeds(), SEEDS);
}

#[test]
fn equal_seeds_live_equal_lives() {
    let hash = |seed| {
        let lived = live(&small(seed), History::hashed()).expect("no law breaks");
        let (hash, lines) = lived.history.hash().expect("a hash");
        assert!(lines > 100, "{lines} lines");
        (hash, lived.tally)
    };
    let mut different = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let (first, again) = (hash(seed), hash(seed));
        assert_eq!(first, again, "seed {seed}");
        let elsewhere = std::thread::spawn(move || hash(seed)).join();
        assert_eq!(first, elsewhere.expect("no panic"), "seed {seed}");
        different.insert(first.0);
    }
    assert_eq!(different.len(), 40);
}
