//! Random worlds: no seed violates an invariant, and equal seeds give equal traces.
//!
//! This test is quick. `simulate` (a binary of this package) replays one seed, runs many, and soaks; CI
//! runs it over 20 million simulated events (`just simulate-ci`).

#![allow(missing_docs, clippy::expect_used, clippy::panic, reason = "tests")]

use pleg_proof::plan::Plan;
use pleg_proof::simulation::simulate;
use pleg_proof::soak::{Run, Totals};
use pleg_proof::trace::Trace;

const SEEDS: u64 = 2000;

/// Small worlds only; `simulate` runs the large ones.
fn small(seed: u64) -> Plan {
    let mut plan = Plan::from_seed(seed);
    plan.pods = plan.pods.min(4);
    plan.fault_secs = plan.fault_secs.min(20);
    plan
}

#[test]
fn no_world_violates_an_invariant() {
    let run = Run::new(small, Totals::default(), SEEDS);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| run.work(|| true));
        }
    });
    let (totals, violations) = run.totals();
    let messages: Vec<String> = violations
        .iter()
        .map(|(plan, violations)| format!("seed {}: {violations}", plan.seed))
        .collect();
    assert!(
        violations.is_empty(),
        "`simulate SEED` explains:\n{}",
        messages.join("\n")
    );
    assert_eq!(totals.coverage.seeds(), SEEDS);
}

#[test]
fn equal_seeds_give_equal_traces() {
    let hash = |seed| {
        let simulated = simulate(&small(seed), Trace::hashed()).expect("no invariant breaks");
        let (hash, lines) = simulated.trace.hash().expect("a hash");
        assert!(lines > 100, "{lines} lines");
        (hash, simulated.coverage)
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
