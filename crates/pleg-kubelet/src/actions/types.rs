//! What is wanted of a pod, and the calls that follow.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use pleg::core::Resources;
use pleg::{Id, Instant};

use crate::gc::Removal;
use crate::pod_status::time_left;
use crate::probe::ProbeResults;
use crate::spec::PodSpec;
use crate::worker::Run;

/// What is wanted of a pod.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Desired<'a> {
    pub(crate) pod: Option<&'a Pod>,
    pub(crate) terminating: bool,
    /// Instead of that of the specification.
    pub(crate) grace: Option<Duration>,
}

impl<'a> Desired<'a> {
    /// A pod that runs while the run has a specification, and is terminated otherwise. `pod` is
    /// made from [`Run::last_spec`].
    pub const fn of<S>(run: &Run<S>, pod: Option<&'a Pod>) -> Self {
        Self {
            pod,
            terminating: run.spec.is_none(),
            grace: None,
        }
    }

    /// The same, but a pod whose `activeDeadlineSeconds` have passed is terminated. `status` is the one that was
    /// reported last.
    pub fn until_deadline<S>(mut self, run: &Run<S>, status: Option<&PodStatus>) -> Self {
        let left = |status| time_left(self.pod?, status, run.clock().wall());
        self.terminating |= status.and_then(left) == Some(Duration::ZERO);
        self
    }

    /// A pod that is terminated although it has a specification. `grace` replaces the pod's grace period.
    pub const fn terminate(pod: Option<&'a Pod>, grace: Option<Duration>) -> Self {
        Self {
            pod,
            terminating: true,
            grace,
        }
    }
}

/// What a decision is made for: [`Desired`] without the API's types, and the results of probes.
pub(crate) struct Wanted<'a> {
    pub(crate) spec: Option<&'a PodSpec>,
    pub(crate) terminating: bool,
    pub(crate) grace: Option<Duration>,
    pub(crate) probes: Option<&'a ProbeResults>,
}

/// The calls that a pod needs now, made by [`Plan::begin`](crate::plan::Plan::begin). They are
/// independent of each other, except that containers need their sandbox.
#[must_use = "they were recorded as tried: make all of these calls"]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Actions {
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
    /// Running containers whose resources must be changed.
    pub resize: Vec<ResizeContainer>,
    /// What has ended and is removed after the rest, in this order. A failure is no error of the
    /// pod: a later plan repeats it.
    pub garbage: Vec<Removal>,
    /// When something is due without a change of the pod.
    pub(crate) due: Option<Instant>,
    /// An exit code is missing, or the effect of a change of resources: details that were read after
    /// this instant show it.
    pub(crate) inspect_after: Option<Instant>,
    /// By container; the sandbox has the name "".
    pub(crate) waiting: BTreeMap<String, WaitReason>,
    pub(crate) replaced: BTreeSet<String>,
    /// The pod has ended or must be terminated.
    pub(crate) terminating: bool,
    /// Nothing of the pod runs any more, and nothing will. What is left may be removed.
    pub(crate) terminated: bool,
    pub(crate) phase: Option<PodPhase>,
    /// Running containers that go on, and that no earlier stop is about to end.
    pub(crate) keep: Vec<Id>,
}

impl Actions {
    /// Something else is due at that instant.
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
    /// The pod has ended or is terminated, or its sandbox is replaced.
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
    /// The container that exists already, and is started instead of a new one.
    pub existing: Option<Id>,
    pub(crate) back_off_key: String,
}

/// A container whose resources must be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResizeContainer {
    /// Its id.
    pub id: Id,
    /// Its name.
    pub name: String,
    /// The resources that it must get.
    pub to: Resources,
}

/// Why a container waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// It ended before and is restarted later: `CrashLoopBackOff`.
    BackOff {
        /// The whole delay, for `back-off 20s restarting failed container`.
        delay: Duration,
    },
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
