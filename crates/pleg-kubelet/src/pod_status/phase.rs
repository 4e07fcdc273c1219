//! The phase of a pod.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodSpec, PodStatus};
use pleg::ContainerState;

use super::containers::{is_running, is_waiting, last_terminated, terminated};
use super::{PodState, find, restart};

const PENDING: &str = "Pending";
const RUNNING: &str = "Running";
pub(super) const SUCCEEDED: &str = "Succeeded";
pub(super) const FAILED: &str = "Failed";

/// How many containers are in which state. Init containers that are not restartable are counted
/// apart.
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

/// A phase that has ended does not change any more.
pub(super) fn sticky(phase: &'static str, previous: Option<&PodStatus>) -> &'static str {
    match previous.and_then(|p| p.phase.as_deref()) {
        Some(SUCCEEDED) if phase != FAILED => SUCCEEDED,
        Some(FAILED) if phase != SUCCEEDED => FAILED,
        _ => phase,
    }
}

fn count(state: &PodState<'_>, spec: &PodSpec, statuses: &[ContainerStatus]) -> Counts {
    let mut counts = Counts::default();
    for container in spec.init_containers.iter().flatten() {
        let status = find(statuses, &container.name);
        match restart::is_sidecar(container) {
            true => count_sidecar(&mut counts, status),
            false => count_init(&mut counts, state, spec, container, status),
        }
    }
    for container in &spec.containers {
        let status = find(statuses, &container.name);
        count_regular(&mut counts, state, spec, container, status);
    }
    counts
}

/// The last end of a container that has ended, or that waits after it has ended.
fn end(status: &ContainerStatus) -> Option<i32> {
    let waits_after = is_waiting(status)
        .then(|| last_terminated(status))
        .flatten();
    terminated(status)
        .or(waits_after)
        .map(|ended| ended.exit_code)
}

fn count_init(
    counts: &mut Counts,
    state: &PodState<'_>,
    spec: &PodSpec,
    container: &Container,
    status: Option<&ContainerStatus>,
) {
    match status.and_then(end) {
        None => counts.init_pending += 1,
        Some(_) if state.replaced.contains(&container.name) => counts.init_pending += 1,
        Some(0) => {}
        Some(code) if restart::restarts(container, spec, code) => {}
        Some(_) => counts.init_failed += 1,
    }
}

/// Sidecars that have ended are not counted.
fn count_sidecar(counts: &mut Counts, status: Option<&ContainerStatus>) {
    match status {
        None => counts.unknown += 1,
        Some(status) if is_running(status) => {
            counts.sidecars_pending += usize::from(status.started != Some(true));
            counts.running += 1;
        }
        Some(status) if end(status).is_some() => {}
        Some(status) => {
            counts.sidecars_pending += 1;
            let waiting = is_waiting(status);
            counts.waiting += usize::from(waiting);
            counts.unknown += usize::from(!waiting);
        }
    }
}

fn count_regular(
    counts: &mut Counts,
    state: &PodState<'_>,
    spec: &PodSpec,
    container: &Container,
    status: Option<&ContainerStatus>,
) {
    let Some(status) = status else {
        counts.unknown += 1;
        return;
    };
    if is_running(status) {
        counts.running += 1;
    } else if let Some(code) = end(status) {
        let is_replaced = state.replaced.contains(&container.name);
        let is_restarted = is_replaced || restart::restarts(container, spec, code);
        counts.stopped += 1;
        counts.stopped_for_good += usize::from(!is_restarted);
        // A container that waits to be restarted has not succeeded.
        let succeeded = code == 0 && terminated(status).is_some() && !is_replaced;
        counts.succeeded += usize::from(succeeded);
    } else if is_waiting(status) {
        counts.waiting += 1;
    } else {
        counts.unknown += 1;
    }
}

/// Whether a regular container of the active sandbox has been started.
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

/// Whether the pod comes from a file or an URL, not from the API server.
fn is_static(state: &PodState<'_>) -> bool {
    let annotations = state.pod.metadata.annotations.as_ref();
    let source = annotations.and_then(|a| a.get("kubernetes.io/config.source"));
    source.is_some_and(|source| source != "api")
}
