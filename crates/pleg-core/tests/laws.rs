//! The laws, one minimal test per interleaving that once broke one. Random worlds are in
//! `pleg-proof`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::panic,
    reason = "tests"
)]

#[path = "laws/afterwards.rs"]
mod afterwards;
#[path = "laws/counting.rs"]
mod counting;
#[path = "laws/findings.rs"]
mod findings;
#[path = "laws/judged.rs"]
mod judged;
#[path = "laws/known_ids.rs"]
mod known_ids;
#[path = "laws/lagging.rs"]
mod lagging;
#[path = "laws/overruled.rs"]
mod overruled;
#[path = "laws/reading.rs"]
mod reading;
#[path = "laws/replay.rs"]
mod replay;
#[path = "script/mod.rs"]
mod script;
#[path = "laws/state.rs"]
mod state;
#[path = "laws/telling.rs"]
mod telling;
#[path = "laws/whole_rows.rs"]
mod whole_rows;
