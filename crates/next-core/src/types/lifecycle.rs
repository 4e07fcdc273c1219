//! Lifecycle events, with upstream's types.

use std::fmt;

use crate::types::ids::{Id, Kind, PodUid};
use crate::types::status::Text;
use crate::types::time::{Instant, WallTime};

/// Upstream's types (kubelet, pkg/kubelet/pleg).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum LifecycleType {
    /// A container is running, or a sandbox is ready.
    ContainerStarted,
    /// A container exited, or a sandbox is no longer ready.
    ContainerDied,
    /// A container or sandbox was removed.
    ContainerRemoved,
    /// A container was created, its state became unknown, its exit code became known later, or reads overruled its
    /// recorded state.
    ContainerChanged,
    /// Another detail of the pod changed.
    PodSync,
}

impl LifecycleType {
    /// Upstream's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ContainerStarted => "ContainerStarted",
            Self::ContainerDied => "ContainerDied",
            Self::ContainerRemoved => "ContainerRemoved",
            Self::ContainerChanged => "ContainerChanged",
            Self::PodSync => "PodSync",
        }
    }
}

impl fmt::Display for LifecycleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The source that showed a change first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Source {
    /// The event stream.
    Stream,
    /// A full list.
    Relist,
    /// The inspection of the pod.
    Inspection,
}

impl Source {
    /// A short lower-case name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::Relist => "relist",
            Self::Inspection => "inspection",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One announced change of a pod. The cache shows it when it is announced.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct PodLifecycleEvent {
    /// What happened.
    pub event: LifecycleType,
    /// The pod.
    pub uid: PodUid,
    /// Its namespace; empty if it is not known.
    pub namespace: Text,
    /// Its name; empty if it is not known.
    pub pod_name: Text,
    /// The container or sandbox; none for `PodSync`.
    pub subject: Option<Subject>,
    /// The source that showed it first.
    pub source: Source,
    /// Whether this may not be a change: the first complete list showed it so, or before that list an event about
    /// another id did. So it was, or may have been, when the generator started. `happened_at` may be long ago.
    pub initial: bool,
    /// When the generator detected it, on its monotonic clock.
    pub detected: Instant,
    /// When it happened according to the runtime, if known.
    pub happened_at: Option<WallTime>,
}

/// The container or sandbox that a lifecycle event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Subject {
    /// Its id.
    pub id: Id,
    /// Sandbox or container.
    pub kind: Kind,
    /// A container's name; empty for a sandbox.
    pub name: Text,
    /// The number of earlier attempts under the same name.
    pub attempt: u32,
    /// The exit code, once the container has ended. Absent with `ContainerStarted`, and if the runtime did not report
    /// it.
    pub exit_code: Option<i32>,
    /// The reason of the state; empty if none was given.
    pub reason: Text,
}
