//! The phase of a pod, and the conditions that the kubelet sets.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodCondition, PodStatus};
use pleg::core::SandboxState;
use pleg::{ContainerState, WallTime};

use super::containers::{Statuses, is_running, terminated, text};
use super::{PodState, api_time};
use crate::names;
use crate::spec::{is_sidecar, restarts, spec_of};
use crate::worker::is_live;

const PENDING: &str = "Pending";
const RUNNING: &str = "Running";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";

impl PodState<'_> {
    /// Sets the phase, with a reason and a message if the pod has reached its `activeDeadlineSeconds`. A terminal phase
    /// of the previous status stays terminal.
    pub(super) fn set_phase(&self, status: &mut PodStatus, all: &Statuses<'_>) {
        const REASON: &str = "DeadlineExceeded";
        let before = self.previous.and_then(|p| p.phase.as_deref());
        let mut phase = match (before, self.phase(all)) {
            (Some(SUCCEEDED), phase) if phase != FAILED => SUCCEEDED,
            (Some(FAILED), phase) if phase != SUCCEEDED => FAILED,
            (_, phase) => phase,
        };
        // A deleted pod gets the phase Failed even if its containers never ran: controllers wait for a terminal phase.
        let is_over = self.observed.is_terminated && self.observed.phase.is_some();
        if is_over && !self.is_static() && phase != SUCCEEDED {
            phase = FAILED;
        }
        let is_terminal = |phase| matches!(phase, Some(FAILED | SUCCEEDED));
        let has_expired = time_left(self.pod, status, self.now).is_some_and(|left| left.is_zero());
        let by_deadline = self.previous.and_then(|p| p.reason.as_deref()) == Some(REASON);
        if has_expired && (by_deadline || !is_terminal(before)) {
            phase = FAILED;
            status.reason = Some(REASON.to_owned());
            let message = "Pod was active on the node longer than the specified deadline";
            status.message = Some(message.to_owned());
        }
        let may_run = self.observed.view.status.containers.iter().any(is_live);
        // As upstream, no phase is terminal while a container runs: controllers replace pods whose phase is terminal.
        if may_run && is_terminal(Some(phase)) && !is_terminal(before) {
            phase = before.unwrap_or(PENDING);
        }
        if let Some(same) = self.previous.filter(|_| before == Some(phase)) {
            (status.reason, status.message) = (same.reason.clone(), same.message.clone());
        }
        status.phase = Some(phase.to_owned());
    }

    /// The phase that upstream's kubelet computes for these statuses.
    fn phase(&self, all: &Statuses<'_>) -> &'static str {
        let spec = spec_of(self.pod);
        let is_replaced = |container: &Container| self.observed.replaced.contains(&container.name);
        // True once a regular container of the active sandbox has been started.
        let is_initialized = self.observed.view.status.active_containers().any(|found| {
            let started = [ContainerState::Running, ContainerState::Exited];
            let is_regular = spec.containers.iter().any(|c| *c.name == *found.name);
            is_regular && started.contains(&found.state)
        });
        let (mut is_pending, mut runs) = (false, false);
        for (container, status) in &all.init {
            let is_sidecar = is_sidecar(container);
            match end(status).filter(|_| is_sidecar || !is_replaced(container)) {
                _ if is_sidecar && is_running(status) => {
                    runs = true;
                    is_pending |= status.started != Some(true) && !is_initialized;
                }
                Some(code) if code != 0 && !restarts(container, spec, code) => return FAILED,
                ended => is_pending |= ended.is_none(),
            }
        }
        // `are_stopped`: a regular container ended. `is_restarted`: one restarts. `all_succeeded`: no ended one failed.
        let (mut are_stopped, mut all_succeeded, mut is_restarted) = (false, true, false);
        for (container, status) in &all.regular {
            match end(status) {
                _ if is_running(status) => runs = true,
                Some(code) => {
                    are_stopped = true;
                    is_restarted |= is_replaced(container) || restarts(container, spec, code);
                    // A container that has exited and waits for its restart has not succeeded.
                    let has_succeeded = code == 0 && terminated(&status.state).is_some();
                    all_succeeded &= has_succeeded && !is_replaced(container);
                }
                None => is_pending = true,
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

    /// Returns true if the pod comes from a file or a URL, not from the API server.
    fn is_static(&self) -> bool {
        let annotations = self.pod.metadata.annotations.as_ref();
        let source = annotations.and_then(|a| a.get(names::CONFIG_SOURCE));
        source.is_some_and(|source| source != "api")
    }
}

/// The last exit code of a container that has ended, or that waits for its restart after it ended.
fn end(status: &ContainerStatus) -> Option<i32> {
    let last = terminated(&status.last_state).filter(|_| !is_running(status));
    Some(terminated(&status.state).or(last)?.exit_code)
}

/// The time until the pod's `activeDeadlineSeconds` have passed, or zero. `None`: no deadline, or no start time.
pub(crate) fn time_left(pod: &Pod, status: &PodStatus, now: WallTime) -> Option<Duration> {
    let deadline = spec_of(pod).active_deadline_seconds?;
    let start = status.start_time.as_ref()?.0.as_second();
    let end = start.saturating_add(deadline).saturating_mul(1_000_000_000);
    let left = end.saturating_sub(now.as_nanos());
    Some(Duration::from_nanos(u64::try_from(left).unwrap_or(0)))
}

/// The types of the conditions that the kubelet sets, in upstream's order. Other components set the other conditions.
pub const OWN_CONDITIONS: [&str; 5] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
];

/// The reason of a condition that is true, or the reason and the message of a condition that is false.
type Verdict = Result<&'static str, (&'static str, String)>;

impl PodState<'_> {
    /// All conditions, first those that other components set. A transition time changes only with a condition's status.
    pub(super) fn conditions(&self, all: &Statuses<'_>, phase: &str) -> Vec<PodCondition> {
        let of = |status: Option<&PodStatus>| status.and_then(|s| s.conditions.clone());
        let before = of(self.previous).unwrap_or_default();
        let mut conditions = of(self.pod.status.as_ref().or(self.previous)).unwrap_or_default();
        conditions.retain(|c| !OWN_CONDITIONS.contains(&&*c.type_));
        let containers_ready = containers_ready(all, phase);
        let ready = containers_ready.clone();
        let ready = ready.and_then(|_| readiness_gates(self.pod, &conditions));
        let has_sandbox = self.has_sandbox().then_some("");
        let verdicts = [
            has_sandbox.ok_or(("", String::new())),
            initialized(all, phase),
            ready,
            containers_ready,
            Ok(""),
        ];
        for (kind, verdict) in OWN_CONDITIONS.into_iter().zip(verdicts) {
            let (status, (reason, message)) = match verdict {
                Ok(reason) => ("True", (reason, String::new())),
                Err(failed) => ("False", failed),
            };
            let mut before = before.iter();
            let unchanged = before.find(|c| c.type_ == kind && c.status == status);
            let unchanged_since = unchanged.and_then(|c| c.last_transition_time.clone());
            conditions.push(PodCondition {
                type_: kind.to_owned(),
                status: status.to_owned(),
                reason: text(reason),
                message: text(&message),
                last_transition_time: unchanged_since.or_else(|| Some(api_time(self.now))),
                last_probe_time: None,
                observed_generation: self.pod.metadata.generation,
            });
        }
        conditions
    }

    /// Returns true if exactly one sandbox is ready, it is the newest, and it has an address or the host's network.
    fn has_sandbox(&self) -> bool {
        let status = &self.observed.view.status;
        let ready = status.sandboxes.iter();
        let ready = ready.filter(|s| s.state == SandboxState::Ready);
        let host_network = spec_of(self.pod).host_network == Some(true);
        let active = status.active_sandbox();
        ready.count() == 1 && active.is_some_and(|s| host_network || !s.details.ips.is_empty())
    }
}

