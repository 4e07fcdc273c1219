//! The failure catalogue on the reconciler: one test per entry, named after it. Each says what
//! upstream Kubernetes does and what happens here; `docs/failures.md` is the whole table.
//!
//! Entries about the driver, the stream reader or the CRI client are tests of `pleg`,
//! `pleg-evented` and `pleg-cri`.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests"
)]

mod evented_events;
mod evented_freshness;
mod evented_read;
mod generic;
mod generic_health;
mod life;
mod scenarios;
