//! What the cache holds: the status of a pod, with all its sandboxes and containers.

use std::sync::Arc;

use crate::error::CallError;
use crate::ids::{Id, PodUid};
use crate::labels::Labels;
use crate::time::{Instant, WallTime};

/// Shared text.
pub type Text = arcstr::ArcStr;

/// A pod as it is known: every sandbox and every container that exists, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PodStatus {
    /// The pod.
    pub uid: PodUid,
    /// Its namespace; empty if no answer ever said.
    pub namespace: Text,
    /// Its name; empty if no answer ever said.
    pub name: Text,
    /// All sandboxes, newest first. The first one is the active one, if it is ready.
    pub sandboxes: Box<[SandboxStatus]>,
    /// All containers of all sandboxes, newest first: the first of a name is its latest.
    pub containers: Box<[ContainerStatus]>,
    /// The pod's addresses: those of the active sandbox; once no sandbox is ready any more, the
    /// last ones known (upstream keeps them for the containers that still end).
    pub ips: Box<[Text]>,
    /// The error of the last read of this pod, if its lists failed, or of the first of its ids whose
    /// status failed. The status beside it is the last good one.
    pub error: Option<Arc<CallError>>,
}

impl PodStatus {
    /// The status of a pod of which nothing exists: an answer, not an error.
    pub fn nothing(uid: PodUid) -> Self {
        Self {
            uid,
            namespace: Text::default(),
            name: Text::default(),
            sandboxes: Box::default(),
            containers: Box::default(),
            ips: Box::default(),
            error: None,
        }
    }

    /// Whether nothing of the pod exists.
    pub fn is_nothing(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// The newest sandbox, if it is ready.
    pub fn active_sandbox(&self) -> Option<&SandboxStatus> {
        self.sandboxes
            .first()
            .filter(|s| s.state == SandboxState::Ready)
    }

    /// The containers of the active sandbox, newest first.
    pub fn active_containers(&self) -> impl Iterator<Item = &ContainerStatus> {
        self.containers.iter().filter(|c| c.active)
    }

    /// The newest container of that name.
    pub fn container(&self, name: &str) -> Option<&ContainerStatus> {
        self.containers.iter().find(|c| &*c.name == name)
    }
}

/// A pod's status and the freshness that is proved for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PodView {
    /// The status.
    pub status: Arc<PodStatus>,
    /// It shows all that a read begun at this instant would have shown. `None`: known only from
    /// events, no read has confirmed it yet. No event, no timer and no peer's clock moves it.
    pub as_of: Option<Instant>,
    /// When the read began that returned the details (exit codes, addresses, resources): of the
    /// pod's ids, the one that was read least recently. `None` if one of them was never read, or
    /// nothing of the pod exists.
    pub inspected: Option<Instant>,
}

impl PodView {
    /// A view; for those who build answers, such as tests of consumers.
    pub const fn new(
        status: Arc<PodStatus>,
        as_of: Option<Instant>,
        inspected: Option<Instant>,
    ) -> Self {
        Self {
            status,
            as_of,
            inspected,
        }
    }
}

/// The state of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SandboxState {
    /// Ready for containers.
    Ready,
    /// Stopped, or its process ended.
    NotReady,
    /// The runtime does not know; the last position that was known, if any.
    Unknown {
        /// Whether it was last seen ready; `None` if it was never seen in any state.
        last_ready: Option<bool>,
    },
}

/// The state of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ContainerState {
    /// It exists and has not been started.
    Created,
    /// It runs.
    Running,
    /// It ended.
    Exited,
    /// The runtime does not know; the last position that was known, if any.
    Unknown {
        /// What it was when it was last seen in a known state.
        last: Option<KnownState>,
    },
}

/// A container's state, where it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KnownState {
    /// It exists and has not been started.
    Created,
    /// It runs.
    Running,
    /// It ended.
    Exited,
}

/// One sandbox of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SandboxStatus {
    /// Its id.
    pub id: Id,
    /// Its state.
    pub state: SandboxState,
    /// The runtime lists it and says that it has no status: whether it exists is not settled. The
    /// details are the last ones known. While it is ready, no other sandbox of the pod may be
    /// created.
    pub unsettled: bool,
    /// How its last status call failed, if it did. Its details are those last known.
    pub error: Option<Arc<CallError>>,
    /// How many sandboxes this pod had before.
    pub attempt: u32,
    /// When the runtime says that it was created.
    pub created_at: Option<WallTime>,
    /// What else is known.
    pub details: Arc<SandboxDetails>,
}

/// What is known of a sandbox besides its state. Empty means: not said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SandboxDetails {
    /// Its addresses, the primary one first. None on the host's network.
    pub ips: Box<[Text]>,
    /// The runtime handler that it runs under.
    pub runtime_handler: Text,
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
}

/// One container of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ContainerStatus {
    /// Its id.
    pub id: Id,
    /// Its name within the pod.
    pub name: Text,
    /// Its state.
    pub state: ContainerState,
    /// The runtime lists it and says that it has no status: whether it exists is not settled. The
    /// details are the last ones known. While it is created or running, no other container of its
    /// name may be started.
    pub unsettled: bool,
    /// How its last status call failed, if it did. Its details are those last known.
    pub error: Option<Arc<CallError>>,
    /// Whether it belongs to the pod's active sandbox.
    pub active: bool,
    /// Its sandbox.
    pub sandbox: Option<Id>,
    /// How often a container of this name was tried before.
    pub attempt: u32,
    /// When the runtime says that it was created.
    pub created_at: Option<WallTime>,
    /// What else is known.
    pub details: Arc<ContainerDetails>,
}

/// What is known of a container besides its state. `None` or empty means: not said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ContainerDetails {
    /// When the runtime says that it was started.
    pub started_at: Option<WallTime>,
    /// When the runtime says that it ended.
    pub finished_at: Option<WallTime>,
    /// Its exit code, once it has ended and an answer has told it.
    pub exit_code: Option<i32>,
    /// A brief reason for its state (`Completed`, `Error`, `OOMKilled`, `StartError`).
    pub reason: Text,
    /// A message that explains the reason.
    pub message: Text,
    /// The image that was asked for.
    pub image: Text,
    /// A reference to the image in use, usually a digest.
    pub image_ref: Text,
    /// The id of the image in use.
    pub image_id: Text,
    /// Where the runtime writes its log.
    pub log_path: Text,
    /// The resources that are in force.
    pub resources: Option<Arc<Resources>>,
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
}

/// Linux resources of a container, in the kernel's units. Zero or empty means: not set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Resources {
    /// CPU CFS period, in microseconds.
    pub cpu_period: i64,
    /// CPU CFS quota, in microseconds.
    pub cpu_quota: i64,
    /// CPU shares, relative.
    pub cpu_shares: i64,
    /// Memory limit, in bytes.
    pub memory_limit: i64,
    /// Memory and swap limit, in bytes.
    pub memory_swap_limit: i64,
    /// CPUs that may be used.
    pub cpuset_cpus: Text,
    /// Memory nodes that may be used.
    pub cpuset_mems: Text,
    /// Further cgroup v2 settings.
    pub unified: Labels,
}
