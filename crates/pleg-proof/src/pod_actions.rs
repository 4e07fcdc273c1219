//! The decisions of a pod worker, after upstream's `computePodActions`: the operations that follow from
//! one answer. Pure: the worker sees only the `PodStatus` of the answer.

use pleg_core::{ContainerState, ContainerStatus, Id, PodStatus, SandboxState, SandboxStatus};

/// When an exited container is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Always,
    OnFailure,
    Never,
}

/// The desired state of a pod: one sandbox, and one container per name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    pub policy: Policy,
    pub names: &'static [&'static str],
}

/// One operation of a run, in the order of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Stop(Id),
    StopSandbox(Id),
    RunSandbox {
        attempt: u32,
    },
    /// Create a container in the active sandbox and start it.
    Create {
        name: &'static str,
        /// None: the status shows no earlier container of this name, and the log directory gives the
        /// attempt.
        attempt: Option<u32>,
    },
    Start(Id),
    Remove(Id),
    RemoveSandbox(Id),
}

/// The operations that follow from one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    pub steps: Vec<Step>,
    /// The sandbox for new containers, unless a step creates another one.
    pub sandbox: Option<Id>,
}

/// What to do with a container that does not run.
enum Next {
    Restart,
    Leave,
    /// A detail is missing: decide later.
    Undecided,
}

impl Spec {
    /// What to do with an exited container.
    fn after_exit(&self, container: &ContainerStatus) -> Next {
        match (self.policy, container.details.exit_code) {
            (Policy::Always, _) => Next::Restart,
            (Policy::Never, _) | (Policy::OnFailure, Some(0)) => Next::Leave,
            (Policy::OnFailure, Some(_)) => Next::Restart,
            (Policy::OnFailure, None) => Next::Undecided,
        }
    }
}

/// The operations for a pod with that spec; none: the pod is deleted.
pub fn decide(spec: Option<&Spec>, status: &PodStatus) -> Decision {
    let Some(spec) = spec else {
        return terminate(status);
    };
    let ready = |s: &&SandboxStatus| s.state == SandboxState::Ready;
    let newest = status.sandboxes.first();
    let unknown = newest.is_some_and(|s| matches!(s.state, SandboxState::Unknown { .. }));
    if unknown {
        return Decision::nothing();
    }
    match newest.filter(ready) {
        Some(active) if status.sandboxes.iter().filter(ready).count() == 1 => {
            keep(spec, status, active)
        }
        _ => replace_sandbox(spec, status),
    }
}

/// Stops and removes everything of a deleted pod.
fn terminate(status: &PodStatus) -> Decision {
    let mut steps = kill(status);
    let containers = status.containers.iter();
    steps.extend(containers.map(|c| Step::Remove(c.id.clone())));
    let sandboxes = status.sandboxes.iter();
    steps.extend(sandboxes.map(|s| Step::RemoveSandbox(s.id.clone())));
    Decision {
        steps,
        sandbox: None,
    }
}

/// Stops every container that may run, and every sandbox that may be ready.
fn kill(status: &PodStatus) -> Vec<Step> {
    let containers = status.containers.iter();
    let stop = containers.filter(|c| may_run(c));
    let mut steps: Vec<Step> = stop.map(|c| Step::Stop(c.id.clone())).collect();
    let sandboxes = status.sandboxes.iter();
    let stop = sandboxes.filter(|s| s.state != SandboxState::NotReady);
    steps.extend(stop.map(|s| Step::StopSandbox(s.id.clone())));
    steps
}

const fn may_run(container: &ContainerStatus) -> bool {
    !matches!(
        container.state,
        ContainerState::Created | ContainerState::Exited
    )
}

