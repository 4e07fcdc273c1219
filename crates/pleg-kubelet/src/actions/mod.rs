//! Decides what a pod needs now: a pure function of its specification, its status and its history.
//!
//! The rules are those of upstream's kubelet (`computePodActions`), with these differences:
//!
//! * A worker stops a container in one run and replaces it in a later run, whose view was read after the stop. It
//!   starts no container while one of the same name is created, running, unknown or marked `status_missing` in the
//!   view. A container that was stopped to be replaced is replaced whatever its exit code, as in upstream's kubelet.
//! * A sandbox is created in one run, and its first containers in a later run. The containers' environment can then
//!   have the pod's addresses, and a failed creation of a sandbox costs a container neither an attempt nor back-off.
//! * A container that was created but not started is started; upstream creates another one. If the start fails, the
//!   container is removed before another one is created.
//! * A decision waits for a missing exit code while the runtime may still report it. After that, the exit is a failure.
//! * A container without a hash annotation does not count as changed.
//! * A sandbox without an address is not replaced.
//!
//! [`Planner`](crate::plan::Planner) makes these decisions and stores the history.

mod init;
mod sandbox;
mod termination;
#[cfg(test)]
mod tests;
mod types;

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use pleg::core::Resources;
use pleg::{ContainerState, ContainerStatus, Exit, Id, Instant, PodView};

use crate::history::{Call, PodHistory, restart_count};
use crate::names;
use crate::probe::ProbeResults;
use crate::resources::wanted;
use crate::spec::{
    UNKNOWN_EXIT_CODE, back_off_key, container_hash, containers_in, is_sidecar, restarts,
    restarts_always_or_never,
};

pub use types::{
    Actions, Desired, PodPhase, ResizeContainer, StartContainer, StopContainer, StopReason,
    WaitReason,
};

/// The minimum grace period of a stop, as in upstream's kubelet. Shorter grace periods are raised to this period.
pub(crate) const MIN_GRACE: Duration = Duration::from_secs(2);

/// The input of a decision about one pod, and the calls to the runtime that were decided so far.
pub(crate) struct Decision<'a> {
    pub(crate) spec: Option<&'a PodSpec>,
    pub(crate) terminating: bool,
    /// The grace period of [`Desired::terminate`]; if it has none, that of the pod's deletion or specification.
    pub(crate) grace: Option<Duration>,
    pub(crate) probes: Option<&'a ProbeResults>,
    pub(crate) view: &'a PodView,
    /// The history of the pod. [`PodHistory::observe`] must have been called with `view`.
    pub(crate) history: &'a PodHistory,
    pub(crate) now: Instant,
    pub(crate) actions: Actions,
}

/// The combined state of all containers of one name that have not ended.
#[derive(PartialEq, Eq)]
enum Live {
    Nothing,
    Running,
    /// A container of this name must be inspected, stopped, removed or started before more can be decided.
    Unresolved,
}

impl<'a> Decision<'a> {
    pub(crate) fn decide(mut self) -> Actions {
        match self.spec {
            Some(spec) if !self.terminating && self.history.phase.is_none() => {
                self.actions.replaced = self.replaced(spec);
                self.run(spec);
            }
            _ => self.terminate(),
        }
        self.actions
    }

    fn run(&mut self, spec: &'a PodSpec) {
        let Some(sandbox) = self.sandbox(spec) else {
            return;
        };
        self.actions.sandbox = Some(sandbox.clone());
        if !self.init_containers(spec, sandbox) {
            return;
        }
        let mut all_ended = true;
        for container in &spec.containers {
            let runs_again = match self.live(spec, container, sandbox) {
                Live::Nothing => self.runs_again(spec, container, true),
                _ => None,
            };
            if runs_again == Some(true) {
                self.start(container);
            }
            all_ended &= runs_again == Some(false);
        }
        if all_ended {
            self.end(spec);
        }
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
        let fixed = restarts_always_or_never(container, spec);
        fixed.or_else(|| Some(restarts(container, spec, self.exit_code(end)?)))
    }

