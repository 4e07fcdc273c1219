//! Startup, liveness and readiness probes of containers.
//!
//! The rules are upstream's (the Kubernetes API reference, `Probe`, and its concept page "Liveness,
//! Readiness, and Startup Probes").

mod check;
mod grpc;
mod prober;
mod state;
mod tls;

pub use check::{Check, CheckError, Exec};
pub use prober::{Probe, ProbeResults, Prober};
pub use state::{ProbeKind, ProbeTiming};
