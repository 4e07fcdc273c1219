//! The contents of the cache: the status of a pod, with all its sandboxes and containers.

use std::fmt;
use std::sync::Arc;

use crate::types::error::CallError;
use crate::types::ids::{Id, PodUid};
use crate::types::labels::Labels;
use crate::types::time::{Instant, WallTime};

/// Shared text.
pub type Text = arcstr::ArcStr;

/// The status of a pod: every sandbox and every container that exists, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PodStatus {
    /// The pod.
    pub uid: PodUid,
    /// Its namespace; empty if it is not known.
    pub namespace: Text,
    /// Its name; empty if it is not known.
    pub name: Text,
    /// All sandboxes, newest first. The first one is the active one, if it is ready.
    pub sandboxes: Box<[SandboxStatus]>,
    /// All containers of all sandboxes, newest first: the first of a name is its latest.
    pub containers: Box<[ContainerStatus]>,
    /// The pod's addresses: those of the active sandbox. When no sandbox is ready any more, the
    /// last known addresses (upstream keeps them for the containers that still end).
    pub ips: Box<[Text]>,
    /// The error of the last read of this pod, if its lists failed; otherwise that of the first id
    /// whose status failed. The status beside it is the last good one.
    pub error: Option<Arc<CallError>>,
}

impl PodStatus {
    /// The status of a pod that does not exist: an answer, not an error.
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

    /// Whether the pod does not exist.
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

    /// The newest container with that name.
    pub fn container(&self, name: &str) -> Option<&ContainerStatus> {
        self.containers.iter().find(|c| &*c.name == name)
    }
}

/// A pod's status and its proven freshness.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct PodView {
    /// The status.
    pub status: Arc<PodStatus>,
    /// The status shows all that a read begun at this instant shows. `None`: it is known only from
    /// events, and no read has confirmed it. No event, timer or foreign clock changes it.
    pub as_of: Option<Instant>,
    /// When the read began that returned the details (exit codes, addresses, resources) of the id
    /// that was read least recently. `None` if one of the pod's ids was never read, or the pod does
    /// not exist.
    pub inspected: Option<Instant>,
}

impl PodView {
    /// A view, for code that builds answers, such as tests of consumers.
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum SandboxState {
    /// It is ready.
    Ready,
    /// It was stopped, or its process exited.
    NotReady,
    /// The runtime does not know the state.
    Unknown {
        /// Whether it was last seen ready; `None` if it was never seen in a known state.
        last_ready: Option<bool>,
    },
}

impl SandboxState {
    /// The CRI's name of the state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::NotReady => "NotReady",
            Self::Unknown { .. } => "Unknown",
        }
    }
}

impl fmt::Display for SandboxState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The state of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum ContainerState {
    /// It exists and has not been started.
    Created,
    /// It is running.
    Running,
    /// It exited.
    Exited,
    /// The runtime does not know the state.
    Unknown {
        /// Its last known state, if any.
        last: Option<KnownState>,
    },
}

impl ContainerState {
    /// The CRI's name of the state. For an unknown state it contains the last known one.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Running => "Running",
            Self::Exited => "Exited",
            Self::Unknown { last: None } => "Unknown",
            Self::Unknown {
                last: Some(KnownState::Created),
            } => "Unknown (was Created)",
            Self::Unknown {
                last: Some(KnownState::Running),
            } => "Unknown (was Running)",
            Self::Unknown {
                last: Some(KnownState::Exited),
            } => "Unknown (was Exited)",
        }
    }
}

impl fmt::Display for ContainerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A known state of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum KnownState {
    /// It exists and has not been started.
    Created,
    /// It is running.
    Running,
    /// It exited.
    Exited,
}

impl KnownState {
    /// The CRI's name of the state.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Running => "Running",
            Self::Exited => "Exited",
        }
    }
}

impl fmt::Display for KnownState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One sandbox of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SandboxStatus {
    /// Its id.
    pub id: Id,
    /// Its state.
    pub state: SandboxState,
    /// The runtime lists it, but its status call returned NotFound, so nobody knows whether it
    /// exists. The details are the last known ones. While it is ready, no other sandbox of the pod
    /// may be created.
    pub status_missing: bool,
    /// The error of its last status call, if it failed. The details are the last known ones.
    pub error: Option<Arc<CallError>>,
    /// The number of earlier sandboxes of this pod.
    pub attempt: u32,
    /// When it was created according to the runtime.
    pub created_at: Option<WallTime>,
    /// Its details.
    pub details: Arc<SandboxDetails>,
}

impl SandboxStatus {
    /// A sandbox of which only this is known, for code that builds statuses, such as tests of
    /// consumers.
    pub fn new(id: impl Into<Id>, state: SandboxState) -> Self {
        Self {
            id: id.into(),
            state,
            status_missing: false,
            error: None,
            attempt: 0,
            created_at: None,
            details: Arc::default(),
        }
    }
}

/// The details of a sandbox. Empty means not reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
#[non_exhaustive]
pub struct SandboxDetails {
    /// Its addresses, the primary one first. None on the host network.
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ContainerStatus {
    /// Its id.
    pub id: Id,
    /// Its name within the pod.
    pub name: Text,
    /// Its state.
    pub state: ContainerState,
    /// The runtime lists it, but its status call returned NotFound, so nobody knows whether it
    /// exists. The details are the last known ones. While it is created or running, no other
    /// container of its name may be started.
    pub status_missing: bool,
    /// The error of its last status call, if it failed. The details are the last known ones.
    pub error: Option<Arc<CallError>>,
    /// Whether it belongs to the pod's active sandbox.
    pub active: bool,
    /// Its sandbox.
    pub sandbox: Option<Id>,
    /// The number of earlier attempts of a container with this name.
    pub attempt: u32,
    /// When it was created according to the runtime.
    pub created_at: Option<WallTime>,
    /// Its details.
    pub details: Arc<ContainerDetails>,
}

impl ContainerStatus {
    /// A container of the active sandbox of which only this is known, for code that builds statuses, such as tests of
    /// consumers.
    pub fn new(id: impl Into<Id>, name: impl Into<Text>, state: ContainerState) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            state,
            status_missing: false,
            error: None,
            active: true,
            sandbox: None,
            attempt: 0,
            created_at: None,
            details: Arc::default(),
        }
    }
}

/// The details of a container. `None` or empty means not reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
#[non_exhaustive]
pub struct ContainerDetails {
    /// When it was started according to the runtime.
    pub started_at: Option<WallTime>,
    /// When it exited according to the runtime.
    pub finished_at: Option<WallTime>,
    /// Its exit code, if it has exited and the code is known.
    pub exit_code: Option<i32>,
    /// A brief reason for its state (`Completed`, `Error`, `OOMKilled`, `StartError`).
    pub reason: Text,
    /// A message that explains the reason.
    pub message: Text,
    /// The requested image.
    pub image: Text,
    /// A reference to the image in use, usually a digest.
    pub image_ref: Text,
    /// The id of the image in use.
    pub image_id: Text,
    /// Where the runtime writes its log.
    pub log_path: Text,
    /// The resources in effect.
    pub resources: Option<Arc<Resources>>,
    /// Labels.
    pub labels: Labels,
    /// Annotations.
    pub annotations: Labels,
}

/// Linux resources of a container, in the kernel's units. Zero or empty means not set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
#[non_exhaustive]
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
