//! Rows on their way through what the read side remembers of the list before: those that say what
//! they said are handed over as unchanged, as the product's own reader does it.

use std::hash::{DefaultHasher, Hash, Hasher};

use pleg_core::{Fingerprint, Report, Rows};
use pleg_generic::Memory;
use pleg_runtime::Row;

/// The rows of a complete list that showed these.
pub fn rows(memory: &mut Memory, full: bool, reports: &[Report]) -> Rows {
    let mut listing = memory.begin(full);
    for report in reports {
        let fingerprint = fingerprint(report);
        listing.row(Row::from(report.clone()).with_fingerprint(fingerprint));
    }
    listing.end()
}

/// Of all but the state. Small: no number that could be taken for an instant.
fn fingerprint(report: &Report) -> Fingerprint {
    let mut hasher = DefaultHasher::new();
    (&report.id, &report.identity, &report.details).hash(&mut hasher);
    Fingerprint::from(hasher.finish() >> 32)
}
