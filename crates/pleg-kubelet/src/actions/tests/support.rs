//! Specifications and statuses of one pod, in few words.

use std::sync::Arc;
use std::time::Duration;

use crate::actions::{Actions, Desired, WaitReason, pod_actions};
use crate::backoff::BackOff;
use crate::history::PodHistory;
use crate::names;
use crate::spec::{ContainerRole, ContainerSpec, PodSpec, RestartPolicy};
use pleg::core::{
    CallError, CallErrorKind, ContainerDetails, Labels, Resources, SandboxState, SandboxStatus,
};
use pleg::{ContainerState, ContainerStatus, Instant, PodStatus, PodView};

pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) const UNKNOWN: ContainerState = ContainerState::Unknown { last: None };

impl<'a> Desired<'a> {
    /// A pod that must run.
    pub(super) const fn run(spec: &'a PodSpec) -> Self {
        Self {
            spec: Some(spec),
            terminating: false,
            grace: None,
            probes: None,
        }
    }
}

/// Observes the view, decides, and records the decision.
pub(super) fn decide(
    desired: &Desired<'_>,
    view: &PodView,
    history: &mut PodHistory,
    back_off: &mut BackOff,
    now: Instant,
) -> Actions {
    history.observe(&view.status, &[], now);
    let actions = pod_actions(desired, view, history, back_off, now);
    history.record(&view.status.uid, &actions, back_off, now);
    actions
}

pub(super) fn at(seconds: u32) -> Instant {
    Instant::from_origin(SECOND * seconds)
}

/// Containers by name, in their order: `i` are init containers, `s` sidecars, others regular.
pub(super) fn spec(policy: RestartPolicy, names: &[&str]) -> PodSpec {
    let container = |name: &&str| {
        let mut container = ContainerSpec::new(*name);
        container.hash = "h".to_owned();
        container.role = match name.as_bytes().first() {
            Some(b'i') => ContainerRole::Init,
            Some(b's') => ContainerRole::Sidecar,
            _ => ContainerRole::Regular,
        };
        container
    };
    let mut spec = PodSpec::new(names.iter().map(container).collect());
    spec.restart_policy = policy;
    spec
}

/// The sandbox `sandbox-ATTEMPT`.
pub(super) fn sandbox(attempt: u32, state: SandboxState) -> SandboxStatus {
    let mut sandbox = SandboxStatus::new(format!("sandbox-{attempt}"), state);
    sandbox.attempt = attempt;
    sandbox
}

pub(super) fn ready(attempt: u32) -> SandboxStatus {
    sandbox(attempt, SandboxState::Ready)
}

pub(super) fn not_ready(attempt: u32) -> SandboxStatus {
    sandbox(attempt, SandboxState::NotReady)
}

/// The container `NAME-0` in `sandbox-0`.
pub(super) fn container(name: &str, state: ContainerState) -> ContainerStatus {
    let mut container = ContainerStatus::new(format!("{name}-0"), name, state);
    container.sandbox = Some("sandbox-0".into());
    container
}

pub(super) fn running(name: &str) -> ContainerStatus {
    container(name, ContainerState::Running)
}

pub(super) fn exited(name: &str, code: impl Into<Option<i32>>) -> ContainerStatus {
    let mut details = ContainerDetails::default();
    details.exit_code = code.into();
    let mut container = container(name, ContainerState::Exited);
    container.details = Arc::new(details);
    container
}

/// The container with that attempt, and an id that says so.
pub(super) fn attempt(mut container: ContainerStatus, attempt: u32) -> ContainerStatus {
    container.attempt = attempt;
    container.id = format!("{}-{attempt}", container.name).into();
    container
}

pub(super) fn in_sandbox(mut container: ContainerStatus, attempt: u32) -> ContainerStatus {
    container.sandbox = Some(format!("sandbox-{attempt}").into());
    container
}

pub(super) fn hash(container: ContainerStatus, hash: &str) -> ContainerStatus {
    annotated(container, names::CONTAINER_HASH, hash)
}

/// With that annotation, and no other.
pub(super) fn annotated(mut container: ContainerStatus, key: &str, value: &str) -> ContainerStatus {
    let mut details = (*container.details).clone();
    details.annotations = Labels::from_iter([(key, value)]);
    container.details = Arc::new(details);
    container
}

/// As the runtime reports it.
pub(super) fn with_memory(mut container: ContainerStatus, bytes: i64) -> ContainerStatus {
    let mut details = (*container.details).clone();
    details.resources = Some(Arc::new(memory(bytes)));
    container.details = Arc::new(details);
    container
}

pub(super) fn memory(bytes: i64) -> Resources {
    let mut resources = Resources::default();
    resources.memory_limit = bytes;
    resources
}

pub(super) fn status_missing(mut container: ContainerStatus) -> ContainerStatus {
    container.status_missing = true;
    container
}

pub(super) fn failing(mut container: ContainerStatus) -> ContainerStatus {
    let error = CallError::new("ContainerStatus", CallErrorKind::Failed, "test");
    container.error = Some(Arc::new(error));
    container
}

/// A view that was inspected at that second. Newest first.
pub(super) fn view(
    seconds: u32,
    sandboxes: &[SandboxStatus],
    containers: &[ContainerStatus],
) -> PodView {
    let mut status = PodStatus::nothing("p".into());
    status.sandboxes = sandboxes.into();
    status.containers = containers.into();
    let inspected = Some(at(seconds)).filter(|_| status.exists());
    PodView::new(Arc::new(status), Some(at(seconds)), inspected)
}

/// The actions in words, in the order of their fields.
pub(super) fn words(actions: &Actions) -> String {
    let mut words = Vec::new();
    words.extend(actions.stop.iter().map(|s| format!("stop {}", s.id)));
    let sandboxes = actions.stop_sandboxes.iter();
    words.extend(sandboxes.map(|id| format!("stop {id}")));
    words.extend(actions.remove.iter().map(|id| format!("remove {id}")));
    words.extend(
        actions
            .create_sandbox
            .map(|a| format!("create sandbox {a}")),
    );
    words.extend(actions.start.iter().map(|s| match &s.existing {
        Some(id) => format!("start existing {id}"),
        None => format!("start {} {}", s.name, s.attempt),
    }));
    words.extend(actions.resize.iter().map(|r| format!("resize {}", r.id)));
    words.extend(actions.inspect_after.map(|_| "inspect".to_owned()));
    words.extend(actions.waiting.iter().map(|(name, reason)| match reason {
        WaitReason::BackOff { delay } => format!("{name} backs off {delay:?}"),
        WaitReason::StatusMissing => format!("{name} status missing"),
        WaitReason::ExitCode => format!("{name} exit code"),
    }));
    words.extend(actions.terminating.then(|| "terminating".to_owned()));
    words.extend(actions.terminated.then(|| "terminated".to_owned()));
    words.extend(actions.phase.map(|phase| format!("{phase:?}")));
    words.join(", ")
}
