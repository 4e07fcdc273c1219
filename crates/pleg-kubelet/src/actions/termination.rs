//! Terminates a pod: stops the regular containers first, then the sidecars in reverse order, then the sandboxes. The
//! time for which a sidecar waits for other containers to end counts as part of the sidecar's grace period, as in
//! upstream's kubelet. A failed run of the pod's worker resets this time, because the runtime may have been down.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use pleg::core::SandboxState;
use pleg::{ContainerState, ContainerStatus, Id};

use super::{Actions, Decision, PodPhase, StopReason};
use crate::history::Call;
use crate::names;
use crate::spec::{UNKNOWN_EXIT_CODE, is_sidecar};
use crate::worker::is_live;

impl Decision<'_> {
    /// Ends a pod that will not run again: stops its sidecars and sandboxes once its final phase is known.
    pub(super) fn end(&mut self, spec: &PodSpec) {
        if let Some(phase) = self.phase(spec) {
            self.actions = Actions::default();
            self.actions.phase = Some(phase);
            self.terminate();
        }
    }

    /// Stops all containers and sandboxes, and sets `terminated` when none runs any more.
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

    /// Stops the containers that must be stopped next. Returns true if any container may still run.
    fn stop_containers(&mut self) -> bool {
        // All regular containers are stopped together, then each sidecar, the one with the highest index first.
        const REGULAR: usize = usize::MAX;
        let init = self.spec.and_then(|spec| spec.init_containers.as_deref());
        let init = init.unwrap_or_default();
        let index = |c: &ContainerStatus| {
            let is_it = |of: &Container| is_sidecar(of) && *of.name == *c.name;
            init.iter().position(is_it).unwrap_or(REGULAR)
        };
        let running = self.view.status.containers.iter().filter(|c| is_live(c));
        let running: Vec<_> = running.map(|c| (index(c), c)).collect();
        let turn = running.iter().map(|(index, _)| *index).max();
        let runs = |id: &Id| running.iter().any(|(_, c)| c.id == *id);
        // `waited` is counted from the first stop call whose container has ended: calls made in an outage end none.
        let stopped = self.history.terminating.iter().filter(|(id, _)| !runs(id));
        let since = stopped.map(|(_, at)| *at).min();
        let waited = since.map_or(Duration::ZERO, |since| self.now.since(since));
        for (index, container) in &running {
            let grace = match *index {
                REGULAR => self.grace(container),
                _ => self.grace(container).saturating_sub(waited),
            };
            if Some(*index) == turn {
                self.stop_within(container, grace, StopReason::Pod);
            }
        }
        !running.is_empty()
    }

    /// Stops each sandbox that may be ready and has no running container. Returns true if any sandbox may be ready.
    pub(super) fn stop_sandboxes(&mut self) -> bool {
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

    /// The grace period of a container. If the pod has none, that of the annotation set when the container was created.
    /// If both are missing, the API's default, 30 s.
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
