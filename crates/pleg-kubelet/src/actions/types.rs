//! What a decision is made from, and what is decided.

use std::collections::BTreeSet;
use std::time::Duration;

use pleg::core::Resources;
use pleg::{Id, Instant};

use crate::backoff::Delayed;
use crate::probe::ProbeResults;
use crate::spec::PodSpec;

/// What a decision depends on, beside the status and the history.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Desired<'a> {
    /// The specification, the last one if the pod is to be terminated; `None` if it was never known.
    pub spec: Option<&'a PodSpec>,
    /// Whether the pod is to be terminated. So it is where the specification is `None`.
    pub terminating: bool,
    /// What its probes say: containers that have failed are stopped, and the next container after a
    /// sidecar waits until that has started. `None`: every running container has started.
    pub probes: Option<&'a ProbeResults>,
}

impl<'a> Desired<'a> {
    /// A pod that is to run.
    #[must_use]
    pub const fn run(spec: &'a PodSpec) -> Self {
        Self {
            spec: Some(spec),
            terminating: false,
            probes: None,
        }
    }

    /// A pod that is to be terminated, and its last specification, if it is known.
    #[must_use]
    pub const fn terminate(spec: Option<&'a PodSpec>) -> Self {
        Self {
            spec,
            terminating: true,
            probes: None,
        }
    }
}

/// What a pod needs now. The calls of one decision are independent of each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PodActions {
    /// Containers to stop. They may be stopped at the same time.
    pub stop: Vec<StopContainer>,
    /// Sandboxes to stop. None of their containers runs.
    pub stop_sandboxes: Vec<Id>,
    /// Containers to remove: created, and never to be started.
    pub remove: Vec<Id>,
    /// The attempt of the sandbox to create.
    pub create_sandbox: Option<u32>,
    /// The sandbox for [`start`](Self::start).
    pub sandbox: Option<Id>,
    /// Containers to start, in this order.
    pub start: Vec<StartContainer>,
    /// Running containers whose resources are to be changed.
    pub resize: Vec<ResizeContainer>,
    /// When something is due without a change of the pod.
    pub due: Option<Instant>,
    /// An exit code is missing, or the effect of a change of resources. Take a view from
    /// [`details_newer_than`](pleg::Pleg::details_newer_than) this instant and decide again.
    pub inspect_after: Option<Instant>,
    /// Containers that wait, and why.
    pub waiting: Vec<Waiting>,
    /// The names of containers that have ended and run again, however they ended: this worker stopped them to
    /// replace them, or they belong to an earlier pod of this uid. For
    /// [`PodState::replaced`](crate::pod_status::PodState::replaced).
    pub replaced: BTreeSet<String>,
    /// The pod has ended or is to be terminated.
    pub terminating: bool,
    /// Nothing of the pod runs any more, and nothing will. What is left may be removed.
    pub terminated: bool,
    /// How the pod ended, once every exit code is known or stays unknown.
    pub phase: Option<PodPhase>,
    /// Running containers that are to go on, and that no earlier stop is about to end.
    pub(crate) keep: Vec<Id>,
}

impl PodActions {
    /// True if the decision makes no call.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stop.is_empty()
            && self.stop_sandboxes.is_empty()
            && self.remove.is_empty()
            && self.create_sandbox.is_none()
            && self.start.is_empty()
            && self.resize.is_empty()
    }

    /// Something is due at that instant, too.
    pub(crate) fn due_by(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

/// A container to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopContainer {
    /// Its id.
    pub id: Id,
    /// Its name.
    pub name: String,
    /// How long it has to end by itself.
    pub grace: Duration,
    /// Why.
    pub reason: StopReason,
}

/// Why a container is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The pod has ended or is to be terminated, or its sandbox is replaced.
    Pod,
    /// Its specification changed.
    Changed,
    /// Its state is unknown.
    Unknown,
    /// It is not the one of its name: in another sandbox, or older.
    Surplus,
    /// A probe failed.
    Unhealthy,
}

impl StopReason {
    /// The reason in words, for logs and events.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pod => "its pod or sandbox ends",
            Self::Changed => "its specification changed",
            Self::Unknown => "its state is unknown",
            Self::Surplus => "another container has its name",
            Self::Unhealthy => "a probe failed",
        }
    }
}

/// A container to start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StartContainer {
    /// Its name.
    pub name: String,
    /// The attempt to create it with. No earlier container of this name can have it, not even one
    /// whose create timed out.
    pub attempt: u32,
    /// How often a container of this name was restarted, with this one.
    pub restart_count: u32,
    /// The container exists already and is to be started, not created.
    pub existing: Option<Id>,
    pub(crate) back_off_key: String,
}

/// A container whose resources are to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResizeContainer {
    /// Its id.
    pub id: Id,
    /// Its name.
    pub name: String,
    /// The resources that it is to have.
    pub to: Resources,
}

/// A container that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: WaitReason,
}

/// Why a container waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// It ended before and is restarted later: `CrashLoopBackOff`.
    BackOff(Delayed),
    /// It is not settled whether a container of its name, or the sandbox, exists.
    StatusMissing,
    /// Its last container's exit code is not known yet.
    ExitCode,
}

/// How a pod ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PodPhase {
    /// Every regular container ended with exit code 0.
    Succeeded,
    /// At least one did not.
    Failed,
}
