//! What the last complete list showed, so that the next one need hand over only what changed.
//!
//! Nobody has to believe it: the core takes a row for unchanged only where it has itself taken over
//! a row with that fingerprint. Pure data; its bound is what the last list showed.

use std::collections::BTreeMap;
use std::sync::Arc;

use pleg_runtime::Row;
use pleg_runtime::core::{Fingerprint, FullRow, Head, Id, Kind, Rows, Shown, Unchanged};

/// The rows that the last complete list showed, but for those that have no fingerprint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    /// As the next list will hand them over, if it shows the same: in order of their ids.
    shown: Arc<[Unchanged]>,
}

impl Memory {
    /// Where the row is that says the same, but for the state.
    ///
    /// Found by how its id begins, and known by the fingerprint, which is of the id, too. The text
    /// of an id is read only where others begin like it: of 10,000 pods that would be fetched from
    /// all over the memory, for nothing.
    fn find(&self, id: &str, kind: Kind, fingerprint: Fingerprint) -> Option<usize> {
        let head = Head::of(id);
        let at = self.shown.partition_point(|row| row.id.head() < head);
        let begins_so = |at| {
            let row = self.shown.get(at);
            row.is_some_and(|row: &Unchanged| row.id.head() == head)
        };
        let at = match begins_so(at + 1) {
            false => at,
            true => {
                let found = self.shown.binary_search_by(|row| row.id.as_str().cmp(id));
                found.ok()?
            }
        };
        let row = self.shown.get(at).filter(|row| row.id.head() == head)?;
        (row.fingerprint == fingerprint && row.kind == kind).then_some(at)
    }

    /// A list begins; one that is to be full compares its rows with nothing.
    pub fn begin(&mut self, full: bool) -> Listing<'_> {
        if full {
            self.shown = Arc::default();
        }
        Listing {
            again: vec![None; self.shown.len()],
            full: Vec::new(),
            memory: self,
        }
    }
}

/// A list whose rows arrive. Dropped before its [`end`](Self::end), it was never read.
#[derive(Debug)]
pub struct Listing<'a> {
    memory: &'a mut Memory,
    full: Vec<FullRow>,
    /// Of each row that is remembered: the state in which it came again.
    again: Vec<Option<Shown>>,
}

impl Listing<'_> {
    /// The next row. It is decoded only if it is not what it was.
    pub fn row(&mut self, row: Row<'_>) {
        let fingerprint = row.fingerprint();
        let found = fingerprint.and_then(|of| self.memory.find(row.id(), row.kind(), of));
        // An id that comes twice, which it should not, comes in full the second time.
        let again = found.and_then(|at| self.again.get_mut(at));
        if let Some(again) = again.filter(|again| again.is_none()) {
            *again = Some(row.shown());
        } else if let Some(report) = row.report() {
            self.full.push(FullRow {
                report,
                fingerprint,
            });
        }
    }

    /// The list is complete: its rows. It is what the next one is compared with.
    pub fn end(self) -> Rows {
        let Self {
            memory,
            full,
            again,
        } = self;
        let before = || memory.shown.iter().zip(&again);
        if full.is_empty() && before().all(|(row, again)| *again == Some(row.shown)) {
            let unchanged = memory.shown.clone();
            return Rows { full, unchanged };
        }
        let unchanged = before().filter_map(|(row, again)| {
            let shown = (*again)?;
            Some(Unchanged {
                shown,
                ..row.clone()
            })
        });
        let unchanged: Arc<[Unchanged]> = unchanged.collect();
        memory.shown = match full.is_empty() {
            true => unchanged.clone(),
            false => shown_by(&full, &unchanged),
        };
        Rows { full, unchanged }
    }
}

/// What these rows showed together, of each id the last.
fn shown_by(full: &[FullRow], unchanged: &[Unchanged]) -> Arc<[Unchanged]> {
    let mut last: BTreeMap<&Id, &FullRow> = BTreeMap::new();
    for row in full {
        last.insert(&row.report.id, row);
    }
    let others = unchanged.iter().filter(|row| !last.contains_key(&row.id));
    let mut shown: Vec<Unchanged> = others.cloned().collect();
    shown.extend(last.into_values().filter_map(|row| {
        Some(Unchanged {
            id: row.report.id.clone(),
            kind: row.report.identity.kind,
            shown: row.report.shown,
            fingerprint: row.fingerprint?,
        })
    }));
    // Two runs, each in order: that takes one walk.
    shown.sort_by(|one, other| one.id.cmp(&other.id));
    shown.into()
}

#[cfg(test)]
mod tests {
    use pleg_runtime::core::{Details, Identity, Report};

    use super::*;

    fn report(id: &str) -> Report {
        Report {
            id: id.into(),
            shown: Shown::Running,
            identity: Identity::unknown(Kind::Container),
            details: Details::none(Kind::Container),
        }
    }

