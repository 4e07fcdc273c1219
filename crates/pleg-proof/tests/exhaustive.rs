//! The small worlds, to their ends: no order of what can happen violates an invariant.
//!
//! `cargo run -p pleg-proof --bin exhaust -- NAME` runs one of them; scripts/planted.py sees that
//! each weakened invariant (weakened.toml) is found out.

#![allow(missing_docs, clippy::print_stdout, reason = "tests")]

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use pleg_proof::exhaustive::search::{Search, check};
use pleg_proof::exhaustive::time_shift::{EPOCH, TimeShiftedHasher};
use pleg_proof::exhaustive::worlds::WORLDS;

#[test]
fn no_order_of_what_can_happen_breaks_a_law() {
    let mut violations = Vec::new();
    for world in WORLDS {
        let report = check(world, Search::All, 2);
        println!("{report}\n    {}: {}", world.scenario.about, world.budget);
        // A world in which nothing can happen proves nothing.
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
        "a invariant is violated in {violations:?}"
    );
}

/// What happened so long ago, and what will in so long, is the same at any time; all else is not.
#[test]
fn a_state_is_known_again_at_another_time() {
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
