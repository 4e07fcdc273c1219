//! docs/invariants.md names every assertion of the worlds, and no other, in the row of its law.

#![allow(missing_docs, clippy::expect_used, clippy::panic, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pleg_proof::laws;

#[test]
fn every_law_is_asserted_and_every_assertion_is_in_the_table() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/invariants.md");
    let page = std::fs::read_to_string(page).expect("docs/invariants.md");
    let rows: BTreeMap<u8, BTreeSet<String>> = page
        .lines()
        .filter_map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            let law = cells.next()?.split_once('.')?.0.parse().ok()?;
            let names = cells.next()?.split(',').map(|name| {
                let name = name.trim().trim_matches('`');
                format!("law{law}-{name}")
            });
            Some((law, names.collect()))
        })
        .collect();
    assert_eq!(
        rows.keys().copied().collect::<Vec<u8>>(),
        (1..=12).collect::<Vec<_>>()
    );
    for (law, named) in rows {
        let asserted = laws::ALL.iter().filter(|a| a.law == law);
        let asserted: BTreeSet<String> = asserted.map(|a| a.name.to_owned()).collect();
        assert!(!asserted.is_empty(), "law {law} is asserted nowhere");
        assert_eq!(
            named, asserted,
            "law {law}: in the table, and in src/laws.rs"
        );
    }
}
