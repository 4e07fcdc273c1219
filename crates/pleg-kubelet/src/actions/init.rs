//! Decides about init containers, which run one after another, and sidecars (restartable init containers).

use k8s_openapi::api::core::v1::{Container, PodSpec};
use pleg::{Exit, Id};

use super::{Decision, Live};
use crate::spec::{is_sidecar, restarts};

impl<'a> Decision<'a> {
    /// Decides which init containers and sidecars to start or stop. Returns true if the regular containers may run.
    ///
    /// A container of an earlier sandbox does not count as run, because a new sandbox runs all init containers again.
    /// Ended containers may have been removed, so the last init container that has run shows how far the pod has come.
    pub(super) fn init_containers(&mut self, spec: &PodSpec, sandbox: &Id) -> bool {
        let is_initialized = spec.containers.iter().any(|c| self.has_run(c, sandbox));
        let init = spec.init_containers.as_deref().unwrap_or_default();
        let last = || init.iter().rposition(|c| self.has_run(c, sandbox));
        let reached = match is_initialized {
            true => init.len(),
            false => last().unwrap_or(0),
        };
        let (earlier, rest) = init.split_at(reached);
        for sidecar in earlier.iter().filter(|c| is_sidecar(c)) {
            self.sidecar(spec, sidecar, sandbox);
        }
        rest.iter().all(|c| self.is_past(spec, c, sandbox))
    }

    /// Returns true if a container with the name of `container` exists, or existed, in the sandbox.
    fn has_run(&self, container: &Container, sandbox: &Id) -> bool {
        let is_here = |id: &Option<Id>| id.as_ref().is_none_or(|id| id == sandbox);
        let mut containers = self.view.status.containers.iter();
        containers.any(|c| *c.name == *container.name && is_here(&c.sandbox))
            || self.end_here(container, sandbox).is_some()
    }

    /// The exit of the last container of this name, if that container was in the sandbox.
    fn end_here(&self, container: &Container, sandbox: &Id) -> Option<&'a Exit> {
        let end = self.history.end(&container.name)?;
        let is_here = match self.history.sandbox_of_end(&container.name) {
            Some(id) => id == sandbox,
            None => self.view.status.containers.iter().any(|c| c.id == end.id),
        };
        is_here.then_some(end)
    }

    /// Decides about the init container or sidecar that the pod has reached. Returns true if the next one may run.
    fn is_past(&mut self, spec: &PodSpec, container: &Container, sandbox: &Id) -> bool {
        if is_sidecar(container) {
            return self.sidecar(spec, container, sandbox);
        }
        if self.live(spec, container, sandbox) != Live::Nothing {
            return false;
        }
        let end = self.end_here(container, sandbox);
        let end = end.filter(|end| !self.history.is_replaced(end, container, spec));
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

    /// Keeps a sidecar running. Returns true if the sidecar runs and its startup probe has succeeded.
    fn sidecar(&mut self, spec: &PodSpec, container: &Container, sandbox: &Id) -> bool {
        let live = self.live(spec, container, sandbox);
        if live == Live::Nothing {
            self.start(container);
        }
        let probes = self.probes;
        let has_started = probes.is_none_or(|probes| probes.started.contains(&container.name));
        live == Live::Running && has_started
    }
}
