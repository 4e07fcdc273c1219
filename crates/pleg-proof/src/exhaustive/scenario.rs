//! The scenario of a small world: its objects, and the order of what happens to them.
//!
//! Scripts run in parallel; each is a list of steps of one pod. The true state at an instant is one
//! [`Snapshot`], a stage per object. Nothing here uses the core.

use crate::oracle::State;

/// The index of an object in its world.
pub type ObjectIndex = usize;

/// The most objects in a world.
pub const MOST: usize = 6;

/// The lifecycle stage of an object. A sandbox has no `Created`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// It does not exist yet.
    #[default]
    Absent,
    Created,
    Running,
    Exited,
    /// It no longer exists.
    Removed,
}

impl From<State> for Stage {
    fn from(state: State) -> Self {
        match state {
            State::Created => Self::Created,
            State::Running => Self::Running,
            State::Exited => Self::Exited,
            State::Removed => Self::Removed,
        }
    }
}

impl Stage {
    /// Whether a runtime shows an object in this stage.
    pub fn exists(self) -> bool {
        !matches!(self, Self::Absent | Self::Removed)
    }
}

/// The true state at one instant.
pub type Snapshot = [Stage; MOST];

/// A sandbox or a container.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    pub id: &'static str,
    /// The uid of its pod.
    pub pod: &'static str,
    /// A container's sandbox; none for a sandbox.
    pub sandbox: Option<ObjectIndex>,
    /// How many objects of its name there were before.
    pub attempt: u32,
    /// The exit code when it exits.
    pub code: i32,
}

/// One step of a script: an object reaches a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step(pub ObjectIndex, pub Stage);

/// A sandbox.
pub const fn sandbox(id: &'static str, pod: &'static str, attempt: u32) -> Object {
    Object {
        id,
        pod,
        sandbox: None,
        attempt,
        code: 0,
    }
}

/// A container.
pub const fn container(
    id: &'static str,
    pod: &'static str,
    sandbox: ObjectIndex,
    attempt: u32,
    code: i32,
) -> Object {
    Object {
        id,
        pod,
        sandbox: Some(sandbox),
        attempt,
        code,
    }
}
