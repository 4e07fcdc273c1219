//! The oracle of a small world: who there is, and what happens to them, in what order.
//!
//! Scripts run side by side; each is a list of steps of one pod's life. The oracle at a moment is
//! one [`Snapshot`], a stage per being. Nothing here knows of the core.

/// Who: an index into the world's beings.
pub type ObjectIndex = usize;

/// The most beings that a world has.
pub const MOST: usize = 6;

/// How far somebody has come. A sandbox has no `Created`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Not there yet.
    #[default]
    Absent,
    Created,
    Running,
    Exited,
    /// Not there any more.
    Removed,
}

impl Stage {
    /// Whether a runtime shows somebody in this stage.
    pub fn exists(self) -> bool {
        !matches!(self, Self::Absent | Self::Removed)
    }
}

/// The oracle at one moment.
pub type Snapshot = [Stage; MOST];

/// A sandbox or a container.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    pub id: &'static str,
    /// The uid of its pod.
    pub pod: &'static str,
    /// A container's sandbox; none for a sandbox.
    pub sandbox: Option<ObjectIndex>,
    /// How many of its name there were before.
    pub attempt: u32,
    /// The exit code that a container will have.
    pub code: i32,
}

/// One step of a script: somebody comes to a stage.
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