    /// The names for [`Observed::replaced`](crate::plan::Observed::replaced).
    fn replaced(&self, spec: &PodSpec) -> BTreeSet<String> {
        let history = self.history;
        let ended = self.view.status.containers.iter();
        let ended = ended.filter(|c| c.state == ContainerState::Exited);
        let earlier = ended.filter(|c| history.earlier.contains(&c.id));
        let earlier: BTreeSet<&str> = earlier.map(|c| &*c.name).collect();
        let is_replaced = |c: &&Container| match history.end(&c.name) {
            Some(end) => history.is_replaced(end, c, spec),
            None => earlier.contains(&*c.name),
        };
        let replaced = containers_in(spec).filter(is_replaced);
        replaced.map(|c| c.name.clone()).collect()
    }

    /// Keeps, starts, stops or removes each container that has the name of `container` and has not ended.
    ///
    /// If a created container could neither be started nor removed for four minutes, it counts as ended. Another
    /// container is then created, as upstream does.
    fn live(&mut self, spec: &PodSpec, container: &Container, sandbox: &Id) -> Live {
        let view = self.view;
        let is_live =
            |c: &&ContainerStatus| *c.name == *container.name && c.state != ContainerState::Exited;
        let (mut running, mut created, mut is_unresolved) = (None, None, false);
        for c in view.status.containers.iter().filter(is_live) {
            let is_elsewhere = c.sandbox.as_ref().is_some_and(|id| id != sandbox);
            match c.state {
                ContainerState::Running if !is_elsewhere && running.is_none() => running = Some(c),
                ContainerState::Created if !is_elsewhere && created.is_none() => created = Some(c),
                ContainerState::Created => is_unresolved |= self.remove(&c.id),
                ContainerState::Unknown { .. } => {
                    is_unresolved = true;
                    self.stop(c, StopReason::Unknown);
                }
                _ => {
                    is_unresolved = true;
                    self.stop(c, StopReason::Surplus);
                }
            }
        }
        if let Some(c) = running {
            if let Some(surplus) = created {
                self.remove(&surplus.id);
            }
            return self.running(spec, container, c);
        }
        let is_blocked = created.is_some_and(|c| self.created(container, c, is_unresolved));
        match is_blocked || is_unresolved {
            true => Live::Unresolved,
            false => Live::Nothing,
        }
    }

    fn running(&mut self, spec: &PodSpec, container: &Container, status: &ContainerStatus) -> Live {
        let probes = self.probes;
        // As in upstream's kubelet, a running init container is not stopped when its specification changes.
        let is_regular = || spec.containers.iter().any(|c| c.name == container.name);
        let may_change = is_sidecar(container) || is_regular();
        if may_change && hash_changed(container, status) {
            self.stop(status, StopReason::Changed);
        } else if probes.is_some_and(|probes| probes.failed.contains_key(&status.id)) {
            self.stop(status, StopReason::Unhealthy);
        } else if status.status_missing {
            self.waits(&container.name, WaitReason::StatusMissing);
        } else {
            // A container is not listed in `keep` while an earlier stop call for it may still take effect.
            if self.may_call(&status.id, Call::Stop) {
                self.actions.keep.push(status.id.clone());
            }
            self.resize(spec, container, status);
            return Live::Running;
        }
        Live::Unresolved
    }

    /// Changes the resources of a running container if they differ from its specification.
    fn resize(&mut self, spec: &PodSpec, container: &Container, status: &ContainerStatus) {
        let (Some(wanted), Some(actual)) = (wanted(container, spec), &status.details.resources)
        else {
            return;
        };
        if has(actual, &wanted) {
            return;
        }
        if let Some((at, repeat_at)) = self.history.resized(&status.id, &wanted) {
            if self.view.details_as_of <= Some(at) && !self.history.is_given_up(at) {
                // The status was read before the last resize and cannot show its effect, so the status is read again.
                return self.inspect(Some(at));
            }
            // The last resize had no effect: it failed, or the runtime rounded the values. The next resize is delayed.
            if repeat_at > self.now {
                return self.actions.due_by(repeat_at);
            }
        }
        self.actions.resize.push(ResizeContainer {
            id: status.id.clone(),
            name: status.name.to_string(),
            to: wanted,
        });
    }

