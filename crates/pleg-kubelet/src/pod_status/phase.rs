//! The phase of a pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodSpec, PodStatus};
use pleg::{ContainerState, WallTime};

use super::containers::{is_running, is_waiting, last_terminated, terminated};
use super::{PodState, find};
use crate::names;
use crate::spec::{is_sidecar, restarts, spec_of};

const PENDING: &str = "Pending";
const RUNNING: &str = "Running";
pub(super) const SUCCEEDED: &str = "Succeeded";
pub(super) const FAILED: &str = "Failed";

/// Upstream's phase of a pod with all these container statuses.
pub(super) fn phase(state: &PodState<'_>, spec: &PodSpec, all: &[ContainerStatus]) -> &'static str {
    let is_replaced = |name| state.observed.replaced.contains(name);
    let (mut is_pending, mut runs) = (false, false);
    for container in spec.init_containers.iter().flatten() {
        let status = find(all, &container.name);
        let ended = status.and_then(end);
        if is_sidecar(container) {
            let running = status.filter(|status| is_running(status));
            let has_started = running.is_some_and(|status| status.started == Some(true));
            runs |= running.is_some();
            is_pending |= match running {
                Some(_) => !has_started && !has_been_initialized(state, spec),
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
    let is_over = state.observed.phase.is_some() && !is_static(state);
    match all_succeeded {
        _ if is_pending || !runs && !are_stopped => PENDING,
        _ if runs || is_restarted && !is_over => RUNNING,
        true => SUCCEEDED,
        false => FAILED,
    }
}

/// The new phase. If `previous` has a terminal phase, the new phase is terminal as well.
pub(super) fn sticky(phase: &'static str, previous: Option<&PodStatus>) -> &'static str {
    match previous.and_then(|p| p.phase.as_deref()) {
        Some(SUCCEEDED) if phase != FAILED => SUCCEEDED,
        Some(FAILED) if phase != SUCCEEDED => FAILED,
        _ => phase,
    }
}

/// The last exit code of a container that has ended, or that has ended before and now waits.
fn end(status: &ContainerStatus) -> Option<i32> {
    let last = last_terminated(status).filter(|_| is_waiting(status));
    Some(terminated(status).or(last)?.exit_code)
}

/// Returns true if a regular container of the active sandbox has been started.
fn has_been_initialized(state: &PodState<'_>, spec: &PodSpec) -> bool {
    let status = &state.observed.view.status;
    status.active_containers().any(|status| {
        let regular = spec.containers.iter().any(|c| *c.name == *status.name);
        let started = [ContainerState::Running, ContainerState::Exited];
        regular && started.contains(&status.state)
    })
}

/// Returns true if the pod comes from a file or an URL, not from the API server.
fn is_static(state: &PodState<'_>) -> bool {
    let annotations = state.pod.metadata.annotations.as_ref();
    let source = annotations.and_then(|a| a.get(names::CONFIG_SOURCE));
    source.is_some_and(|source| source != "api")
}

/// The time until the pod reaches its deadline (`activeDeadlineSeconds` after its start), zero afterwards. `None` if
/// the pod has no deadline, or has not started.
pub(crate) fn time_left(pod: &Pod, status: &PodStatus, now: WallTime) -> Option<Duration> {
    let deadline = spec_of(pod).active_deadline_seconds?;
    let start = status.start_time.as_ref()?.0.as_second();
    let end = start.saturating_add(deadline).saturating_mul(1_000_000_000);
    let left = end.saturating_sub(now.as_nanos());
    Some(Duration::from_nanos(u64::try_from(left).unwrap_or(0)))
}

/// The phase of a pod that has reached its deadline before it ended: sets reason and message as well.
pub(super) fn failed_by_deadline(
    status: &mut PodStatus,
    pod: &Pod,
    previous: Option<&PodStatus>,
    now: WallTime,
) -> Option<&'static str> {
    const REASON: &str = "DeadlineExceeded";
    let phase = previous.and_then(|p| p.phase.as_deref());
    let had_ended = matches!(phase, Some(FAILED | SUCCEEDED));
    let by_deadline = previous.and_then(|p| p.reason.as_deref()) == Some(REASON);
    let left = time_left(pod, status, now)?;
    if !left.is_zero() || had_ended && !by_deadline {
        return None;
    }
    status.reason = Some(REASON.to_owned());
    let message = "Pod was active on the node longer than the specified deadline";
    status.message = Some(message.to_owned());
    Some(FAILED)
}
