//! The conditions of a pod that the kubelet sets.

use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodCondition, PodSpec, PodStatus};
use pleg::core::SandboxState;

use super::containers::{is_running, terminated, text};
use super::phase::{FAILED, SUCCEEDED};
use super::{PodState, api_time, find};
use crate::spec::{is_sidecar, spec_of};

/// The types of the conditions that the kubelet sets, in upstream's order. Others set the other conditions of a pod.
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
    /// All conditions, those that others set first. The transition time changes only with the status.
    pub(super) fn conditions(&self, all: &[ContainerStatus], phase: &str) -> Vec<PodCondition> {
        let spec = spec_of(self.pod);
        let of = |status: Option<&PodStatus>| status.and_then(|s| s.conditions.clone());
        let before = of(self.previous).unwrap_or_default();
        let mut conditions = of(self.pod.status.as_ref().or(self.previous)).unwrap_or_default();
        conditions.retain(|c| !OWN_CONDITIONS.contains(&&*c.type_));
        let containers_ready = containers_ready(spec, all, phase);
        let ready = containers_ready.clone();
        let ready = ready.and_then(|_| readiness_gates(spec, &conditions));
        let has_sandbox = self.has_sandbox().then_some("");
        let verdicts = [
            has_sandbox.ok_or(("", String::new())),
            initialized(spec, all, phase),
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

    /// Returns true if the pod's sandbox and network are ready: exactly one sandbox is ready, it is the newest, and it
    /// has an address unless it uses the host's network.
    fn has_sandbox(&self) -> bool {
        let status = &self.observed.view.status;
        let ready = status.sandboxes.iter();
        let ready = ready.filter(|s| s.state == SandboxState::Ready);
        let host_network = spec_of(self.pod).host_network == Some(true);
        let active = status.active_sandbox();
        ready.count() == 1 && active.is_some_and(|s| host_network || !s.details.ips.is_empty())
    }
}

fn containers_ready(spec: &PodSpec, statuses: &[ContainerStatus], phase: &str) -> Verdict {
    let init = spec.init_containers.iter().flatten();
    let containers = init.filter(|c| is_sidecar(c)).chain(&spec.containers);
    let (all_known, message) = listed(containers, statuses, "unready", |_, status| status.ready);
    match message {
        _ if phase == SUCCEEDED && all_known => Err(("PodCompleted", String::new())),
        _ if phase == FAILED => Err(("PodFailed", String::new())),
        Some(message) => Err(("ContainersNotReady", message)),
        None => Ok(""),
    }
}

fn initialized(spec: &PodSpec, statuses: &[ContainerStatus], phase: &str) -> Verdict {
    let is_complete = |c: &Container, status: &ContainerStatus| match is_sidecar(c) {
        true => status.started == Some(true),
        false => status.ready,
    };
    let init = spec.init_containers.iter().flatten();
    let (all_known, message) = listed(init, statuses, "incomplete", is_complete);
    // Sidecars may be restarting.
    let has_been = spec.containers.iter().any(|c| {
        let status = find(statuses, &c.name);
        status.is_some_and(|s| is_running(s) || terminated(s).is_some())
    });
    match message {
        _ if phase == SUCCEEDED && all_known => Ok("PodCompleted"),
        Some(message) if !has_been => Err(("ContainersNotInitialized", message)),
        _ => Ok(""),
    }
}

/// Returns true if all these containers have a status. Also returns upstream's message: which containers have none, and
/// which have one that is not good (`is_good`), as lists in Go's format.
fn listed<'a>(
    containers: impl Iterator<Item = &'a Container>,
    statuses: &[ContainerStatus],
    what: &str,
    is_good: impl Fn(&Container, &ContainerStatus) -> bool,
) -> (bool, Option<String>) {
    let (mut unknown, mut others) = (Vec::new(), Vec::new());
    for container in containers {
        match find(statuses, &container.name) {
            None => unknown.push(&*container.name),
            Some(status) if is_good(container, status) => {}
            Some(_) => others.push(&*container.name),
        }
    }
    let all_known = unknown.is_empty();
    let groups = [("unknown", unknown), (what, others)].into_iter();
    let groups = groups.filter(|(_, names)| !names.is_empty());
    let message = |(what, names): (_, Vec<_>)| {
        format!("containers with {what} status: [{}]", names.join(" "))
    };
    let messages: Vec<_> = groups.map(message).collect();
    let message = (!messages.is_empty()).then(|| messages.join(", "));
    (all_known, message)
}

fn readiness_gates(spec: &PodSpec, conditions: &[PodCondition]) -> Verdict {
    let mut messages = Vec::new();
    for gate in spec.readiness_gates.iter().flatten() {
        let kind = &gate.condition_type;
        match conditions.iter().find(|c| c.type_ == *kind) {
            None => messages.push(format!(
                "corresponding condition of pod readiness gate \"{kind}\" does not exist."
            )),
            Some(c) if c.status != "True" => messages.push(format!(
                "the status of pod readiness gate \"{kind}\" is not \"True\", but {}",
                c.status
            )),
            Some(_) => {}
        }
    }
    match messages.is_empty() {
        true => Ok(""),
        false => Err(("ReadinessGatesNotReady", messages.join(", "))),
    }
}
