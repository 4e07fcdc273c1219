//! `docs/failures.md` lists every known failure, and every test that it names exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The numbers of all entries of `docs/failures.md`: A1 to A17, B1 to B15, C1 to C22, E1 to E7, and G1 to G20.
fn entries() -> BTreeSet<String> {
    let groups = [("A", 17), ("B", 15), ("C", 22), ("E", 7), ("G", 20)];
    let all = groups.into_iter();
    let all = all.flat_map(|(group, count)| (1..=count).map(move |n| format!("{group}{n}")));
    all.collect()
}

/// The folder of a crate, next to this one.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name(name)
}

/// The source text of the file `path`, or of all files in the folder `path`.
fn source(path: &Path) -> String {
    let Ok(files) = fs::read_dir(path) else {
        return fs::read_to_string(path).unwrap_or_default();
    };
    files.map(|file| source(&file.unwrap().path())).collect()
}

/// Returns true if `place::name` is a test. `place`: a crate or the path of a file.
fn exists(place: &str, name: &str) -> bool {
    let source = match place.trim_start_matches("crates/").split_once('/') {
        Some((of, path)) => source(&folder(of).join(path)),
        None => source(&folder(place).join("tests/suite")),
    };
    let item = source.split_once(&format!("fn {name}("));
    // The attributes of the function follow the closing brace of the item before it.
    let head = item.and_then(|(before, _)| before.rsplit("}\n").next());
    head.is_some_and(|head| head.contains("#[test]") || head.contains("#[tokio::test"))
}

#[test]
fn failure_table_has_every_entry_and_names_existing_tests() {
    let page = fs::read_to_string(folder("../docs/failures.md")).unwrap();
    let mut named = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let entry = cells[0];
        if entry == "entry" || entry.starts_with("---") {
            continue;
        }
        for entry in entry.split(", ") {
            assert!(named.insert(entry.to_owned()), "{entry} is there twice");
        }
        let words = cells[4].split('`');
        let tests: Vec<_> = words.filter_map(|word| word.rsplit_once("::")).collect();
        for (place, name) in &tests {
            assert!(exists(place, name), "{entry}: no test {place}::{name}");
        }
        let is_shown = !tests.is_empty() || cells[3].contains("**Cannot apply**");
        assert!(is_shown, "{entry} has no test and no reason");
    }
    assert_eq!(named, entries());
    assert!(!exists("pleg-core", "no_such_test") && !exists("pleg-core", "entries"));
}
