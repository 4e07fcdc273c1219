//! Decides which containers to start, stop, resize or remove. Init containers run one after another, and sidecars
//! (restartable init containers) run as long as the pod.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use pleg::core::Resources;
use pleg::{ContainerState, ContainerStatus, Id};

use super::{Decision, ResizeContainer, StartContainer, StopReason, WaitReason};
use crate::history::{Call, restart_count};
use crate::names;
use crate::resources::wanted;
use crate::spec::{back_off_key, container_hash, containers_in, is_sidecar, restarts};

/// The combined state of all containers of one name that have not ended.
#[derive(PartialEq, Eq)]
enum Live {
    Nothing,
    Running,
    /// A container of this name must be inspected, stopped, removed or started before more can be decided.
    Unresolved,
}

impl<'a> Decision<'a> {
    pub(super) fn run(&mut self, spec: &'a PodSpec) {
        self.actions.replaced = self.replaced(spec);
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

    /// The names for [`Observed::replaced`](crate::plan::Observed::replaced).
    fn replaced(&self, spec: &PodSpec) -> BTreeSet<String> {
        let history = self.history;
        let ended = self.view.status.containers.iter();
        let ended = ended.filter(|c| c.state == ContainerState::Exited);
        let earlier = ended.filter(|c| history.earlier.contains(&c.id));
        let is_replaced = |c: &&Container| match history.end(&c.name) {
            Some(end) => history.is_replaced(end, c, spec),
            None => earlier.clone().any(|end| *end.name == *c.name),
        };
        let replaced = containers_in(spec).filter(is_replaced);
        replaced.map(|c| c.name.clone()).collect()
    }

    /// Decides which init containers and sidecars to start or stop. Returns true if the regular containers may run.
    ///
    /// Containers of an earlier sandbox do not count, because all init containers run again in a new sandbox.
    /// Ended containers may have been removed, so the last init container that has run shows how far the pod has come.
    fn init_containers(&mut self, spec: &PodSpec, sandbox: &Id) -> bool {
        let init = spec.init_containers.as_deref().unwrap_or_default();
        let has_run = |c: &Container| self.has_run(c, sandbox);
        let reached = match spec.containers.iter().any(has_run) {
            true => init.len(),
            false => init.iter().rposition(has_run).unwrap_or(0),
        };
        let (earlier, rest) = init.split_at(reached);
        for sidecar in earlier.iter().filter(|c| is_sidecar(c)) {
            self.sidecar(spec, sidecar, sandbox);
        }
        // Starts at most one container: `is_past` returns false for a container that it starts, which ends `all`.
        rest.iter().all(|c| self.is_past(spec, c, sandbox))
    }

    /// Returns true if a container with the name of `container` exists, or existed, in the sandbox.
    fn has_run(&self, container: &Container, sandbox: &Id) -> bool {
        let (name, status) = (&*container.name, &self.view.status);
        let is_here = |id: &Option<Id>| id.as_ref().is_none_or(|id| id == sandbox);
        let mut containers = status.containers.iter();
        containers.any(|c| *c.name == *name && is_here(&c.sandbox))
            || self.history.end_in(sandbox, name, status).is_some()
    }

    /// Decides about the init container or sidecar that the pod has reached. Returns true if the next one may run.
    fn is_past(&mut self, spec: &PodSpec, container: &Container, sandbox: &Id) -> bool {
        if is_sidecar(container) {
            return self.sidecar(spec, container, sandbox);
        }
        if self.live(spec, container, sandbox) != Live::Nothing {
            return false;
        }
        let (history, status) = (self.history, &self.view.status);
        let end = history.end_in(sandbox, &container.name, status);
        let end = end.filter(|end| !history.is_replaced(end, container, spec));
        let Some(end) = end else {
            self.start(container);
            return false;
        };
        match self.exit_code(end) {
            Some(0) => return true,
            Some(code) if restarts(container, spec, code) => self.start(container),
            Some(_) => self.end(spec),
            None => {}
        }
        false
    }

    /// Keeps a sidecar running. Returns true if the sidecar is running and its startup probe has succeeded.
    fn sidecar(&mut self, spec: &PodSpec, container: &Container, sandbox: &Id) -> bool {
        let live = self.live(spec, container, sandbox);
        if live == Live::Nothing {
            self.start(container);
        }
        let probes = self.probes;
        let has_started = probes.is_none_or(|probes| probes.started.contains(&container.name));
        live == Live::Running && has_started
    }

    /// Keeps, starts, stops or removes each container that has the name of `container` and has not ended.
    ///
    /// A created container that could neither be started nor removed for four minutes counts as ended. Then another
    /// container is created, as in upstream's kubelet.
    fn live(&mut self, spec: &PodSpec, container: &Container, sandbox: &Id) -> Live {
        let view = self.view;
        let is_live =
            |c: &&ContainerStatus| *c.name == *container.name && c.state != ContainerState::Exited;
        let (mut running, mut created, mut waits) = (None, None, false);
        for c in view.status.containers.iter().filter(is_live) {
            let is_elsewhere = c.sandbox.as_ref().is_some_and(|id| id != sandbox);
            match c.state {
                ContainerState::Running if !is_elsewhere && running.is_none() => running = Some(c),
                ContainerState::Created if !is_elsewhere && created.is_none() => created = Some(c),
                ContainerState::Unknown { .. } => waits |= self.clear(c, StopReason::Unknown),
                _ => waits |= self.clear(c, StopReason::Surplus),
            }
        }
        if let Some(c) = running {
            if let Some(surplus) = created {
                self.remove(&surplus.id);
            }
            return self.running(spec, container, c);
        }
        let is_blocked = created.is_some_and(|c| self.created(container, c, waits));
        match is_blocked || waits {
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
        let actual = status.details.resources.as_deref();
        let differs = |wanted: &Resources| actual.is_some_and(|actual| !has(actual, wanted));
        let Some(to) = wanted(container, spec).filter(differs) else {
            return;
        };
        if let Some((at, repeat_at)) = self.history.resized(&status.id, &to) {
            if self.view.details_as_of <= Some(at) && !self.history.is_given_up(at) {
                // The status was read before the last resize and cannot show its effect, so the status is read again.
                return self.inspect(Some(at));
            }
            // The last resize had no effect: it failed, or the runtime rounded the values. The next resize is delayed.
            if repeat_at > self.now {
                return self.due_by(Some(repeat_at));
            }
        }
        self.actions.resize.push(ResizeContainer {
            id: status.id.clone(),
            name: status.name.to_string(),
            to,
        });
    }

    /// Starts or removes a container that was created but not started. Returns true if a new one must wait for it.
    fn created(&mut self, container: &Container, c: &ContainerStatus, waits: bool) -> bool {
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
        } else if !waits {
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
            self.due_by(Some(until));
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

    /// Removes a container that was created but not started, after a read has shown that no earlier start call failed.
    /// Returns true if a new container of its name must wait, at most until the removal has failed for four minutes.
    pub(super) fn remove(&mut self, id: &Id) -> bool {
        if self.may_call(id, Call::Remove) && self.is_read_since_calls(id) {
            self.actions.remove.push(id.clone());
        }
        !self.history.is_stuck(id, self.now)
    }
}

fn hash_changed(container: &Container, status: &ContainerStatus) -> bool {
    let hash = status.details.annotations.get(names::CONTAINER_HASH);
    hash.is_some_and(|hash| hash != container_hash(container))
}

/// Returns true if all resources that are set in `wanted` are in effect.
fn has(actual: &Resources, wanted: &Resources) -> bool {
    let of = |r: &Resources| [r.cpu_shares, r.cpu_quota, r.memory_limit];
    let mut pairs = of(wanted).into_iter().zip(of(actual));
    pairs.all(|(wanted, actual)| wanted <= 0 || wanted == actual)
}
