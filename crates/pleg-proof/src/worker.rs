//! Decides what a kubelet's pod worker does next when it gets a view of its pod.

use pleg_core::{ContainerState, ContainerStatus, KnownState, PodStatus, SandboxState};
use pleg_node_model::Id;

/// The restart policy: after which exits a container is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// After every exit.
    Always,
    /// After an exit with an exit code other than 0, or an unknown exit code.
    OnFailure,
    /// Never.
    Never,
}

/// The specification of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// The names of the pod's containers.
    pub names: Vec<String>,
    /// The restart policy of the containers.
    pub policy: Policy,
    /// The pod was deleted: the worker must remove all its containers and sandboxes.
    pub deleted: bool,
}

/// One step of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Runs a sandbox.
    RunSandbox {
        /// The sandbox's attempt number.
        attempt: u32,
    },
    /// Creates and starts a container.
    Run {
        /// The container's name.
        name: String,
        /// The container's attempt number.
        attempt: u32,
        /// The container's sandbox.
        sandbox: Id,
    },
    /// Starts a created container.
    Start(Id),
    /// Stops a container.
    Stop(Id),
    /// Removes a container.
    Remove(Id),
    /// Stops a sandbox with its containers.
    StopSandbox(Id),
    /// Removes a sandbox with its containers.
    RemoveSandbox(Id),
}

/// The next step of a worker; `None`: it waits for a change. `collect`: it also removes old containers and sandboxes.
pub fn decide(spec: &Spec, pod: &PodStatus, collect: bool) -> Option<Op> {
    let Some(active) = pod.active_sandbox().filter(|_| !spec.deleted) else {
        return without_sandbox(spec, pod);
    };
    let mut old = pod.containers.iter();
    let stray = |c: &&ContainerStatus| {
        !c.active && runs(c) && spec.names.iter().any(|name| **name == *c.name)
    };
    if let Some(old) = old.find(stray) {
        return Some(Op::Stop(id(&old.id)));
    }
    let sandbox = id(&active.id);
    let mut names = spec.names.iter();
    if let Some(op) = names.find_map(|name| keep_running(spec, pod, name, &sandbox, collect)) {
        return Some(op);
    }
    collect.then(|| remove_old_sandbox(pod)).flatten()
}

fn id(id: &pleg_core::Id) -> Id {
    id.as_str().into()
}

fn runs(c: &ContainerStatus) -> bool {
    c.state == ContainerState::Running
}

/// Returns true if the container is running, or its state is unknown and its last known state is not Exited.
fn may_run(c: &ContainerStatus) -> bool {
    match c.state {
        ContainerState::Unknown { last } => last != Some(KnownState::Exited),
        state => state == ContainerState::Running,
    }
}

/// The next step for a pod that is deleted (stop all, remove all) or has no ready sandbox (stop all, then run one).
fn without_sandbox(spec: &Spec, pod: &PodStatus) -> Option<Op> {
    if let Some(c) = pod.containers.iter().find(|c| runs(c)) {
        return Some(Op::Stop(id(&c.id)));
    }
    if pod.containers.iter().any(may_run) {
        return None;
    }
    let mut sandboxes = pod.sandboxes.iter();
    if let Some(s) = sandboxes.find(|s| s.state == SandboxState::Ready) {
        return Some(Op::StopSandbox(id(&s.id)));
    }
    let mut sandboxes = pod.sandboxes.iter();
    if sandboxes.any(|s| s.state != SandboxState::NotReady) {
        return None;
    }
    if spec.deleted {
        let container = pod.containers.first().map(|c| Op::Remove(id(&c.id)));
        let sandbox = || pod.sandboxes.first();
        return container.or_else(|| sandbox().map(|s| Op::RemoveSandbox(id(&s.id))));
    }
    let newest = pod.sandboxes.first();
    if let (Some(s), Policy::OnFailure | Policy::Never) = (newest, spec.policy) {
        let of_it = |name: &str| {
            let mut containers = pod.containers.iter();
            containers.find(|c| &*c.name == name && c.sandbox.as_ref() == Some(&s.id))
        };
        let outcome = |name: &String| of_it(name).map_or(Some(true), |c| restarts(spec.policy, c));
        let outcomes: Vec<_> = spec.names.iter().map(outcome).collect();
        if outcomes.contains(&None) || !outcomes.contains(&Some(true)) {
            return None;
        }
    }
    let attempt = newest.map_or(0, |s| s.attempt + 1);
    Some(Op::RunSandbox { attempt })
}

/// The next step for the container with the name `name`, in a pod with a ready sandbox.
fn keep_running(
    spec: &Spec,
    pod: &PodStatus,
    name: &str,
    sandbox: &Id,
    collect: bool,
) -> Option<Op> {
    let of_name = || pod.containers.iter().filter(|c| &*c.name == name);
    // Run no container while another of this name may run, or has not exited and its status call returned NotFound.
    let blocks =
        |c: &ContainerStatus| may_run(c) || (c.status_missing && c.state != ContainerState::Exited);
    if of_name().any(blocks) {
        return None;
    }
    let run = || Op::Run {
        name: name.to_owned(),
        attempt: of_name().map(|c| c.attempt + 1).max().unwrap_or(0),
        sandbox: sandbox.clone(),
    };
    match of_name().find(|c| c.active) {
        None => return Some(run()),
        Some(c) if c.state == ContainerState::Created => return Some(Op::Start(id(&c.id))),
        Some(c) if restarts(spec.policy, c) == Some(true) => return Some(run()),
        Some(_) => {}
    }
    let mut dead = of_name().filter(|c| c.state == ContainerState::Exited);
    let old = dead.nth(1).filter(|_| collect);
    old.map(|c| Op::Remove(id(&c.id)))
}

fn remove_old_sandbox(pod: &PodStatus) -> Option<Op> {
    let mut old = pod.sandboxes.iter().skip(1);
    let old = old.find(|s| s.state == SandboxState::NotReady)?;
    let mut containers = pod.containers.iter();
    let is_used = containers.any(|c| c.sandbox.as_ref() == Some(&old.id) && may_run(c));
    (!is_used).then(|| Op::RemoveSandbox(id(&old.id)))
}

/// Returns true if an exited container must be run again. `None`: this depends on the exit code, which is not known.
fn restarts(policy: Policy, c: &ContainerStatus) -> Option<bool> {
    match (policy, c.details.exit_code) {
        _ if c.state != ContainerState::Exited => Some(true),
        (Policy::Always, _) => Some(true),
        (Policy::Never, _) => Some(false),
        (Policy::OnFailure, Some(code)) => Some(code != 0),
        (Policy::OnFailure, None) if c.error.is_some() || c.status_missing => None,
        (Policy::OnFailure, None) => Some(true),
    }
}
