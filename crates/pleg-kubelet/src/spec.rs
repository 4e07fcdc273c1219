//! What a pod worker must know of a pod's specification to decide what to do.
//!
//! It is independent of the version of the Kubernetes API. The feature `k8s-openapi` converts a
//! `v1.Pod` to it.

use std::time::Duration;

use pleg::core::Resources;

/// What is to run in a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PodSpec {
    /// When ended containers are restarted, unless a container says otherwise.
    pub restart_policy: RestartPolicy,
    /// In the order of the specification: the init containers, then the others.
    pub containers: Vec<ContainerSpec>,
    /// How long the containers have to end after they were told to.
    pub termination_grace_period: Duration,
    /// Whether the pod uses the network of the node. Then the runtime reports no address of it.
    pub host_network: bool,
}

/// One container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContainerSpec {
    /// Its name. Unique within the pod.
    pub name: String,
    /// When it runs.
    pub role: ContainerRole,
    /// Identifies everything of the specification that cannot be changed while it runs. A running
    /// container with another value is replaced.
    pub hash: String,
    /// The resources that it is to have. They can be changed while it runs. What is not set stays as
    /// it is.
    pub resources: Option<Resources>,
}

/// When a container of a pod runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContainerRole {
    /// Before the others, until it has succeeded.
    Init,
    /// From its turn among the init containers on, as long as the pod runs (a restartable init
    /// container).
    Sidecar,
    /// After the init containers.
    Regular,
}

/// When ended containers are restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RestartPolicy {
    /// Always.
    #[default]
    Always,
    /// If the exit code is not 0. An exit code that stays unknown counts as failure.
    OnFailure,
    /// Never.
    Never,
}

impl PodSpec {
    /// A pod of these containers that are restarted whenever they end, with a grace period of 30 s and a network of
    /// its own.
    #[must_use]
    pub const fn new(containers: Vec<ContainerSpec>) -> Self {
        Self {
            restart_policy: RestartPolicy::Always,
            containers,
            termination_grace_period: Duration::from_secs(30),
            host_network: false,
        }
    }
}

impl ContainerSpec {
    /// A regular container.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            role: ContainerRole::Regular,
            hash: String::new(),
            resources: None,
        }
    }

    /// What its restarts are counted by in the back-off.
    pub(crate) fn back_off_key(&self) -> String {
        format!("{}_{}", self.name, self.hash)
    }
}
