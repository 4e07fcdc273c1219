//! Decides what a pod needs now: a pure function of its specification, its status and its history.
//!
//! The rules are those of upstream's kubelet (`computePodActions`), with these differences:
//!
//! * A worker stops a container in one run and replaces it in a later run, whose view was read after the stop. It
//!   starts no container while another of the same name is created, running, unknown or marked `status_missing` in
//!   the view. A container that was stopped to be replaced is replaced whatever its exit code, as upstream does.
//! * A sandbox is created in one run, and its first containers in a later run. The containers' environment can then
//!   have the pod's addresses, and a failed creation of a sandbox costs a container neither an attempt nor back-off.
//! * A container that was created but not started is started; upstream creates another one. If the start fails, the
//!   container is removed before another one is created.
//! * A decision waits for a missing exit code while the runtime may still report it. After that, the exit is a failure.
//! * A container without a hash annotation does not count as changed.
//! * A sandbox without an address is not replaced.
//!
//! [`Planner`](crate::plan::Planner) makes these decisions and stores the history.

mod containers;
mod sandbox;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use pleg::core::Resources;
use pleg::{ContainerState, ContainerStatus, Exit, Id, Instant, PodView};

use crate::gc::Removal;
use crate::history::{Call, PodHistory};
use crate::pod_status::time_left;
use crate::probe::ProbeResults;
use crate::spec::{UNKNOWN_EXIT_CODE, policy, restarts};
use crate::worker::Run;

/// The desired state of a pod: running or terminated.
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct Desired<'a> {
    pub(crate) pod: Option<&'a Pod>,
    pub(crate) terminating: bool,
    pub(crate) grace: Option<Duration>,
    pub(crate) has_deadline: bool,
}

impl<'a> Desired<'a> {
    /// The pod runs if `run` has a specification, and is terminated otherwise. `pod` is the pod in [`Run::last_spec`].
    pub const fn of<S>(run: &Run<S>, pod: Option<&'a Pod>) -> Self {
        let mut desired = Self::terminate(pod, None);
        (desired.terminating, desired.has_deadline) = (run.spec.is_none(), false);
        desired
    }

    /// Also terminates the pod once its `activeDeadlineSeconds` have passed. `status` is the last status reported.
    /// Without this call, the performer refuses a pod that has a deadline.
    pub fn until_deadline<S>(mut self, run: &Run<S>, status: Option<&PodStatus>) -> Self {
        self.has_deadline = true;
        let left = |status| time_left(self.pod?, status, run.pleg.clock().wall());
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
    /// Sandboxes to stop. No container in them is running.
    pub stop_sandboxes: Vec<Id>,
    /// Containers to remove. They were created and must not be started.
    pub remove: Vec<Id>,
    /// The attempt number of the sandbox to create, if any.
    pub create_sandbox: Option<u32>,
    /// The sandbox in which the containers in [`start`](Self::start) run.
    pub sandbox: Option<Id>,
    /// Containers to start, in this order.
    pub start: Vec<StartContainer>,
    /// Running containers whose resources must be changed.
    pub resize: Vec<ResizeContainer>,
    /// Ended or never started containers, and old sandboxes, to remove last, in order. A later plan retries failures.
    pub garbage: Vec<Removal>,
    /// The instant of the next run of the pod's worker, unless the pod changes earlier.
    pub(crate) due: Option<Instant>,
    /// Set if an exit code, address or effect of a call is missing: a read of details after this instant shows it.
    pub(crate) inspect_after: Option<Instant>,
    /// True if the pod has ended or must be terminated.
    pub(crate) terminating: bool,
    // The next four fields are in `Observed` as well, with comments.
    pub(crate) waiting: BTreeMap<String, WaitReason>,
    pub(crate) replaced: BTreeSet<String>,
    pub(crate) phase: Option<PodPhase>,
    pub(crate) terminated: bool,
    /// Running containers that no earlier stop call can still end. If one ends, its exit code decides its restart.
    pub(crate) keep: Vec<Id>,
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
    /// The pod has ended or is being terminated, or its sandbox is being replaced.
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
    /// The container's attempt number. A new container gets a number that no earlier create call for its name used.
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

/// The minimum grace period of a stop, as in upstream's kubelet. Shorter grace periods are raised to this period.
pub(crate) const MIN_GRACE: Duration = Duration::from_secs(2);

/// The input of a decision about one pod, and the calls to the runtime that were decided so far.
pub(crate) struct Decision<'a> {
    pub(crate) spec: Option<&'a PodSpec>,
    pub(crate) terminating: bool,
    /// The grace period given to [`Desired::terminate`], else the one of the pod's deletion, else the specification's.
    pub(crate) grace: Option<Duration>,
    pub(crate) probes: Option<&'a ProbeResults>,
    pub(crate) view: &'a PodView,
    /// The history of the pod. [`PodHistory::observe`] must have been called with `view`.
    pub(crate) history: &'a PodHistory,
    pub(crate) now: Instant,
    pub(crate) actions: Actions,
}

impl Decision<'_> {
    pub(crate) fn decide(mut self) -> Actions {
        match self.spec {
            Some(spec) if !self.terminating && self.history.phase.is_none() => self.run(spec),
            _ => self.terminate(),
        }
        self.actions
    }

