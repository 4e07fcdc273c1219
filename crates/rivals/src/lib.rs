//! Ports of upstream's pod lifecycle event generators (Kubernetes 1.26 to 1.37), with their faults.
//! They use the same runtime interface ([`pleg_runtime::Runtime`]) as this project's generator.
//!
//! The ports have two purposes: they show that a test of the failure catalogue can fail (the port
//! fails it as upstream does), and benchmarks compare with them. They are not for use on a node.
//! Faults of upstream must not be fixed here: a missing fault is a bug of the port. Comments name
//! the entry of the catalogue (`docs/failures.md`) for each fault.
//!
//! | subject | upstream |
//! | --- | --- |
//! | [`Generic`] | lists every second; with or without a relist of one pod on demand (1.36) |
//! | [`Evented`] | events write the cache; lists every 300 s (1.26 to 1.36) |
//! | [`Hint`] | lists every second; relists the pod of a stopped container at once (1.37) |
//! | [`Ours`] | this project's generator, with the same trait |
//!
//! The ports lack what the runtime interface does not provide: metrics except for a few counters,
//! termination messages that are read from disk, container statuses in PodSandboxStatus (for its
//! timestamp see [`StatusTimestamps`]), and watch conditions (1.32 to 1.35). Where Go's map order is
//! random, the order here is by pod uid. A worker that is stopped and started again never runs
//! twice at the same time (upstream's B9 needs a data race).
//!
//! The runtime decides how much of each list row is decoded. In benchmarks the ports use a runtime
//! that decodes every row and does nothing else (`benches/src/subject/full_decode.rs`).

mod cache;
mod channel;
mod evented;
mod generic;
mod hint;
mod inspect;
mod ours;
mod record;
mod relister;
mod status;
mod stream;
mod subject;
mod time;

pub use cache::Cache;
pub use channel::{Event, Fifo};
pub use evented::{Evented, EventedSettings};
pub use generic::{Generic, GenericSettings};
pub use hint::Hint;
pub use ours::Ours;
pub use relister::StatusTimestamps;
pub use status::PodStatus;
pub use subject::{Answer, Subject, Unhealthy};
pub use time::Time;
