//! The desired state of a pod, and the calls to the runtime that the pod needs to reach it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use pleg::core::Resources;
use pleg::{Id, Instant};

use crate::gc::Removal;
use crate::pod_status::time_left;
use crate::worker::Run;

/// The desired state of a pod: running or terminated.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Desired<'a> {
    pub(crate) pod: Option<&'a Pod>,
    pub(crate) terminating: bool,
    /// Replaces the grace period of the pod's specification.
    pub(crate) grace: Option<Duration>,
    /// False: the pod must not have a deadline.
    pub(crate) has_deadline: bool,
}

impl<'a> Desired<'a> {
    /// The pod runs if `run` has a specification, and is terminated otherwise. `pod` is the pod in [`Run::last_spec`].
    pub const fn of<S>(run: &Run<S>, pod: Option<&'a Pod>) -> Self {
        let mut desired = Self::terminate(pod, None);
        (desired.terminating, desired.has_deadline) = (run.spec.is_none(), false);
        desired
    }

    /// Also terminates the pod once its `activeDeadlineSeconds` have passed. `status` is its last reported status.
    /// Without this call, the performer refuses a pod that has a deadline.
    pub fn until_deadline<S>(mut self, run: &Run<S>, status: Option<&PodStatus>) -> Self {
        self.has_deadline = true;
        let left = |status| time_left(self.pod?, status, run.clock().wall());
        self.terminating |= status.and_then(left) == Some(Duration::ZERO);
        self
    }

    /// The pod is terminated, even if it has a specification. `grace` replaces the pod's grace period.
    pub const fn terminate(pod: Option<&'a Pod>, grace: Option<Duration>) -> Self {
        Self {
            pod,
            terminating: true,
            grace,
            has_deadline: true,
        }
    }
}

/// The calls to the runtime that a pod needs now, from [`Plan::begin`](crate::plan::Plan::begin). Most of them can be
/// made at the same time. But the calls in `start` need the sandbox, and the calls in `garbage` come after all others.
#[must_use = "they were recorded as tried: make all of these calls"]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Actions {
    /// Containers to stop. They may be stopped at the same time.
    pub stop: Vec<StopContainer>,
    /// Sandboxes to stop. No container in them runs.
    pub stop_sandboxes: Vec<Id>,
    /// Containers to remove. They were created and must not be started.
    pub remove: Vec<Id>,
    /// The attempt number of the sandbox to create. `None`: no sandbox must be created.
    pub create_sandbox: Option<u32>,
    /// The sandbox in which the containers in [`start`](Self::start) run.
    pub sandbox: Option<Id>,
    /// Containers to start, in this order.
    pub start: Vec<StartContainer>,
    /// Running containers whose resources must be changed.
    pub resize: Vec<ResizeContainer>,
    /// Ended or never started containers, and old sandboxes, to remove last, in order. A later plan retries failures.
    pub garbage: Vec<Removal>,
    /// The instant of the pod's next run, unless the pod changes earlier.
    pub(crate) due: Option<Instant>,
    /// Set if an exit code or the effect of a resize is missing: a read of details after this instant shows it.
    pub(crate) inspect_after: Option<Instant>,
    /// The reasons why containers wait, by container name. The reason why the sandbox is not ready has an empty name.
    pub(crate) waiting: BTreeMap<String, WaitReason>,
    pub(crate) replaced: BTreeSet<String>,
    /// True if the pod has ended or must be terminated.
    pub(crate) terminating: bool,
    /// True if no container of the pod runs, and none will run again. Containers that still exist may be removed.
    pub(crate) terminated: bool,
    pub(crate) phase: Option<PodPhase>,
    /// Containers that keep running: no earlier stop call for them can still take effect.
    pub(crate) keep: Vec<Id>,
}

impl Actions {
    /// Schedules the pod's next run for the instant `at`, or for an earlier instant that was already given.
    pub(crate) fn due_by(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

/// A container to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopContainer {
    /// The container's id.
    pub id: Id,
    /// The container's name.
    pub name: String,
    /// The grace period. The time that the `preStop` hook takes counts as part of it.
    pub grace: Duration,
    /// The reason for the stop.
    pub reason: StopReason,
}

/// The reason why a container is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The pod has ended or is terminated, or its sandbox is replaced.
    Pod,
    /// The container's specification changed.
    Changed,
    /// The container's state is unknown.
    Unknown,
    /// Another container of the same name is preferred: the stopped one is older, or in another sandbox.
    Surplus,
    /// A probe failed.
    Unhealthy,
    /// The `postStart` hook failed.
    HookFailed,
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
            Self::HookFailed => "its postStart hook failed",
        }
    }
}

/// A container to start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StartContainer {
    /// The container's name.
    pub name: String,
    /// The container's attempt number. A new container gets a number that no earlier create call of its name had.
    pub attempt: u32,
    /// The restart count of the container: 0 for the first one of its name, then one more for each restart.
    pub restart_count: u32,
    /// The id of an existing container that is started instead of a new one.
    pub existing: Option<Id>,
    pub(crate) back_off_key: String,
}

/// A container whose resources must be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ResizeContainer {
    /// The container's id.
    pub id: Id,
    /// The container's name.
    pub name: String,
    /// The resources that the container must get.
    pub to: Resources,
}

/// The reason why a container waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// The container has ended, and the back-off delays its restart: `CrashLoopBackOff`.
    BackOff {
        /// The whole delay, not the time that is left. The message `back-off 20s restarting failed container` has it.
        delay: Duration,
    },
    /// The status of a container of this name, or of the pod's sandbox (its addresses, for example), is not known yet.
    StatusMissing,
    /// The exit code of the last container of this name is not known yet.
    ExitCode,
}

/// The final phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PodPhase {
    /// Every regular container ended with exit code 0.
    Succeeded,
    /// At least one regular container did not end with exit code 0.
    Failed,
}
