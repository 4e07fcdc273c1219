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
    /// A container that exists and was not started.
    Created,
    /// A running container, a ready sandbox.
    Running,
    /// An exited container, a sandbox that is not ready.
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

/// The label `io.kubernetes.pod.uid`, by which lists of one pod select.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Label {
    /// The pod's uid.
    #[default]
    Right,
    /// There is none: somebody created the object with `crictl`.
    Missing,
    /// Another uid.
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
    /// The instant from which lists show it. containerd 2.4 listed containers as running after
    /// `StopContainer`.
    pub in_lists: u64,
    /// The instant from which statuses show it.
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
    /// The code that statuses show at first; `None`: none yet.
    pub early_code: Option<i32>,
    /// The instant until which statuses show the reason `Error`.
    pub reason_known_at: u64,
}

/// A contradiction between the row and the status of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Skew {
    /// Its row shows this state, its status shows the true one.
    RowShows(State),
    /// Its row is listed, its status is NotFound.
    StatusMissing,
}

/// Wrong reports of the runtime about an object, each until an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Overrides {
    /// Rows and statuses have the state UNKNOWN.
    pub unknown_until: u64,
    /// Row and status contradict each other.
    pub skew: Option<(Skew, u64)>,
    /// Neither lists nor statuses show it, although it exists: containerd failed to load it when containerd
    /// started.
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
    /// A sandbox whose pause process holds the process namespace of its containers.
    pub shares_processes: bool,
    /// Its states, the oldest first.
    pub history: Vec<Change>,
    /// The exit of the container.
    pub exit: Exit,
    /// Wrong reports of the runtime about it.
    pub overrides: Overrides,
}

impl Object {
    /// A first attempt without a state.
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

    /// Its state at an instant; `None` before its creation.
    pub fn state_at(&self, at: u64) -> Option<State> {
        let mut changes = self.history.iter().rev();
        changes.find(|c| c.at <= at).map(|c| c.state)
    }

    /// Its present state.
    pub fn state(&self) -> State {
        self.history.last().map_or(State::Removed, |c| c.state)
    }

    /// The instant at which it entered its present state.
    pub fn since(&self) -> u64 {
        self.history.last().map_or(0, |c| c.at)
    }

    /// Returns true until its removal.
    pub fn exists(&self) -> bool {
        self.state() != State::Removed
    }

    /// The instant at which it entered a state.
    pub fn entered(&self, state: State) -> Option<u64> {
        let mut changes = self.history.iter();
        changes.find(|c| c.state == state).map(|c| c.at)
    }

    /// The wall-clock time at which it entered a state; 0 if it did not by that instant.
    pub fn wall_of(&self, state: State, at: u64) -> i64 {
        let mut changes = self.history.iter().filter(|c| c.at <= at);
        changes.find(|c| c.state == state).map_or(0, |c| c.wall)
    }

    /// The wall-clock time of its creation.
    pub fn created_at(&self) -> i64 {
        self.history.first().map_or(0, |c| c.wall)
    }

    /// The uid by which lists of one pod find it.
    pub fn label_uid(&self) -> Option<&Arc<str>> {
        match &self.label {
            Label::Right => Some(&self.pod.uid),
            Label::Missing => None,
            Label::Wrong(uid) => Some(uid),
        }
    }

    /// The id of its sandbox, or its own.
    pub fn sandbox_id(&self) -> &Id {
        self.sandbox.as_ref().unwrap_or(&self.id)
    }

    /// Delays its last change by these times, in lists and in statuses.
    pub fn lag(&mut self, lists: u64, statuses: u64) {
        let [.., before, last] = &mut self.history[..] else {
            return;
        };
        // A later state is never shown before an earlier one.
        last.in_lists = before.in_lists.max(last.at + lists);
        last.in_statuses = before.in_statuses.max(last.at + statuses);
    }
}
