//! The small worlds, to their ends: no order of what can happen breaks a law.
//!
//! `cargo run -p pleg-proof --bin exhaust -- NAME` runs one of them; scripts/planted.py sees that
//! each weakened law (weakened.toml) is found out.

#![allow(missing_docs, clippy::print_stdout, reason = "tests")]

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use pleg_proof::exhaustive::check::{Search, check};
use pleg_proof::exhaustive::shift::{EPOCH, Shifted};
use pleg_proof::exhaustive::worlds::WORLDS;

#[test]
fn no_order_of_what_can_happen_breaks_a_law() {
    let mut broken = Vec::new();
    for world in WORLDS {
        let verdict = check(world, Search::All, 2);
        println!("{verdict}\n    {}: {}", world.tale.about, world.budget);
        // A world in which nothing can happen proves nothing.
        assert!(
            verdict.broken.is_some() || verdict.unique > 100_000,
            "{verdict}"
        );
        if let Some(found) = verdict.broken {
            println!("{}\n{}", found.story, found.law);
            broken.push(world.name);
        }
    }
    assert!(broken.is_empty(), "a law is broken in {broken:?}");
}

/// What happened so long ago, and what will in so long, is the same at any time; all else is not.
#[test]
fn a_state_is_known_again_at_another_time() {
    let state = RandomState::new();
    let print = |now: u64, told: &[u64]| {
        let mut inner = state.build_hasher();
        let mut shifted = Shifted {
            inner: &mut inner,
            now,
        };
        for n in told {
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
