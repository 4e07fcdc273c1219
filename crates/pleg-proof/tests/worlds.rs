//! Runs random worlds chosen by a seed or by bytes, and explores every order of the actions of small worlds.

use pleg_proof::choose::{Choose, Seeded};
use pleg_proof::coverage::Coverage;
use pleg_proof::shrink::shrink;
use pleg_proof::small::{WORLDS, explore};
use pleg_proof::soak::{run, run_bytes, soak};

#[test]
fn worlds_chosen_by_seed_have_no_violation() {
    let totals = soak(0, 200, 2);
    let failures = totals.failures.iter();
    let failures: Vec<_> = failures.map(|(seed, f)| (seed, &f.violation)).collect();
    assert!(failures.is_empty(), "{failures:?}");
    assert_eq!(totals.worlds, 200);
}

#[test]
fn same_seed_gives_the_same_world() {
    let trace = |seed| run(seed, true).unwrap().trace().to_vec();
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut choose = Seeded::new(seed);
    (0..len)
        .map(|_| u8::try_from(choose.below(256)).unwrap_or(0))
        .collect()
}

#[test]
fn worlds_chosen_by_byte_strings_have_no_violation() {
    assert!(run_bytes(&[], false).is_ok(), "the quiet world");
    for seed in 0..30 {
        let failure = run_bytes(&bytes(seed, 2_000), false).err();
        assert!(
            failure.is_none(),
            "{seed}: {:?}",
            failure.map(|f| f.violation)
        );
    }
}

/// As an example of a violation, this test takes the occurrence of the fault `EventLost`.
#[test]
fn shrinker_removes_choices_without_effect_on_the_violation() {
    let fails = |bytes: &[u8]| {
        let world = run_bytes(bytes, false);
        world.is_ok_and(|world| world.coverage().text().contains("EventLost"))
    };
    let mut seeds = 0..;
    let start = seeds.find_map(|seed| Some(bytes(seed, 600)).filter(|bytes| fails(bytes)));
    let start = start.unwrap();
    let short = shrink(&start, fails);
    assert!(fails(&short));
    let chosen = short.iter().filter(|byte| **byte != 0).count();
    assert!(short.len() < 300 && chosen < 40, "{short:?}");
}

#[test]
fn small_worlds_have_no_violation_in_any_order() {
    for (name, build) in WORLDS {
        let explored = explore(&build(), 60_000);
        let failure = explored.failure;
        assert!(failure.is_none(), "{name}: {failure:#?}");
        assert!(explored.is_complete && explored.ends > 0, "{name}");
    }
}

#[test]
fn coverage_names_faults_and_situations_that_never_occurred() {
    let missing = Coverage::default().missing();
    assert!(
        missing.contains(&"fault EventLost".to_owned()),
        "{missing:?}"
    );
    assert!(missing.contains(&"output Resubscribe".to_owned()));
}