/// No sandbox is ready, or several are: stops everything and starts over if anything is left to
/// run.
fn replace_sandbox(spec: &Spec, status: &PodStatus) -> Decision {
    let mut steps = kill(status);
    let attempts = status.sandboxes.iter().map(|s| s.attempt + 1);
    let attempt = attempts.max().unwrap_or(0);
    let finished = spec.policy == Policy::Never && attempt > 0 && !status.containers.is_empty();
    let unknown = |c: &&ContainerStatus| matches!(c.state, ContainerState::Unknown { .. });
    if finished || status.containers.iter().any(|c| unknown(&c)) {
        return Decision {
            steps,
            sandbox: None,
        };
    }
    let mut start = Vec::new();
    for &name in spec.names {
        let Some(c) = status.container(name) else {
            start.push(Step::Create {
                name,
                attempt: None,
            });
            continue;
        };
        let exited = c.state == ContainerState::Exited;
        let again = match spec.after_exit(c) {
            Next::Leave if exited && spec.policy == Policy::OnFailure => false,
            Next::Undecided if exited => {
                return Decision {
                    steps,
                    sandbox: None,
                };
            }
            _ => true,
        };
        if again {
            let attempt = next_attempt(status, name);
            start.push(Step::Create { name, attempt });
        }
    }
    if !start.is_empty() {
        steps.push(Step::RunSandbox { attempt });
        steps.append(&mut start);
    }
    Decision {
        steps,
        sandbox: None,
    }
}

/// The pod has its sandbox: starts what should run and removes what is superfluous.
fn keep(spec: &Spec, status: &PodStatus, active: &SandboxStatus) -> Decision {
    let mut steps = Vec::new();
    let mut done = true;
    for &name in spec.names {
        let Some(c) = latest(status, name) else {
            done = false;
            let attempt = None;
            steps.push(Step::Create { name, attempt });
            continue;
        };
        let elsewhere = c.sandbox.as_ref().is_some_and(|s| *s != active.id);
        let attempt = next_attempt(status, name);
        match c.state {
            // It can never start: its sandbox is not ready.
            ContainerState::Created if elsewhere => {
                done = false;
                steps.push(Step::Create { name, attempt });
            }
            ContainerState::Created => {
                done = false;
                steps.push(Step::Start(c.id.clone()));
            }
            ContainerState::Running if elsewhere => {
                done = false;
                steps.push(Step::Stop(c.id.clone()));
            }
            ContainerState::Exited => match spec.after_exit(c) {
                Next::Leave => {}
                Next::Undecided => done = false,
                Next::Restart => {
                    done = false;
                    steps.push(Step::Create { name, attempt });
                }
            },
            _ => done = false,
        }
    }
    if done {
        steps.push(Step::StopSandbox(active.id.clone()));
    }
    steps.extend(surplus(status, active));
    Decision {
        steps,
        sandbox: Some(active.id.clone()),
    }
}

/// The relevant container of that name: a running one, else the newest. A container whose creation
/// took effect late is newer than the one that the worker started instead.
fn latest<'a>(status: &'a PodStatus, name: &str) -> Option<&'a ContainerStatus> {
    let mut of_name = status.containers.iter().filter(|c| &*c.name == name);
    let running = of_name.clone().find(|c| c.state == ContainerState::Running);
    let running = running.or_else(|| of_name.clone().find(|c| may_run(c)));
    running.or_else(|| of_name.next())
}

/// One more than the attempt of any container of that name.
fn next_attempt(status: &PodStatus, name: &str) -> Option<u32> {
    let of_name = status.containers.iter().filter(|c| &*c.name == name);
    of_name.map(|c| c.attempt + 1).max()
}

/// Exited containers beyond the newest of each name, and empty sandboxes that are not ready.
fn surplus(status: &PodStatus, active: &SandboxStatus) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut kept: Vec<&str> = Vec::new();
    for c in &status.containers {
        let elsewhere = c.sandbox.as_ref().is_some_and(|s| *s != active.id);
        let ended = match c.state {
            ContainerState::Exited => true,
            ContainerState::Created => {
                elsewhere || latest(status, &c.name).is_some_and(|l| l.id != c.id)
            }
            _ => false,
        };
        if !ended {
            continue;
        }
        if kept.contains(&&*c.name) {
            steps.push(Step::Remove(c.id.clone()));
        } else {
            kept.push(&c.name);
        }
    }
    for s in &status.sandboxes {
        let mut containers = status.containers.iter();
        let empty = !containers.any(|c| c.sandbox.as_ref().is_none_or(|id| *id == s.id));
        if s.state == SandboxState::NotReady && empty {
            steps.push(Step::RemoveSandbox(s.id.clone()));
        }
    }
    steps
}

impl Decision {
    /// Nothing to do.
    pub const fn nothing() -> Self {
        Self {
            steps: Vec::new(),
            sandbox: None,
        }
    }
}

#[cfg(test)]
mod tests;
