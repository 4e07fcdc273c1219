//! The synchronisation primitives between the driver and its consumers: from std, tokio and
//! dashmap, or, under `--cfg shuttle`, from shuttle, for the tests in `interleavings`.

#[cfg(not(shuttle))]
pub(crate) use {
    dashmap::DashMap,
    std::sync::atomic::AtomicU64,
    std::sync::{Mutex, MutexGuard},
    tokio::sync::{mpsc, oneshot, watch},
    tokio::time::timeout,
};
#[cfg(shuttle)]
pub(crate) use {
    shuttle::sync::atomic::AtomicU64,
    shuttle::sync::{Mutex, MutexGuard},
    shuttle_dashmap::DashMap,
    shuttle_tokio::sync::{mpsc, oneshot, watch},
    shuttle_tokio::time::timeout,
};
