//! The phase of a pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use pleg::{ContainerState, WallTime};

use super::containers::{is_running, is_waiting, last_terminated, terminated};
use super::{PodState, find};
use crate::names;
use crate::spec::{is_sidecar, restarts, spec_of};

const PENDING: &str = "Pending";
const RUNNING: &str = "Running";
pub(super) const SUCCEEDED: &str = "Succeeded";
pub(super) const FAILED: &str = "Failed";

impl PodState<'_> {
    /// Sets the phase of the pod, with a reason and a message if it has reached its deadline. A terminal phase of
    /// the previous status stays terminal.
    pub(super) fn set_phase(&self, status: &mut PodStatus, all: &[ContainerStatus]) {
        const REASON: &str = "DeadlineExceeded";
        let before = self.previous.and_then(|p| p.phase.as_deref());
        let mut phase = match (before, self.phase(all)) {
            (Some(SUCCEEDED), phase) if phase != FAILED => SUCCEEDED,
            (Some(FAILED), phase) if phase != SUCCEEDED => FAILED,
            (_, phase) => phase,
        };
        // A deleted pod whose containers did not all run: a controller waits for a terminal phase.
        let is_over = self.observed.is_terminated && self.observed.phase.is_some();
        if is_over && !self.is_static() && phase != SUCCEEDED {
            phase = FAILED;
        }
        if let Some(same) = self.previous.filter(|_| before == Some(phase)) {
            (status.reason, status.message) = (same.reason.clone(), same.message.clone());
        }
        let has_expired = time_left(self.pod, status, self.now).is_some_and(|left| left.is_zero());
        let by_deadline = self.previous.and_then(|p| p.reason.as_deref()) == Some(REASON);
        if has_expired && (by_deadline || !matches!(before, Some(FAILED | SUCCEEDED))) {
            phase = FAILED;
            status.reason = Some(REASON.to_owned());
            let message = "Pod was active on the node longer than the specified deadline";
            status.message = Some(message.to_owned());
        }
        status.phase = Some(phase.to_owned());
    }

    /// Upstream's phase of a pod with all these container statuses.
    fn phase(&self, all: &[ContainerStatus]) -> &'static str {
        let spec = spec_of(self.pod);
        let is_replaced = |name| self.observed.replaced.contains(name);
        let (mut is_pending, mut runs) = (false, false);
        for container in spec.init_containers.iter().flatten() {
            let status = find(all, &container.name);
            let ended = status.and_then(end);
            if is_sidecar(container) {
                let running = status.filter(|status| is_running(status));
                let has_started = running.is_some_and(|status| status.started == Some(true));
                runs |= running.is_some();
                is_pending |= match running {
                    Some(_) => !has_started && !self.has_been_initialized(),
                    None => ended.is_none(),
                };
                continue;
            }
            match ended.filter(|_| !is_replaced(&container.name)) {
                Some(code) if code != 0 && !restarts(container, spec, code) => return FAILED,
                ended => is_pending |= ended.is_none(),
            }
        }
        // Of the regular containers that have ended.
        let (mut are_stopped, mut all_succeeded, mut is_restarted) = (false, true, false);
        for container in &spec.containers {
            let status = find(all, &container.name);
            match (status, status.and_then(end)) {
                (Some(status), _) if is_running(status) => runs = true,
                (Some(status), Some(code)) => {
                    let is_replaced = is_replaced(&container.name);
                    are_stopped = true;
                    is_restarted |= is_replaced || restarts(container, spec, code);
                    // A container that waits to be restarted has not succeeded.
                    all_succeeded &= code == 0 && terminated(status).is_some() && !is_replaced;
                }
                _ => is_pending = true,
            }
        }
        let is_over = self.observed.phase.is_some() && !self.is_static();
        match all_succeeded {
            _ if is_pending || !runs && !are_stopped => PENDING,
            _ if runs || is_restarted && !is_over => RUNNING,
            true => SUCCEEDED,
            false => FAILED,
        }
    }

    /// Returns true if the pod comes from a file or an URL, not from the API server.
    fn is_static(&self) -> bool {
        let annotations = self.pod.metadata.annotations.as_ref();
        let source = annotations.and_then(|a| a.get(names::CONFIG_SOURCE));
        source.is_some_and(|source| source != "api")
    }

    /// Returns true if a regular container of the active sandbox has been started.
    fn has_been_initialized(&self) -> bool {
        let (spec, status) = (spec_of(self.pod), &self.observed.view.status);
        status.active_containers().any(|status| {
            let regular = spec.containers.iter().any(|c| *c.name == *status.name);
            let started = [ContainerState::Running, ContainerState::Exited];
            regular && started.contains(&status.state)
        })
    }
}

/// The last exit code of a container that has ended, or that has ended before and now waits.
fn end(status: &ContainerStatus) -> Option<i32> {
    let last = last_terminated(status).filter(|_| is_waiting(status));
    Some(terminated(status).or(last)?.exit_code)
}

/// The time until `activeDeadlineSeconds` after the pod's start, zero afterwards. `None`: no deadline, or not started.
pub(crate) fn time_left(pod: &Pod, status: &PodStatus, now: WallTime) -> Option<Duration> {
    let deadline = spec_of(pod).active_deadline_seconds?;
    let start = status.start_time.as_ref()?.0.as_second();
    let end = start.saturating_add(deadline).saturating_mul(1_000_000_000);
    let left = end.saturating_sub(now.as_nanos());
    Some(Duration::from_nanos(u64::try_from(left).unwrap_or(0)))
}
