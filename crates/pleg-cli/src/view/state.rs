//! The state of a pod in one word.

use std::collections::BTreeSet;
use std::fmt;

use pleg::core::{ContainerState, ContainerStatus, Instant, PodStatus, SandboxState, WallTime};
use pleg::{PodProblem, PodProblemKind};
use serde::{Deserialize, Serialize};

/// The state of a pod. Problems come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum PodState {
    /// A call about it does not answer.
    Hung,
    /// Calls about it fail.
    Failing,
    /// The runtime lists an id, and its status call returns NotFound.
    StatusMissing,
    /// The runtime does not know the state of an id.
    #[default]
    Unknown,
    /// Its newest sandbox is not ready.
    NotReady,
    /// All its containers have exited.
    Exited,
    /// A container exists and was not started.
    Created,
    /// Its sandbox is ready, and it has no container.
    Ready,
    Running,
}

impl PodState {
    /// Returns true if the runtime does not answer calls about the pod as it must.
    pub(crate) fn is_problem(self) -> bool {
        self <= Self::Unknown
    }
}

impl fmt::Display for PodState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// A pod whose calls hang or fail.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(super) state: PodState,
    /// Which call, about what, and its error.
    pub(super) text: String,
    pub(super) since: Instant,
}

impl From<&PodProblem> for Problem {
    fn from(problem: &PodProblem) -> Self {
        Self {
            state: match problem.kind {
                PodProblemKind::Hung => PodState::Hung,
                PodProblemKind::StatusMissing => PodState::StatusMissing,
                _ => PodState::Failing,
            },
            text: problem.to_string(),
            since: problem.since,
        }
    }
}

/// The newest container of each name, by name. The containers of a pod are newest first.
pub(super) fn newest(status: &PodStatus) -> Vec<&ContainerStatus> {
    let mut names = BTreeSet::new();
    let containers = status.containers.iter();
    let mut newest: Vec<_> = containers.filter(|c| names.insert(&*c.name)).collect();
    newest.sort_by_key(|c| &*c.name);
    newest
}

/// Returns true if it has exited with a code other than 0, or with an unknown one.
pub(super) fn has_failed(container: &ContainerStatus) -> bool {
    container.state == ContainerState::Exited && container.details.exit_code != Some(0)
}

/// The state of a pod without a problem, of which these are the newest containers.
pub(super) fn state(status: &PodStatus, newest: &[&ContainerStatus]) -> PodState {
    let sandbox = status.sandboxes.first().map(|s| s.state);
    let any = |state: fn(&ContainerState) -> bool| newest.iter().any(|c| state(&c.state));
    if any(|s| matches!(s, ContainerState::Unknown { .. }))
        || matches!(sandbox, Some(SandboxState::Unknown { .. }))
    {
        PodState::Unknown
    } else if sandbox != Some(SandboxState::Ready) {
        PodState::NotReady
    } else if newest.is_empty() {
        PodState::Ready
    } else if any(|s| *s == ContainerState::Running) {
        PodState::Running
    } else if any(|s| *s == ContainerState::Created) {
        PodState::Created
    } else {
        PodState::Exited
    }
}

/// The last change of a state, by the runtime's clock.
pub(super) fn changed(status: &PodStatus) -> Option<WallTime> {
    let containers = status.containers.iter().map(state_since);
    let sandboxes = status.sandboxes.iter().map(|s| s.created_at);
    containers.chain(sandboxes).flatten().max()
}

/// Since when the container is in its state, by the runtime's clock.
pub(super) fn state_since(container: &ContainerStatus) -> Option<WallTime> {
    let details = &container.details;
    match container.state {
        ContainerState::Created => container.created_at,
        ContainerState::Running => details.started_at,
        ContainerState::Exited => details.finished_at,
        _ => None,
    }
}
