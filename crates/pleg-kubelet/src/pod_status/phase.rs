//! The phase of a pod.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodSpec, PodStatus};
use pleg::ContainerState;

use super::containers::{is_running, is_waiting, last_terminated, terminated};
use super::{PodState, find};
use crate::from_pod::{is_sidecar, restarts};
use crate::names;

const PENDING: &str = "Pending";
const RUNNING: &str = "Running";
pub(super) const SUCCEEDED: &str = "Succeeded";
pub(super) const FAILED: &str = "Failed";

/// Numbers of containers by state. Init containers that are not restartable are counted apart.
#[derive(Default)]
struct Counts {
    init_pending: usize,
    init_failed: usize,
    sidecars_pending: usize,
    unknown: usize,
    running: usize,
    waiting: usize,
    stopped: usize,
    stopped_for_good: usize,
    succeeded: usize,
}

/// Upstream's phase of a pod with these container statuses.
pub(super) fn phase(
    state: &PodState<'_>,
    spec: &PodSpec,
    statuses: &[ContainerStatus],
) -> &'static str {
    let counts = count(state, spec, statuses);
    if counts.init_failed > 0 {
        return FAILED;
    }
    let initializing = counts.init_pending > 0
        || counts.sidecars_pending > 0 && !has_been_initialized(state, spec);
    if initializing || counts.waiting > 0 || counts.unknown > 0 {
        return PENDING;
    }
    let all_succeeded = counts.stopped == counts.succeeded;
    let ended = if all_succeeded { SUCCEEDED } else { FAILED };
    match (counts.running, counts.stopped) {
        (1.., _) => RUNNING,
        (0, 0) => PENDING,
        _ if state.terminal && !is_static(state) => ended,
        _ if counts.stopped != counts.stopped_for_good => RUNNING,
        _ => ended,
    }
}

/// The phase after `previous`: an ended pod does not run again.
pub(super) fn sticky(phase: &'static str, previous: Option<&PodStatus>) -> &'static str {
    match previous.and_then(|p| p.phase.as_deref()) {
        Some(SUCCEEDED) if phase != FAILED => SUCCEEDED,
        Some(FAILED) if phase != SUCCEEDED => FAILED,
        _ => phase,
    }
}

fn count(state: &PodState<'_>, spec: &PodSpec, statuses: &[ContainerStatus]) -> Counts {
    let mut counts = Counts::default();
    let is_replaced = |container: &Container| state.replaced.contains(&container.name);
    for container in spec.init_containers.iter().flatten() {
        let status = find(statuses, &container.name);
        if is_sidecar(container) {
            counts.sidecar(status);
            continue;
        }
        match status.and_then(end) {
            None => counts.init_pending += 1,
            Some(_) if is_replaced(container) => counts.init_pending += 1,
            Some(code) if code == 0 || restarts(container, spec, code) => {}
            Some(_) => counts.init_failed += 1,
        }
    }
    for container in &spec.containers {
        let status = find(statuses, &container.name);
        let (ended, is_replaced) = (status.and_then(end), is_replaced(container));
        match (status, ended) {
            (Some(status), _) if is_running(status) => counts.running += 1,
            (Some(status), Some(code)) => {
                let is_restarted = is_replaced || restarts(container, spec, code);
                // A container that waits to be restarted has not succeeded.
                let succeeded = code == 0 && terminated(status).is_some() && !is_replaced;
                counts.stopped += 1;
                counts.stopped_for_good += usize::from(!is_restarted);
                counts.succeeded += usize::from(succeeded);
            }
            (Some(status), None) if is_waiting(status) => counts.waiting += 1,
            _ => counts.unknown += 1,
        }
    }
    counts
}

impl Counts {
    /// Counts a sidecar, unless it has ended.
    fn sidecar(&mut self, status: Option<&ContainerStatus>) {
        match status {
            None => self.unknown += 1,
            Some(status) if is_running(status) => {
                self.sidecars_pending += usize::from(status.started != Some(true));
                self.running += 1;
            }
            Some(status) if end(status).is_some() => {}
            Some(status) => {
                self.sidecars_pending += 1;
                let waiting = is_waiting(status);
                self.waiting += usize::from(waiting);
                self.unknown += usize::from(!waiting);
            }
        }
    }
}

/// The last exit code of a container that has ended, or that waits after it has ended.
fn end(status: &ContainerStatus) -> Option<i32> {
    let last = last_terminated(status).filter(|_| is_waiting(status));
    Some(terminated(status).or(last)?.exit_code)
}

/// Returns true if a regular container of the active sandbox has been started.
fn has_been_initialized(state: &PodState<'_>, spec: &PodSpec) -> bool {
    state.view.status.active_containers().any(|status| {
        let regular = spec.containers.iter().any(|c| *c.name == *status.name);
        let started = matches!(
            status.state,
            ContainerState::Running | ContainerState::Exited
        );
        regular && started
    })
}

/// Returns true if the pod comes from a file or an URL, not from the API server.
fn is_static(state: &PodState<'_>) -> bool {
    let annotations = state.pod.metadata.annotations.as_ref();
    let source = annotations.and_then(|a| a.get(names::CONFIG_SOURCE));
    source.is_some_and(|source| source != "api")
}
