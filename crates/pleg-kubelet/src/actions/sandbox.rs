//! Decides which sandbox a pod uses, and when the sandbox is created or replaced.

use k8s_openapi::api::core::v1::PodSpec;
use pleg::core::{SandboxState, SandboxStatus};
use pleg::{ContainerState, Id};

use super::{Decision, StopReason, WaitReason};
use crate::history::{SANDBOX, inspect_again};
use crate::spec::{containers_in, policy};

impl<'a> Decision<'a> {
    /// The sandbox in which containers may start now. If there is none, decides how the pod gets one.
    pub(super) fn sandbox(&mut self, spec: &PodSpec) -> Option<&'a Id> {
        let sandboxes = &self.view.status.sandboxes;
        let is_ready = |s: &&SandboxStatus| s.state == SandboxState::Ready;
        // A second ready sandbox whose status call returned NotFound may not exist, so it is no reason to replace both.
        let others = sandboxes.iter().skip(1);
        let is_alone = others.filter(|s| is_ready(s) && !s.status_missing).count() == 0;
        match sandboxes.first() {
            Some(s) if is_ready(&s) && is_alone && !s.status_missing => return Some(&s.id),
            // The containers wait until the generator has read the status of this sandbox.
            Some(s)
                if is_ready(&s) && is_alone || matches!(s.state, SandboxState::Unknown { .. }) =>
            {
                self.waits("", WaitReason::StatusMissing);
            }
            _ => self.replace_sandbox(spec),
        }
        None
    }

    /// Returns true, and requests an inspection, if the addresses of the sandbox are unknown because its status could
    /// not be read. New containers wait for these addresses, which may be part of their environment.
    pub(super) fn lacks_addresses(&mut self) -> bool {
        let spec = self.spec;
        let has_own = spec.is_some_and(|spec| spec.host_network != Some(true));
        let Some(since) = self.history.addresses_missing.filter(|_| has_own) else {
            return false;
        };
        self.inspect(self.view.details_as_of.max(Some(since)));
        self.actions.due_by(inspect_again(since, self.now));
        true
    }

    /// Stops the containers and sandboxes of a pod that has no ready sandbox, or several. When they have ended, creates
    /// a new sandbox if the pod needs one. Replacements are at least the initial back-off (default 10 s) apart.
    fn replace_sandbox(&mut self, spec: &PodSpec) {
        if self.stop_remains() {
            return;
        }
        match self.needs_sandbox(spec) {
            Some(true) => {
                let replaced = self.history.sandbox_replaced;
                let again = replaced.map(|at| at.after(self.history.back_off.settings.initial));
                match again.filter(|at| *at > self.now) {
                    Some(at) => self.actions.due_by(at),
                    None => self.actions.create_sandbox = Some(self.history.next_attempt(SANDBOX)),
                }
            }
            Some(false) => self.end(spec),
            None => {}
        }
    }

    /// Stops or removes the containers and sandboxes that block a new sandbox. Returns true if any of them is left.
    fn stop_remains(&mut self) -> bool {
        let mut is_left = false;
        for c in &*self.view.status.containers {
            is_left |= match c.state {
                ContainerState::Exited => false,
                ContainerState::Created => self.remove(&c.id),
                _ => {
                    self.stop(c, StopReason::Pod);
                    true
                }
            };
        }
        self.stop_sandboxes() || is_left
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
}
