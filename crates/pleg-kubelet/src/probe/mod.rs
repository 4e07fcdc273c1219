//! Startup, liveness and readiness probes of containers.
//!
//! The rules are those of upstream (`Probe` in the API reference; the page "Liveness, Readiness, and Startup Probes").

mod check;
mod prober;
mod state;
mod tls;

use std::collections::{BTreeMap, BTreeSet};

use pleg::Id;

pub use check::Exec;
pub(crate) use check::{Check, CheckError, check_of, hook_of};
pub use prober::Prober;

/// The purpose of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ProbeKind {
    /// Checks if the container has started. The container's other probes run only after it has started.
    Startup,
    /// Checks if the container must be restarted.
    Liveness,
    /// Checks if the container accepts requests.
    Readiness,
}

/// The results of a pod's probes for its running containers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProbeResults {
    /// The names of running containers that have started: their startup probe has succeeded, or they have none.
    pub started: BTreeSet<String>,
    /// The names of started containers that are ready: their readiness probe succeeds, or they have none.
    pub ready: BTreeSet<String>,
    /// The running containers that must be stopped, because their startup or liveness probe has failed.
    pub failed: BTreeMap<Id, ProbeKind>,
}
