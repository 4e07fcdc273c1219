//! Upstream's pod lifecycle event generators (Kubernetes 1.26 to 1.37) as ports, faults included,
//! on the same seam ([`pleg_runtime::Runtime`]) as our own generator.
//!
//! They are here so that two things can be shown: that a test of the failure catalogue can fail
//! (the port fails it as upstream failed), and what a benchmark compares with. Nobody should run a
//! node on them, and nothing here is ever to be mended: a fault that is missing is a bug of the
//! port. Each fault names its entry of the catalogue (`docs/failures.md`).
//!
//! | subject | upstream |
//! | --- | --- |
//! | [`Generic`] | lists every second, with a relist of one pod on demand (1.36) or without |
//! | [`Evented`] | events write the cache, lists every 300 s (1.26 to 1.36) |
//! | [`Hint`] | lists every second, a stopped container's pod at once (1.37) |
//! | [`Ours`] | our own, behind the same trait |
//!
//! What the seam does not carry, the ports do not have: no metrics but a few counters, no
//! termination messages read from disk, no container statuses inside PodSandboxStatus
//! ([`Stamps`] says what stands for its timestamp), no watch conditions (1.32 to 1.35). Where Go's
//! map order is random, the order here is by pod uid. A worker that is stopped and started again
//! never runs twice at once (upstream's B9 needs a data race).
//!
//! How the rows of a list are read is the runtime's affair: where costs are compared, these have one
//! that decodes every row and does nothing beside (`benches/src/peer/plain.rs`).

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

pub use cache::{Cache, Entry};
pub use channel::{Event, Fifo};
pub use evented::{Evented, EventedSettings};
pub use generic::{Generic, GenericSettings};
pub use hint::{Hint, HintSettings};
pub use ours::Ours;
pub use relister::Stamps;
pub use status::PodStatus;
pub use subject::{Answer, Subject, Unhealthy};
pub use time::{KubeletClock, Time};
