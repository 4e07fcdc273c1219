//! One sandbox or container, and its history.

use std::sync::Arc;

/// The id of a sandbox or container.
pub type Id = Arc<str>;

/// Sandbox or container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A pod sandbox.
    Sandbox,
    /// A container.
    Container,
}

/// The state of an object. A sandbox is `Running` while it is READY and `Exited` once it is NOTREADY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// A container that was created and not started yet.
    Created,
    /// A running container, or a ready sandbox.
    Running,
    /// An exited container, or a sandbox that is not ready.
    Exited,
    /// The object is gone.
    Removed,
}

/// The pod that a sandbox belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pod {
    /// The uid.
    pub uid: Arc<str>,
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

impl Pod {
    /// A pod.
    pub fn new(uid: &str, namespace: &str, name: &str) -> Self {
        Self {
            uid: uid.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// The label `io.kubernetes.pod.uid`, by which clients list the objects of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Label {
    /// The label has the uid of the object's pod.
    #[default]
    Right,
    /// The object has no such label: somebody created it with `crictl`.
    Missing,
    /// The label has the uid of another pod.
    Wrong(Arc<str>),
}

/// One change of an object's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change {
    /// The instant of the change.
    pub at: u64,
    /// The wall-clock time of the change.
    pub wall: i64,
    /// The new state.
    pub state: State,
    /// The instant from which lists show the new state. Lists may lag: containerd 2.4 listed containers as running
    /// after `StopContainer`.
    pub in_lists: u64,
    /// The instant from which statuses show the new state.
    pub in_statuses: u64,
}

/// The exit of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Exit {
    /// The exit code.
    pub code: i32,
    /// The reason.
    pub reason: &'static str,
    /// The instant until which statuses show `early_code`.
    pub code_known_at: u64,
    /// The exit code that statuses show before `code_known_at`; `None` if they show no exit code until then.
    pub early_code: Option<i32>,
    /// The instant until which statuses show the reason `Error` instead of `reason`.
    pub reason_known_at: u64,
}

/// A contradiction between the list row and the status of one sandbox or container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Skew {
    /// The list row shows this state, but the status shows the true state.
    RowShows(State),
    /// Lists have a row for the object, but its status is NotFound.
    StatusMissing,
}

/// Wrong reports of the runtime about a sandbox or container. Each field has the instant at which its report ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Overrides {
    /// The instant until which rows and statuses show the state UNKNOWN.
    pub unknown_until: u64,
    /// A contradiction between row and status, and the instant at which it ends.
    pub skew: Option<(Skew, u64)>,
    /// The instant until which lists and statuses lack the object, as if containerd failed to load it at its start.
    pub hidden_until: u64,
}

/// A sandbox or container.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// The id.
    pub id: Id,
    /// Sandbox or container.
    pub kind: Kind,
    /// The pod of the sandbox.
    pub pod: Pod,
    /// A container's sandbox.
    pub sandbox: Option<Id>,
    /// A container's name; empty for a sandbox.
    pub name: Arc<str>,
    /// The number of earlier attempts under the same name.
    pub attempt: u32,
    /// The label with the pod's uid.
    pub label: Label,
    /// True for a sandbox whose containers share the process namespace of its pause process.
    pub shares_processes: bool,
    /// The changes of the object's state, the oldest first.
    pub history: Vec<Change>,
    /// The exit of the container.
    pub exit: Exit,
    /// The runtime's wrong reports about the object.
    pub overrides: Overrides,
}

impl Object {
    /// A sandbox or container with attempt 0 and an empty name. It has no state yet.
    pub(crate) fn new(id: Id, kind: Kind, pod: Pod) -> Self {
        Self {
            id,
            kind,
            pod,
            sandbox: None,
            name: "".into(),
            attempt: 0,
            label: Label::Right,
            shares_processes: false,
            history: Vec::new(),
            exit: Exit::default(),
            overrides: Overrides::default(),
        }
    }

    /// The state at an instant; `None` before the creation of the object.
    pub fn state_at(&self, at: u64) -> Option<State> {
        let mut changes = self.history.iter().rev();
        changes.find(|c| c.at <= at).map(|c| c.state)
    }

    /// The present state.
    pub fn state(&self) -> State {
        self.history.last().map_or(State::Removed, |c| c.state)
    }

    /// The instant at which the object entered its present state.
    pub fn since(&self) -> u64 {
        self.history.last().map_or(0, |c| c.at)
    }

    /// Returns true until the object is removed.
    pub fn exists(&self) -> bool {
        self.state() != State::Removed
    }

    /// The instant at which the object first entered this state.
    pub fn entered(&self, state: State) -> Option<u64> {
        let mut changes = self.history.iter();
        changes.find(|c| c.state == state).map(|c| c.at)
    }

    /// The wall-clock time at which the object entered `state`; 0 if it entered `state` only after `at`, or never.
    pub fn wall_of(&self, state: State, at: u64) -> i64 {
        let mut changes = self.history.iter().filter(|c| c.at <= at);
        changes.find(|c| c.state == state).map_or(0, |c| c.wall)
    }

    /// The wall-clock time of the creation.
    pub fn created_at(&self) -> i64 {
        self.history.first().map_or(0, |c| c.wall)
    }

    /// The pod's uid in the label, by which clients list the objects of one pod.
    pub fn label_uid(&self) -> Option<&Arc<str>> {
        match &self.label {
            Label::Right => Some(&self.pod.uid),
            Label::Missing => None,
            Label::Wrong(uid) => Some(uid),
        }
    }

    /// The id of the container's sandbox; for a sandbox, its own id.
    pub fn sandbox_id(&self) -> &Id {
        self.sandbox.as_ref().unwrap_or(&self.id)
    }

    /// Makes lists show the last change late by `lists` nanoseconds, and statuses late by `statuses` nanoseconds.
    pub fn lag(&mut self, lists: u64, statuses: u64) {
        let [.., before, last] = &mut self.history[..] else {
            return;
        };
        // Lists and statuses never show a later state before an earlier one.
        last.in_lists = before.in_lists.max(last.at + lists);
        last.in_statuses = before.in_statuses.max(last.at + statuses);
    }
}