    /// A row whose fingerprint is of the id, too.
    fn row(id: &str, says: u64) -> Row<'static> {
        let of_id: u64 = id.bytes().fold(0, |sum, byte| sum * 31 + u64::from(byte));
        Row::from(report(id)).with_fingerprint((of_id << 8 | says).into())
    }

    fn list(memory: &mut Memory, full: bool, rows: &[(&str, u64)]) -> Rows {
        let mut listing = memory.begin(full);
        for (id, says) in rows {
            listing.row(row(id, *says));
        }
        listing.end()
    }

    /// Lists these rows; which of them came in full.
    fn full(memory: &mut Memory, full: bool, rows: &[(&str, u64)]) -> Vec<String> {
        let rows = list(memory, full, rows);
        let ids = rows.full.iter().map(|row| row.report.id.to_string());
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

    /// Even where a fingerprint is not of the id, as it should be.
    #[test]
    fn no_row_is_taken_for_that_of_an_id_that_begins_otherwise() {
        let mut memory = Memory::default();
        let row = |id| Row::from(report(id)).with_fingerprint(7.into());
        for shown in [&["b"][..], &["a", "b"]] {
            let mut listing = memory.begin(false);
            shown.iter().for_each(|id| listing.row(row(id)));
            let rows = listing.end();
            let in_full: Vec<_> = rows.full.iter().map(|row| row.report.id.as_str()).collect();
            assert_eq!(in_full, shown.get(..1).unwrap());
        }
    }

    /// A runtime that numbers its ids.
    #[test]
    fn ids_that_begin_alike_are_told_apart() {
        let ids = ["pod-0001-1", "pod-0001-10", "pod-0001-2", "pod-0001"];
        let rows = ids.map(|id| (id, 1));
        let mut memory = Memory::default();
        for (n, new) in rows.iter().enumerate() {
            let shown = rows.get(..=n).unwrap();
            assert_eq!(full(&mut memory, false, shown), [new.0]);
        }
        assert!(full(&mut memory, false, &rows).is_empty());
        let changed = [rows[0], ("pod-0001-10", 2), rows[2], rows[3]];
        assert_eq!(full(&mut memory, false, &changed), ["pod-0001-10"]);
    }

    /// So that who has gone through them once need not do so again.
    #[test]
    fn the_same_rows_are_handed_over_as_the_very_same() {
        let mut memory = Memory::default();
        let (a, b) = (("a", 1), ("b", 1));
        list(&mut memory, false, &[a, b]);
        let first = list(&mut memory, false, &[a, b]).unchanged;
        let again = list(&mut memory, false, &[b, a]).unchanged;
        assert!(first.len() == 2 && Arc::ptr_eq(&first, &again));
        let less = list(&mut memory, false, &[b]).unchanged;
        assert!(less.len() == 1 && !Arc::ptr_eq(&first, &less));
        let again = list(&mut memory, false, &[b]).unchanged;
        assert!(Arc::ptr_eq(&less, &again));
    }

    #[test]
    fn a_row_in_another_state_is_unchanged_and_shows_it() {
        let mut memory = Memory::default();
        list(&mut memory, false, &[("a", 1)]);
        let ended = || {
            let mut ended = report("a");
            ended.shown = Shown::Exited;
            let of = row("a", 1).fingerprint().unwrap();
            Row::from(ended).with_fingerprint(of)
        };
        let mut rows = || {
            let mut listing = memory.begin(false);
            listing.row(ended());
            listing.end()
        };
        let first = rows();
        assert!(first.full.is_empty());
        assert_eq!(first.unchanged[0].shown, Shown::Exited);
        assert!(Arc::ptr_eq(&first.unchanged, &rows().unchanged));
    }

    #[test]
    fn a_row_without_a_fingerprint_always_comes_in_full() {
        let mut memory = Memory::default();
        full(&mut memory, false, &[("a", 1)]);
        for _ in 0..2 {
            let mut listing = memory.begin(false);
            listing.row(report("a").into());
            assert_eq!(listing.end().full.len(), 1);
        }
        assert_eq!(full(&mut memory, false, &[("a", 1)]), ["a"]);
    }

    /// It should not, but a runtime may name an id twice, and show two states of it.
    #[test]
    fn an_id_that_comes_twice_is_handed_over_twice() {
        let mut memory = Memory::default();
        full(&mut memory, false, &[("a", 1), ("b", 1), ("c", 1)]);
        for _ in 0..2 {
            let twice = ["c", "a", "a", "b", "a"].map(|id| (id, 1));
            let rows = list(&mut memory, false, &twice);
            let in_full: Vec<_> = rows.full.iter().map(|row| row.report.id.as_str()).collect();
            assert_eq!(in_full, ["a", "a"]);
            let unchanged: Vec<_> = rows.unchanged.iter().map(|row| row.id.as_str()).collect();
            assert_eq!(unchanged, ["a", "b", "c"]);
        }
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
