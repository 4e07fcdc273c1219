//! Ports of two pod lifecycle event generators of upstream (Kubernetes 1.36 and 1.37), for comparison in
//! benchmarks. They use the same runtime interface ([`pleg_runtime::Runtime`]) as this project's
//! generator, and they have upstream's faults: serial inspections, a lock that a relist holds during all of its
//! calls, no time limit for an inspection, a bounded queue of lifecycle events. Do not use them on a node.
//!
//! | implementation of [`Subject`] | behavior |
//! | --- | --- |
//! | [`Port::generic`] | lists every second; relists one pod on demand (1.36) |
//! | [`Port::hint`] | as `generic`, and relists the pod of a stopped container at once (1.37) |
//! | [`Ours`] | this project's generator, not a port |
//!
//! The ports have no metrics, no requests to reinspect a pod, no pod addresses, and read no
//! termination messages from disk. Where Go's map order is random, the order here is by pod uid.
//!
//! The implementation of [`pleg_runtime::Runtime`] decides how much of each list row it decodes. In benchmarks the
//! ports use one that decodes every row in full, as upstream does (`benches/src/subject/full_decode.rs`).

mod cache;
mod inspect;
mod ours;
mod port;
mod record;
mod subject;

pub use ours::Ours;
pub use port::Port;
pub use subject::{Event, Fifo, Subject};
