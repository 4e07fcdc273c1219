//! The desired state of a pod, and the calls that it needs.

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
    /// The grace period that replaces the one of the specification.
    pub(crate) grace: Option<Duration>,
}

impl<'a> Desired<'a> {
    /// The pod runs if `run` has a specification, and is terminated otherwise. Build `pod` from [`Run::last_spec`].
    pub const fn of<S>(run: &Run<S>, pod: Option<&'a Pod>) -> Self {
        Self {
            pod,
            terminating: run.spec.is_none(),
            grace: None,
        }
    }

    /// Also terminates the pod once its `activeDeadlineSeconds` have passed. `status` is the status reported last.
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

/// The calls that a pod needs now, from [`Plan::begin`](crate::plan::Plan::begin). They are independent of each other,
/// except that containers need their sandbox.
#[must_use = "they were recorded as tried: make all of these calls"]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Actions {
    /// Containers to stop. They may be stopped at the same time.
    pub stop: Vec<StopContainer>,
    /// Sandboxes to stop. All their containers have ended.
    pub stop_sandboxes: Vec<Id>,
    /// Created containers to remove: they must not start.
    pub remove: Vec<Id>,
    /// The attempt of the sandbox to create.
    pub create_sandbox: Option<u32>,
    /// The sandbox for [`start`](Self::start).
    pub sandbox: Option<Id>,
    /// Containers to start, in this order.
    pub start: Vec<StartContainer>,
    /// Running containers whose resources must be changed.
    pub resize: Vec<ResizeContainer>,
    /// Ended containers and sandboxes to remove after the other calls, in this order. A later plan retries failures.
    pub garbage: Vec<Removal>,
    /// The instant of the next run if the pod does not change.
    pub(crate) due: Option<Instant>,
    /// If an exit code or the effect of a resize is missing: the instant after which details must be read to show it.
    pub(crate) inspect_after: Option<Instant>,
    /// The reasons why containers wait, by name. The entry of the sandbox has an empty name.
    pub(crate) waiting: BTreeMap<String, WaitReason>,
    pub(crate) replaced: BTreeSet<String>,
    /// The pod has ended or must be terminated.
    pub(crate) terminating: bool,
    /// No container of the pod runs, and none will run again. The containers that still exist may be removed.
    pub(crate) terminated: bool,
    pub(crate) phase: Option<PodPhase>,
    /// Containers that keep running: they run, and no earlier stop can still take effect.
    pub(crate) keep: Vec<Id>,
}

impl Actions {
    /// Schedules the next run for the instant `at` at the latest.
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
    /// The grace period, which includes the `preStop` hook.
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
    /// Another container of its name is preferred: this one is older, or in another sandbox.
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
    /// The new container's attempt number. No earlier create call of this name had it, not even one that timed out.
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
    /// The resources that it must get.
    pub to: Resources,
}

/// The reason why a container waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// The container ended before and is restarted later: `CrashLoopBackOff`.
    BackOff {
        /// The whole delay, not only the rest: for the message `back-off 20s restarting failed container`.
        delay: Duration,
    },
    /// The runtime has not shown yet whether a container of its name, or the sandbox, exists.
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
    /// At least one regular container ended otherwise.
    Failed,
}
