//! Model checking of the small worlds: no order of actions violates an invariant.
//!
//! `cargo run -p pleg-proof --bin exhaust -- NAME` checks one world. scripts/planted.py checks that
//! each weakened invariant (weakened.toml) is detected.

#![allow(missing_docs, clippy::print_stdout, reason = "tests")]

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use pleg_proof::exhaustive::search::{Search, check};
use pleg_proof::exhaustive::time_shift::{EPOCH, TimeShiftedHasher};
use pleg_proof::exhaustive::worlds::WORLDS;

#[test]
fn no_order_of_actions_violates_an_invariant() {
    let mut violations = Vec::new();
    for world in WORLDS {
        let report = check(world, Search::All, 2);
        println!("{report}\n    {}: {}", world.scenario.about, world.budget);
        // A world in which nothing can happen would prove nothing.
        assert!(
            report.counterexample.is_some() || report.unique > 100_000,
            "{report}"
        );
        if let Some(found) = report.counterexample {
            println!("{}\n{}", found.trace, found.violation);
            violations.push(world.name);
        }
    }
    assert!(
        violations.is_empty(),
        "an invariant is violated in {violations:?}"
    );
}

/// The hash depends on the distance from now of an instant, and on the value of any other number.
#[test]
fn equal_states_at_different_times_have_equal_hashes() {
    let state = RandomState::new();
    let print = |now: u64, messages: &[u64]| {
        let mut inner = state.build_hasher();
        let mut shifted = TimeShiftedHasher {
            inner: &mut inner,
            now,
        };
        for n in messages {
            n.hash(&mut shifted);
        }
        inner.finish()
    };
    let (now, later) = (EPOCH + 1000, EPOCH + 5000);
    let same = print(now, &[now - 7, now + 9, 3]);
    assert_eq!(same, print(later, &[later - 7, later + 9, 3]));
    assert_ne!(same, print(later, &[now - 7, now + 9, 3]));
    assert_ne!(same, print(later, &[later - 8, later + 9, 3]));
    assert_ne!(print(now, &[now + 3]), print(now, &[3]));
    assert_ne!(print(now, &[now + 3]), print(now, &[now - 3]));
}
