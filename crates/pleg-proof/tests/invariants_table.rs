//! docs/invariants.md names exactly the assertions of the worlds, each in the row of its invariant.

#![allow(missing_docs, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pleg_proof::assertions;

#[test]
fn table_lists_exactly_the_assertions_of_each_invariant() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/invariants.md");
    let page = std::fs::read_to_string(page).expect("docs/invariants.md");
    let rows: BTreeMap<u8, BTreeSet<String>> = page
        .lines()
        .filter_map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            let invariant = cells.next()?.split_once('.')?.0.parse().ok()?;
            let names = cells.next()?.split(',').map(|name| {
                let name = name.trim().trim_matches('`');
                format!("invariant-{invariant}-{name}")
            });
            Some((invariant, names.collect()))
        })
        .collect();
    assert_eq!(
        rows.keys().copied().collect::<Vec<u8>>(),
        (1..=12).collect::<Vec<_>>()
    );
    for (invariant, named) in rows {
        let asserted = assertions::ALL.iter().filter(|a| a.invariant == invariant);
        let asserted: BTreeSet<String> = asserted.map(|a| a.name.to_owned()).collect();
        assert!(
            !asserted.is_empty(),
            "invariant {invariant} has no assertion"
        );
        assert_eq!(
            named, asserted,
            "invariant {invariant}: table and src/assertions.rs differ"
        );
    }
}