fn containers_ready(all: &Statuses<'_>, phase: &str) -> Verdict {
    let sidecars = all.init.iter().filter(|(c, _)| is_sidecar(c));
    let unready = sidecars.chain(&all.regular).filter(|(_, s)| !s.ready);
    let unready = unready.map(|(c, _)| &*c.name).collect();
    match listed("unready", unready) {
        _ if phase == SUCCEEDED => Err(("PodCompleted", String::new())),
        _ if phase == FAILED => Err(("PodFailed", String::new())),
        Some(message) => Err(("ContainersNotReady", message)),
        None => Ok(""),
    }
}

fn initialized(all: &Statuses<'_>, phase: &str) -> Verdict {
    let incomplete = all.init.iter().filter(|(c, status)| match is_sidecar(c) {
        true => status.started != Some(true),
        false => !status.ready,
    });
    let incomplete = incomplete.map(|(c, _)| &*c.name).collect();
    // An initialized pod stays initialized while a sidecar restarts.
    let mut regular = all.regular.iter();
    let has_been = regular.any(|(_, s)| is_running(s) || terminated(&s.state).is_some());
    match listed("incomplete", incomplete) {
        _ if phase == SUCCEEDED => Ok("PodCompleted"),
        Some(message) if !has_been => Err(("ContainersNotInitialized", message)),
        _ => Ok(""),
    }
}

/// Upstream's message that lists containers in Go's format. `None` if `names` is empty.
fn listed(what: &str, names: Vec<&str>) -> Option<String> {
    let is_any = !names.is_empty();
    is_any.then(|| format!("containers with {what} status: [{}]", names.join(" ")))
}

fn readiness_gates(pod: &Pod, conditions: &[PodCondition]) -> Verdict {
    let mut messages = Vec::new();
    for gate in spec_of(pod).readiness_gates.iter().flatten() {
        let kind = &gate.condition_type;
        let condition = conditions.iter().find(|c| c.type_ == *kind);
        let gate = format!("pod readiness gate \"{kind}\"");
        messages.push(match condition.map(|c| &*c.status) {
            None => format!("corresponding condition of {gate} does not exist."),
            Some("True") => continue,
            Some(status) => format!("the status of {gate} is not \"True\", but {status}"),
        });
    }
    match messages.is_empty() {
        true => Ok(""),
        false => Err(("ReadinessGatesNotReady", messages.join(", "))),
    }
}
