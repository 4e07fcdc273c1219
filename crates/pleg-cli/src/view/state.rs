//! The state of a pod in one word, and the order of pods.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, HashMap};
use std::fmt;

use pleg::core::{
    ContainerState, ContainerStatus, Instant, PodStatus, PodUid, PodView, SandboxState, WallTime,
};
use pleg::{PodProblem, PodProblemKind};
use serde::{Deserialize, Serialize};

use super::query::Sort;

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
    pub(super) uid: PodUid,
    pub(super) state: PodState,
    /// Which call, about what, and its error.
    pub(super) text: String,
    pub(super) since: Instant,
}

impl From<&PodProblem> for Problem {
    fn from(problem: &PodProblem) -> Self {
        Self {
            uid: problem.pod.uid.clone(),
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
fn newest(status: &PodStatus) -> Vec<&ContainerStatus> {
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

/// What the order and the filters need to know of a pod.
pub(super) struct Summary<'a> {
    pub(super) status: &'a PodStatus,
    /// The newest container of each name, by name.
    pub(super) newest: Vec<&'a ContainerStatus>,
    pub(super) as_of: Option<Instant>,
    pub(super) problem: Option<&'a Problem>,
    pub(super) state: PodState,
    /// A container has failed, and was not started again.
    pub(super) failed: bool,
    pub(super) restarts: u64,
    /// The last change of a state, by the runtime's clock.
    pub(super) changed: Option<WallTime>,
}

impl<'a> Summary<'a> {
    pub(super) fn new(view: &'a PodView, problems: &HashMap<&PodUid, &'a Problem>) -> Self {
        let status = &*view.status;
        let problem = problems.get(&status.uid).copied();
        let newest = newest(status);
        Self {
            status,
            as_of: view.as_of,
            problem,
            state: state(status, &newest, problem),
            failed: newest.iter().any(|c| has_failed(c)),
            restarts: newest.iter().map(|c| u64::from(c.attempt)).sum(),
            changed: changed(status),
            newest,
        }
    }

    pub(super) fn order(&self, other: &Self, sort: Sort) -> Ordering {
        let first = match sort {
            Sort::State => self.badness().cmp(&other.badness()),
            Sort::Name => Ordering::Equal,
            Sort::Restarts => other.restarts.cmp(&self.restarts),
            Sort::Change => Reverse(self.changed).cmp(&Reverse(other.changed)),
            Sort::Freshness => self.as_of.cmp(&other.as_of),
        };
        let name = |s: &Self| {
            let status = s.status;
            (
                status.namespace.clone(),
                status.name.clone(),
                status.uid.clone(),
            )
        };
        first.then_with(|| name(self).cmp(&name(other)))
    }

    /// Problems are the least, then failed containers.
    fn badness(&self) -> impl Ord + use<> {
        (!self.state.is_problem(), !self.failed, self.state)
    }
}

fn state(status: &PodStatus, newest: &[&ContainerStatus], problem: Option<&Problem>) -> PodState {
    if let Some(problem) = problem {
        return problem.state;
    }
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

fn changed(status: &PodStatus) -> Option<WallTime> {
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
