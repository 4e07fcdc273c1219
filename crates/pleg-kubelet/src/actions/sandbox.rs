//! Decides which sandbox a pod uses, and terminates pods: first the regular containers, then the sidecars in reverse
//! order, then the sandboxes. The time for which a sidecar waits for other containers to end counts as part of the
//! sidecar's grace period, as in upstream's kubelet. A failed run of the pod's worker resets this time.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use pleg::core::{SandboxState, SandboxStatus};
use pleg::{ContainerState, ContainerStatus, Id};

use super::{Actions, Decision, PodPhase, StopReason, WaitReason};
use crate::history::{Call, SANDBOX, inspect_again};
use crate::names;
use crate::spec::{UNKNOWN_EXIT_CODE, containers_in, is_sidecar, policy};
use crate::worker::is_live;

impl<'a> Decision<'a> {
    /// The sandbox in which containers may start now. Without such a sandbox, decides how the pod gets one or ends.
    pub(super) fn sandbox(&mut self, spec: &PodSpec) -> Option<&'a Id> {
        let sandboxes = &self.view.status.sandboxes;
        // A second ready sandbox whose status call returned NotFound may not exist, so it is no reason to replace both.
        let mut others = sandboxes.iter().skip(1);
        let is_alone = !others.any(|s| s.state == SandboxState::Ready && !s.status_missing);
        let is_used = |s: &SandboxStatus| s.state == SandboxState::Ready && is_alone;
        match sandboxes.first() {
            Some(s) if is_used(s) && !s.status_missing => return Some(&s.id),
            // The containers wait until the generator has read the status of this sandbox.
            Some(s) if is_used(s) || matches!(s.state, SandboxState::Unknown { .. }) => {
                self.waits(SANDBOX, WaitReason::StatusMissing);
            }
            _ => self.replace_sandbox(spec),
        }
        None
    }

    /// Returns true, and requests an inspection, if the addresses of the sandbox are unknown because its status could
    /// not be read. New containers wait for these addresses, which may be part of their environment.
    pub(super) fn lacks_addresses(&mut self) -> bool {
        let has_own = self.spec.is_some_and(|s| s.host_network != Some(true));
        let Some(since) = self.history.addresses_missing.filter(|_| has_own) else {
            return false;
        };
        self.inspect(self.view.details_as_of.max(Some(since)));
        self.due_by(Some(inspect_again(since, self.now)));
        true
    }

    /// Stops the containers and sandboxes of a pod that has no ready sandbox, or several. When they have ended, creates
    /// a new sandbox if the pod needs one. Replacements are at least the initial back-off (default 10 s) apart.
    /// Upstream waits for 10 s after it failed to create a sandbox.
    fn replace_sandbox(&mut self, spec: &PodSpec) {
        let mut is_left = self.stop_sandboxes();
        let containers = self.view.status.containers.iter();
        for c in containers.filter(|c| c.state != ContainerState::Exited) {
            is_left |= self.clear(c, StopReason::Pod);
        }
        if is_left {
            return;
        }
        match self.needs_sandbox(spec) {
            Some(true) => {
                let replaced = self.history.sandbox_replaced;
                let again = replaced.map(|at| at.after(self.history.back_off.settings.initial));
                match again.filter(|at| *at > self.now) {
                    None => self.actions.create_sandbox = Some(self.history.next_attempt(SANDBOX)),
                    later => self.due_by(later),
                }
            }
            Some(false) => self.end(spec),
            None => {}
        }
    }

    /// Returns true if a regular container must run in a new sandbox. `None` while that depends on a missing exit code.
    fn needs_sandbox(&mut self, spec: &PodSpec) -> Option<bool> {
        let mut names = containers_in(spec).map(|c| &c.name);
        let mut containers = self.view.status.containers.iter();
        let has_run = containers.any(|c| !self.history.earlier.contains(&c.id))
            || names.any(|name| self.history.end(name).is_some());
        let mut is_left = false;
        for container in &spec.containers {
            let unended = !has_run || policy(container, spec) != "Never";
            is_left |= self.runs_again(spec, container, unended)?;
        }
        Some(is_left)
    }

    /// Ends a pod that will not run again: stops its sidecars and sandboxes once its final phase is known.
    pub(super) fn end(&mut self, spec: &PodSpec) {
        if let Some(phase) = self.phase(spec) {
            self.actions = Actions::default();
            self.actions.phase = Some(phase);
            self.terminate();
        }
    }

    /// Stops all containers and sandboxes. Sets `terminated` when no container or sandbox is running any more.
    pub(super) fn terminate(&mut self) {
        self.actions.terminating = true;
        if self.stop_containers() || self.stop_sandboxes() {
            return;
        }
        // Garbage collection removes containers that were never started. But a start may have failed after the last
        // read, without an event. So the pod is read once more: this read shows the exit code of a failed start.
        let containers = self.view.status.containers.iter();
        for c in containers.filter(|c| c.state == ContainerState::Created) {
            self.is_read_since_calls(&c.id);
        }
        self.actions.terminated = true;
        let known = self.actions.phase.or(self.history.phase);
        let phase = || self.spec.and_then(|spec| self.phase(spec));
        self.actions.phase = known.or_else(phase);
    }

    /// Stops the containers that must be stopped next. Returns true if any container may still be running.
    fn stop_containers(&mut self) -> bool {
        // All but the sidecars are stopped together, then the sidecars one by one, from the last to the first.
        const NO_SIDECAR: usize = usize::MAX;
        let init = self.spec.and_then(|spec| spec.init_containers.as_deref());
        let init = init.unwrap_or_default();
        let index = |c: &ContainerStatus| {
            let is_it = |of: &Container| is_sidecar(of) && *of.name == *c.name;
            init.iter().position(is_it).unwrap_or(NO_SIDECAR)
        };
        let running = self.view.status.containers.iter().filter(|c| is_live(c));
        let running: Vec<_> = running.map(|c| (index(c), c)).collect();
        let turn = running.iter().map(|(index, _)| *index).max();
        let runs = |id: &Id| running.iter().any(|(_, c)| c.id == *id);
        // `waited` is counted from the first stop call whose container has ended: calls in an outage end no container.
        let stopped = self.history.terminating.iter().filter(|(id, _)| !runs(id));
        let since = stopped.map(|(_, at)| *at).min();
        let since = since.filter(|_| turn != Some(NO_SIDECAR));
        let waited = since.map_or(Duration::ZERO, |since| self.now.since(since));
        for (_, container) in running.iter().filter(|(index, _)| Some(*index) == turn) {
            let grace = self.grace(container).saturating_sub(waited);
            self.stop_within(container, grace, StopReason::Pod);
        }
        !running.is_empty()
    }

    /// Stops each sandbox that may be ready and has no running container. Returns true if any sandbox may be ready.
    fn stop_sandboxes(&mut self) -> bool {
        let status = &self.view.status;
        let open = status.sandboxes.iter();
        let open = open.filter(|s| s.state != SandboxState::NotReady);
        for sandbox in open.clone() {
            let in_it = |id: &Option<Id>| id.as_ref().is_none_or(|id| *id == sandbox.id);
            let mut containers = status.containers.iter();
            let runs = containers.any(|c| is_live(c) && in_it(&c.sandbox));
            if !runs && self.may_call(&sandbox.id, Call::Stop) {
                self.actions.stop_sandboxes.push(sandbox.id.clone());
            }
        }
        open.count() > 0
    }

    /// The grace period of the pod; if unknown, the one in the container's annotation, set at the container's creation;
    /// if both are missing, the API's default, 30 s.
    pub(super) fn grace(&self, container: &ContainerStatus) -> Duration {
        let noted = container.details.annotations.get(names::GRACE_PERIOD);
        let noted = noted.and_then(|seconds| seconds.parse().ok());
        let grace = self.grace.or(noted.map(Duration::from_secs));
        grace.unwrap_or(Duration::from_secs(30))
    }

    /// The final phase of the pod. `None` while a missing exit code may still become known.
    fn phase(&mut self, spec: &PodSpec) -> Option<PodPhase> {
        let mut phase = PodPhase::Succeeded;
        for container in &spec.containers {
            let end = self.history.end(&container.name);
            if end.map_or(Some(UNKNOWN_EXIT_CODE), |end| self.exit_code(end))? != 0 {
                phase = PodPhase::Failed;
            }
        }
        Some(phase)
    }
}
