//! What the last complete list showed, so that the next one need hand over only what changed.
//!
//! Nobody has to believe it: the core takes a row for unchanged only where it has itself taken over
//! a row with that fingerprint. Pure data; its bound is what the last list showed.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher as _, Hash, Hasher};

use pleg_runtime::Row;
use pleg_runtime::core::{Fingerprint, Id, ListRow, Unchanged};
use rapidhash::fast::GlobalState;

/// The fingerprint that the last complete list showed for each id.
///
/// Found by a hash of the id, seeded in each process, and not compared with its text: of 10,000
/// pods that would be fetched from all over the memory, for nothing. An id of another that had the
/// same hash would have to have the same fingerprint, too, to be taken for it.
///
/// In order of the hashes, and not in a map, of which half would be empty. (In order of the ids
/// nothing would have to be sorted, and an audit takes 7 % fewer instructions; but to find an id is
/// to read its text, and an audit of 10,000 pods took 41 ms of CPU then instead of 31.)
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    hashes: GlobalState,
    shown: Vec<Shown>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    hash: u64,
    id: Id,
    fingerprint: Fingerprint,
}

impl Memory {
    fn of(&self, id: &str) -> Option<&Shown> {
        let hash = self.hashes.hash_one(id);
        let found = self.shown.binary_search_by_key(&hash, |shown| shown.hash);
        self.shown.get(found.ok()?)
    }

    /// A list begins; one that is to be full compares its rows with nothing.
    pub fn begin(&mut self, full: bool) -> Listing<'_> {
        if full {
            self.shown.clear();
        }
        Listing {
            // As many as before, and no allocation while they come.
            unchanged: Vec::with_capacity(self.shown.len()),
            full: Vec::new(),
            memory: self,
        }
    }

    /// Takes over what these rows showed, of each id the last one.
    fn learn(&mut self, rows: &[ListRow]) {
        let mut learned = BTreeMap::new();
        for row in rows {
            if let ListRow::Full {
                report,
                fingerprint,
            } = row
            {
                let hash = self.hashes.hash_one(report.id.as_str());
                let of = |fingerprint| Shown {
                    hash,
                    id: report.id.clone(),
                    fingerprint,
                };
                learned.insert(hash, fingerprint.map(of));
            }
        }
        self.shown
            .retain(|shown| !learned.contains_key(&shown.hash));
        self.shown.reserve_exact(learned.len());
        self.shown.extend(learned.into_values().flatten());
        // Two runs, each in order: that takes one walk.
        self.shown.sort_by_key(|shown| shown.hash);
    }
}

/// For provers, whose worlds are small.
impl Hash for Memory {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let all = self.shown.iter().map(|s| (&s.id, s.fingerprint));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all.hash(state);
    }
}

/// A list whose rows arrive. Dropped before its [`end`](Self::end), it was never read.
#[derive(Debug)]
pub struct Listing<'a> {
    memory: &'a mut Memory,
    full: Vec<ListRow>,
    unchanged: Vec<ListRow>,
}

impl Listing<'_> {
    /// The next row. It is decoded only if it is not what it was.
    pub fn row(&mut self, row: Row<'_>) {
        let fingerprint = row.fingerprint();
        let before = self.memory.of(row.id());
        if let (Some(fingerprint), Some(before)) = (fingerprint, before)
            && fingerprint == before.fingerprint
        {
            self.unchanged.push(ListRow::Unchanged(Unchanged {
                id: before.id.clone(),
                kind: row.kind(),
                shown: row.shown(),
                fingerprint,
            }));
        } else if let Some(report) = row.report() {
            self.full.push(ListRow::Full {
                report: Box::new(report),
                fingerprint,
            });
        }
    }

    /// The list is complete: its rows, the full ones first, the unchanged ones in the order of
    /// their ids. It is what the next one is compared with.
    pub fn end(self) -> Vec<ListRow> {
        let Self {
            memory,
            full,
            mut unchanged,
        } = self;
        if !full.is_empty() {
            memory.learn(&full);
        }
        let is_known = |row: &&ListRow| {
            matches!(
                row,
                ListRow::Full {
                    fingerprint: Some(_),
                    ..
                }
            )
        };
        if memory.shown.len() > unchanged.len() + full.iter().filter(is_known).count() {
            let shown = full.iter().chain(&unchanged);
            let shown: HashSet<&Id> = shown.map(ListRow::id).collect();
            memory.shown.retain(|before| shown.contains(&before.id));
        }
        unchanged.sort_unstable_by(|one, other| one.id().cmp(other.id()));
        if full.is_empty() {
            return unchanged;
        }
        let mut rows = full;
        rows.append(&mut unchanged);
        rows
    }
}

