//! Runs the fuzz targets on their seeds and on past failures.
//!
//! `PLEG_BLESS=1` writes the seeds of `event_bytes` and `list_bytes`.

#![allow(missing_docs, clippy::expect_used, clippy::panic, reason = "tests")]

#[cfg(feature = "bytes")]
mod seeds;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.parse().ok()
}

fn folder(kind: &str, target: &str) -> PathBuf {
    let fuzz = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz");
    PathBuf::from(fuzz).join(kind).join(target)
}

fn files(kind: &str, target: &str) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = fs::read_dir(folder(kind, target)) else {
        return BTreeMap::new();
    };
    entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name").to_string_lossy();
            (name.into_owned(), fs::read(&path).expect("a file"))
        })
        .collect()
}

fn replay(target: &str, run: fn(&[u8])) {
    let seeds = files("seeds", target);
    assert!(!seeds.is_empty(), "no seeds of {target}");
    for (name, bytes) in seeds.iter().chain(&files("regressions", target)) {
        if let Err(why) = std::panic::catch_unwind(|| run(bytes)) {
            panic!("{target}/{name}: {why:?}");
        }
    }
}

/// The committed seeds are those that `seeds.rs` generates.
#[cfg(feature = "bytes")]
fn seeds_are_current(target: &str, made: Vec<(&str, Vec<u8>)>) {
    let made: BTreeMap<String, Vec<u8>> = made
        .into_iter()
        .map(|(name, bytes)| (name.to_owned(), bytes))
        .collect();
    if std::env::var_os("PLEG_BLESS").is_some() {
        let folder = folder("seeds", target);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        for (name, bytes) in &made {
            fs::write(folder.join(name), bytes).expect("a seed");
        }
    }
    assert_eq!(files("seeds", target), made, "run with PLEG_BLESS=1");
}

#[test]
#[cfg(feature = "bytes")]
fn event_seeds_pass() {
    seeds_are_current("event_bytes", seeds::events());
    replay("event_bytes", pleg_fuzz::event_bytes);
}

#[test]
#[cfg(feature = "bytes")]
fn list_seeds_pass() {
    seeds_are_current("list_bytes", seeds::lists());
    replay("list_bytes", pleg_fuzz::list_bytes);
}

#[test]
fn operation_seeds_pass() {
    replay("operations", pleg_fuzz::operations);
}

/// Random bytes as operations (`PLEG_FUZZ_ROWS=n` for more).
#[test]
fn random_operations_pass() {
    let mut rng = oorandom::Rand64::new(1);
    for n in 0..number("PLEG_FUZZ_ROWS").unwrap_or(1500) {
        let next = || rng.rand_u64().to_le_bytes();
        let bytes: Vec<u8> = std::iter::repeat_with(next)
            .take(4 + n % 150)
            .flatten()
            .collect();
        if let Err(why) = std::panic::catch_unwind(|| pleg_fuzz::operations(&bytes)) {
            let found = std::env::temp_dir().join(format!("pleg-operations-{n}"));
            fs::write(&found, &bytes).expect("a file");
            panic!("row {n}, kept as {}: {why:?}", found.display());
        }
    }
}
