//! `docs/failures.md` names every entry of the catalogue, and only tests that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A1 to A17, B1 to B15, C1 to C22, E1 to E7, and G20.
fn entries() -> BTreeSet<String> {
    let of = |group: &str, count| (1..=count).map(move |n| format!("{group}{n}")).collect();
    let groups: [Vec<String>; 4] = [of("A", 17), of("B", 15), of("C", 22), of("E", 7)];
    groups
        .into_iter()
        .flatten()
        .chain(["G20".to_owned()])
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The source of that test file, or of all files of that folder.
fn source(path: &Path) -> String {
    if path.is_dir() {
        let files = fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        return files.map(|file| source(&file)).collect();
    }
    fs::read_to_string(path).unwrap_or_default()
}

/// The folder of a crate. This one is `pleg-core`, wherever it is.
fn folder(name: &str) -> PathBuf {
    match name {
        "pleg-core" => Path::new(env!("CARGO_MANIFEST_DIR")).to_owned(),
        name => root().join("crates").join(name),
    }
}

/// Returns true if `place::name` is a test. `place`: a crate, for its catalogue, or the path of a file.
fn exists(place: &str, name: &str) -> bool {
    let source = match place.strip_prefix("crates/").unwrap_or(place).split_once('/') {
        Some((of, path)) => source(&folder(of).join(path)),
        None => {
            let tests = folder(place).join("tests/suite");
            source(&tests.join("failures")) + &source(&tests.join("failures.rs"))
        }
    };
    let mut before = source.split(&format!("fn {name}(")).collect::<Vec<_>>();
    before.pop();
    before.iter().any(|before| {
        let attributed = before.trim_end().trim_end_matches("async").trim_end();
        let attribute = attributed.rfind("#[").map(|at| &attributed[at..]);
        attribute.is_some_and(|a| {
            a.ends_with(']') && (a.starts_with("#[test]") || a.starts_with("#[tokio::test"))
        })
    })
}

#[test]
fn the_table_names_every_entry_and_tests_that_exist() {
    let table = fs::read_to_string(root().join("docs/failures.md")).unwrap();
    let mut named = BTreeSet::new();
    for row in table.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let entry = cells[0];
        if entry == "entry" || entry.starts_with("---") {
            continue;
        }
        assert!(named.insert(entry.to_owned()), "{entry} is there twice");
        let words = cells[4].split('`');
        let tests: Vec<_> = words.filter_map(|word| word.rsplit_once("::")).collect();
        for (place, name) in &tests {
            assert!(
                exists(place, name),
                "{entry}: there is no test {place}::{name}"
            );
        }
        let own = format!("{}_", entry.to_lowercase());
        let own = tests.iter().any(|(_, name)| name.starts_with(&own));
        let reason = cells[3].contains("**Cannot apply**");
        assert!(
            own || reason,
            "{entry} has neither a test of its own nor a reason"
        );
    }
    assert_eq!(named, entries());
    assert!(!exists("pleg-core", "no_such_test") && !exists("pleg-core", "entries"));
    assert!(exists(
        "pleg-core",
        "the_table_names_every_entry_and_tests_that_exist"
    ));
}
