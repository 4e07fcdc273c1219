//! What a decision needs of a pod's specification, without the defaults and texts of the API.

use std::time::Duration;

use pleg::core::Resources;

/// What runs in a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodSpec {
    /// When ended containers are restarted, unless a container has a policy of its own.
    pub(crate) restart_policy: RestartPolicy,
    /// In the order of the specification: the init containers, then the others.
    pub(crate) containers: Vec<ContainerSpec>,
    /// How long the containers have to end after they were told to.
    pub(crate) termination_grace_period: Duration,
    /// Whether the pod uses the network of the node. Then the runtime reports no address of it.
    pub(crate) host_network: bool,
}

/// One container of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerSpec {
    /// Its name. Unique within the pod.
    pub(crate) name: String,
    /// When it runs.
    pub(crate) role: ContainerRole,
    /// Identifies everything of the specification that cannot be changed while it runs. A running
    /// container with another value is replaced.
    pub(crate) hash: String,
    /// The resources that it must have. They can be changed while it runs. What is not set stays as
    /// it is.
    pub(crate) resources: Option<Resources>,
    /// Its own restart policy, instead of the pod's.
    pub(crate) restart_policy: Option<RestartPolicy>,
    /// Exit codes after which it is restarted even if its own policy says otherwise. They have no
    /// effect without that policy.
    pub(crate) restart_on: Vec<ExitCodes>,
}

/// A set of exit codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExitCodes {
    /// These.
    In(Vec<i32>),
    /// All but these.
    NotIn(Vec<i32>),
}

/// Stands for an exit code that stays unknown. It counts as failure.
pub(crate) const UNKNOWN_EXIT_CODE: i32 = -1;

/// When a container of a pod runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ContainerRole {
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
pub(crate) enum RestartPolicy {
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
    pub(crate) const fn new(containers: Vec<ContainerSpec>) -> Self {
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
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            role: ContainerRole::Regular,
            hash: String::new(),
            resources: None,
            restart_policy: None,
            restart_on: Vec::new(),
        }
    }

    /// The policy in effect, in a pod with this one.
    pub(crate) fn policy(&self, of_pod: RestartPolicy) -> RestartPolicy {
        self.restart_policy.unwrap_or(of_pod)
    }

    /// Returns true if the container runs again after it exited with this code.
    pub(crate) fn restarts(&self, of_pod: RestartPolicy, exit_code: i32) -> bool {
        let rules = self
            .restart_on
            .iter()
            .filter(|_| self.restart_policy.is_some());
        let is_named = |codes: &ExitCodes| match codes {
            ExitCodes::In(codes) => codes.contains(&exit_code),
            ExitCodes::NotIn(codes) => !codes.contains(&exit_code),
        };
        rules.into_iter().any(is_named)
            || match self.policy(of_pod) {
                RestartPolicy::Always => true,
                RestartPolicy::OnFailure => exit_code != 0,
                RestartPolicy::Never => false,
            }
    }

    /// As [`restarts`](Self::restarts), if the exit code does not matter.
    pub(crate) fn restarts_always_or_never(&self, of_pod: RestartPolicy) -> Option<bool> {
        match self.policy(of_pod) {
            RestartPolicy::Always => Some(true),
            RestartPolicy::Never if self.restart_on.is_empty() => Some(false),
            _ => None,
        }
    }

    /// What its restarts are counted by in the back-off.
    pub(crate) fn back_off_key(&self) -> String {
        format!("{}_{}", self.name, self.hash)
    }
}