#[cfg(test)]
mod tests {
    use pleg_runtime::core::{Details, Identity, Kind, Report, Shown};

    use super::*;

    fn report(id: &str) -> Report {
        Report {
            id: id.into(),
            shown: Shown::Running,
            identity: Identity::unknown(Kind::Container),
            details: Details::none(Kind::Container),
        }
    }

    fn row(id: &str, fingerprint: u64) -> Row<'static> {
        Row::from(report(id)).with_fingerprint(fingerprint.into())
    }

    /// Lists these rows; which of them came in full.
    fn full(memory: &mut Memory, full: bool, rows: &[(&str, u64)]) -> Vec<String> {
        let mut listing = memory.begin(full);
        for (id, fingerprint) in rows {
            listing.row(row(id, *fingerprint));
        }
        let rows = listing.end();
        let is_full = |row: &&ListRow| matches!(row, ListRow::Full { .. });
        let ids = rows.iter().filter(is_full).map(|row| row.id().to_string());
        ids.collect()
    }

    #[test]
    fn only_what_changed_comes_in_full() {
        let mut memory = Memory::default();
        assert_eq!(full(&mut memory, false, &[("a", 1), ("b", 1)]), ["a", "b"]);
        assert!(full(&mut memory, false, &[("b", 1), ("a", 1)]).is_empty());
        assert_eq!(full(&mut memory, false, &[("a", 2), ("b", 1)]), ["a"]);
        assert!(full(&mut memory, false, &[("a", 2), ("b", 1)]).is_empty());
        assert_eq!(full(&mut memory, true, &[("a", 2), ("b", 1)]), ["a", "b"]);
    }

    #[test]
    fn what_one_list_did_not_show_is_new_in_the_next() {
        let mut memory = Memory::default();
        full(&mut memory, false, &[("a", 1), ("b", 1)]);
        full(&mut memory, false, &[("a", 1)]);
        assert_eq!(memory.shown.len(), 1);
        assert_eq!(full(&mut memory, false, &[("a", 1), ("b", 1)]), ["b"]);
    }

    #[test]
    fn a_row_without_a_fingerprint_always_comes_in_full() {
        let mut memory = Memory::default();
        full(&mut memory, false, &[("a", 1)]);
        for _ in 0..2 {
            let mut listing = memory.begin(false);
            listing.row(report("a").into());
            assert!(matches!(listing.end()[..], [ListRow::Full { .. }]));
        }
        assert_eq!(full(&mut memory, false, &[("a", 1)]), ["a"]);
    }

    /// It should not, but a runtime may name an id twice: the order of ids holds nevertheless.
    #[test]
    fn an_id_that_comes_twice_is_handed_over_twice() {
        let mut memory = Memory::default();
        full(&mut memory, false, &[("a", 1), ("b", 1), ("c", 1)]);
        let mut listing = memory.begin(false);
        for id in ["c", "a", "a", "b", "a"] {
            listing.row(row(id, 1));
        }
        let rows = listing.end();
        let ids: Vec<_> = rows.iter().map(|row| row.id().as_str()).collect();
        assert_eq!(ids, ["a", "a", "a", "b", "c"]);
    }

    /// What a list showed that did not come to its end was never handed over.
    #[test]
    fn a_list_that_fails_is_not_remembered() {
        let mut memory = Memory::default();
        full(&mut memory, false, &[("a", 1), ("b", 1)]);
        let mut listing = memory.begin(false);
        listing.row(row("a", 2));
        listing.row(row("b", 1));
        drop(listing);
        assert!(full(&mut memory, false, &[("a", 1)]).is_empty());
        assert_eq!(full(&mut memory, false, &[("b", 1)]), ["b"]);
    }
}