    /// Starts or removes a container that was created but not started. Returns true if it blocks its name.
    fn created(&mut self, container: &Container, c: &ContainerStatus, is_unresolved: bool) -> bool {
        let was_tried = self.history.repeat_at(&c.id, Call::Start).is_some();
        // A higher attempt number of this name is already in use, so this container must not start.
        let is_late = c.attempt.saturating_add(1) < self.history.next_attempt(&container.name);
        if was_tried || is_late || hash_changed(container, c) {
            // An earlier start call may still take effect for some seconds, so the removal waits for that time.
            if self.may_call(&c.id, Call::Start) {
                self.remove(&c.id);
            }
        } else if c.status_missing {
            self.waits(&container.name, WaitReason::StatusMissing);
        } else if !is_unresolved {
            self.actions.start.push(StartContainer {
                name: container.name.clone(),
                attempt: c.attempt,
                restart_count: restart_count(c),
                existing: Some(c.id.clone()),
                back_off_key: back_off_key(container),
            });
            return true;
        }
        !self.history.is_stuck(&c.id, self.now)
    }

    /// Starts a new container, unless the back-off delays it. Call `start` only if no container of its name can run.
    fn start(&mut self, container: &Container) {
        let (name, key) = (&container.name, back_off_key(container));
        let (end, back_off) = (self.history.end(name), &self.history.back_off);
        let delayed = end.and_then(|end| back_off.delayed(&key, end.detected, self.now));
        if let Some((until, delay)) = delayed {
            self.actions.due_by(until);
            self.waits(name, WaitReason::BackOff { delay });
        } else if self.lacks_addresses() {
            self.waits(name, WaitReason::StatusMissing);
        } else {
            self.actions.start.push(StartContainer {
                name: name.clone(),
                attempt: self.history.next_attempt(name),
                restart_count: self.history.next_restart_count(name),
                existing: None,
                back_off_key: key,
            });
        }
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

    /// Removes a container that was created but not started, after a read has shown that no earlier start call failed.
    /// containerd sends no event when a start fails, but the container then has an exit code and must not be removed.
    ///
    /// Returns true if the container blocks its name: until the removal has failed for four minutes.
    fn remove(&mut self, id: &Id) -> bool {
        if self.may_call(id, Call::Remove) && self.is_read_since_calls(id) {
            self.actions.remove.push(id.clone());
        }
        !self.history.is_stuck(id, self.now)
    }

    /// Returns true if `call` may be made for `id` now. If the last such call is too recent, schedules the next run.
    fn may_call(&mut self, id: &Id, call: Call) -> bool {
        let repeat_at = self.history.repeat_at(id, call).filter(|at| *at > self.now);
        if let Some(at) = repeat_at {
            self.actions.due_by(at);
        }
        repeat_at.is_none()
    }

    /// Returns true if the pod was read after all earlier calls for `id` took effect. If not, requests an inspection.
    fn is_read_since_calls(&mut self, id: &Id) -> bool {
        let since = self.history.unread_since(id, self.view, self.now);
        match since.filter(|since| *since > self.now) {
            Some(since) => self.actions.due_by(since),
            None => self.inspect(since),
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

    /// Requests an inspection: a read of the pod's details that begins later than `after`.
    fn inspect(&mut self, after: Option<Instant>) {
        self.actions.inspect_after = self.actions.inspect_after.max(after);
    }

    fn waits(&mut self, name: &str, reason: WaitReason) {
        self.actions.waiting.insert(name.to_owned(), reason);
    }
}

fn hash_changed(container: &Container, status: &ContainerStatus) -> bool {
    let hash = status.details.annotations.get(names::CONTAINER_HASH);
    hash.is_some_and(|hash| hash != container_hash(container))
}

/// Returns true if all resources that are set in `wanted` are in effect.
fn has(actual: &Resources, wanted: &Resources) -> bool {
    let same = |wanted: i64, actual: i64| wanted <= 0 || wanted == actual;
    same(wanted.cpu_shares, actual.cpu_shares)
        && same(wanted.cpu_quota, actual.cpu_quota)
        && same(wanted.memory_limit, actual.memory_limit)
}