    /// Removes a created container, or stops one that may run. Returns true if its replacement must still wait.
    fn clear(&mut self, status: &ContainerStatus, reason: StopReason) -> bool {
        if status.state == ContainerState::Created {
            return self.remove(&status.id);
        }
        self.stop(status, reason);
        true
    }

    fn stop(&mut self, status: &ContainerStatus, reason: StopReason) {
        self.stop_within(status, self.grace(status), reason);
    }

    fn stop_within(&mut self, status: &ContainerStatus, grace: Duration, reason: StopReason) {
        if self.may_call(&status.id, Call::Stop) {
            self.actions.stop.push(StopContainer {
                id: status.id.clone(),
                name: status.name.to_string(),
                grace: grace.max(MIN_GRACE),
                reason,
            });
        }
    }

    /// Returns true if `call` may be made for `id` now. If the last such call is too recent, schedules the next run.
    fn may_call(&mut self, id: &Id, call: Call) -> bool {
        let repeat_at = self.history.repeat_at(id, call).filter(|at| *at > self.now);
        self.due_by(repeat_at);
        repeat_at.is_none()
    }

    /// Returns true if the pod was read after all earlier calls for `id` took effect. If not, requests an inspection.
    fn is_read_since_calls(&mut self, id: &Id) -> bool {
        let since = self.history.unread_since(id, self.view, self.now);
        match since.filter(|since| *since > self.now) {
            None => self.inspect(since),
            later => self.due_by(later),
        }
        since.is_none()
    }

    /// The exit code of an ended container. If the code is missing but may still become known, requests an inspection
    /// and returns `None`. A code that stays unknown counts as a failure.
    fn exit_code(&mut self, end: &Exit) -> Option<i32> {
        if !self.history.awaits_code(self.view, end) {
            return end.exit_code.or(Some(UNKNOWN_EXIT_CODE));
        }
        self.inspect(Some(end.detected));
        self.waits(&end.name, WaitReason::ExitCode);
        None
    }

    /// Returns true if the container must run again after its last exit, and `unended` if it has not exited. Returns
    /// `None` while the answer depends on an exit code that may still become known.
    fn runs_again(&mut self, spec: &PodSpec, container: &Container, unended: bool) -> Option<bool> {
        let Some(end) = self.history.end(&container.name) else {
            return Some(unended);
        };
        if self.history.is_replaced(end, container, spec) {
            return Some(true);
        }
        match policy(container, spec) {
            "Never" if container.restart_policy_rules.iter().flatten().count() == 0 => Some(false),
            "Never" | "OnFailure" => Some(restarts(container, spec, self.exit_code(end)?)),
            _ => Some(true),
        }
    }

    /// Schedules the worker's next run for the instant `at`, or for an earlier instant that was already given.
    fn due_by(&mut self, at: Option<Instant>) {
        self.actions.due = self.actions.due.into_iter().chain(at).min();
    }

    /// Requests an inspection: a read of the pod's details that begins after the instant `after`.
    fn inspect(&mut self, after: Option<Instant>) {
        self.actions.inspect_after = self.actions.inspect_after.max(after);
    }

    fn waits(&mut self, name: &str, reason: WaitReason) {
        self.actions.waiting.insert(name.to_owned(), reason);
    }
}
