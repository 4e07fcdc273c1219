//! The invariants: one minimal test per interleaving that once broke one. Random worlds are in
//! `pleg-proof`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

mod acknowledging;
mod afterwards;
mod counting;
mod findings;
mod initial;
mod judged;
mod known_ids;
mod lagging;
mod overruled;
mod owed;
mod probing;
mod reading;
mod releasing;
mod removed;
mod replay;
mod silent_stream;
mod telling;
mod unknown;
mod unknown_ids;
mod unlabelled;
mod whole_rows;
