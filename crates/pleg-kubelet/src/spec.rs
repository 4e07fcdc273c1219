//! The parts of a pod's specification that decisions need, without the defaults and texts of the API.

use std::time::Duration;

use k8s_openapi::api::core::v1::ContainerRestartRuleOnExitCodes;
use pleg::core::Resources;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodSpec {
    /// When ended containers are restarted, unless a container has a policy of its own.
    pub(crate) restart_policy: RestartPolicy,
    /// The init containers, then the regular ones.
    pub(crate) containers: Vec<ContainerSpec>,
    pub(crate) termination_grace_period: Duration,
    /// The pod uses the network of the node. Then the runtime reports no address for it.
    pub(crate) host_network: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ContainerSpec {
    pub(crate) name: String,
    pub(crate) role: ContainerRole,
    /// Identifies everything that cannot be changed while it runs. A running container with another value is replaced.
    pub(crate) hash: String,
    /// The resources that it must have. Those that are not set stay unchanged.
    pub(crate) resources: Option<Resources>,
    /// Its own restart policy, instead of the pod's.
    pub(crate) restart_policy: Option<RestartPolicy>,
    /// Exit codes after which it is restarted even if its own policy says otherwise. They have no
    /// effect without that policy.
    pub(crate) restart_on: Vec<ContainerRestartRuleOnExitCodes>,
}

/// Replaces an exit code that stays unknown. It counts as failure.
pub(crate) const UNKNOWN_EXIT_CODE: i32 = -1;

/// When a container of a pod runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContainerRole {
    /// Before the regular containers, until it has succeeded.
    Init,
    /// From its turn among the init containers on, as long as the pod runs (a restartable init
    /// container).
    Sidecar,
    /// After the init containers.
    Regular,
}

/// When ended containers are restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    Always,
    /// If the exit code is not 0. An exit code that stays unknown counts as failure.
    OnFailure,
    Never,
}

impl ContainerSpec {
    /// The policy in effect, in a pod with this one.
    pub(crate) fn policy(&self, of_pod: RestartPolicy) -> RestartPolicy {
        self.restart_policy.unwrap_or(of_pod)
    }

    /// Returns true if the container runs again after it exited with this code.
    pub(crate) fn restarts(&self, of_pod: RestartPolicy, exit_code: i32) -> bool {
        let is_named = |codes: &ContainerRestartRuleOnExitCodes| {
            let is_in = codes.values.iter().flatten().any(|code| *code == exit_code);
            codes.operator == "In" && is_in || codes.operator == "NotIn" && !is_in
        };
        let is_restarted = match self.policy(of_pod) {
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => exit_code != 0,
            RestartPolicy::Never => false,
        };
        is_restarted || self.restart_policy.is_some() && self.restart_on.iter().any(is_named)
    }

    /// The result of [`restarts`](Self::restarts) if it is the same for every exit code.
    pub(crate) fn restarts_always_or_never(&self, of_pod: RestartPolicy) -> Option<bool> {
        match self.policy(of_pod) {
            RestartPolicy::Always => Some(true),
            RestartPolicy::Never if self.restart_on.is_empty() => Some(false),
            _ => None,
        }
    }

    /// The key of its restarts in the back-off.
    pub(crate) fn back_off_key(&self) -> String {
        format!("{}_{}", self.name, self.hash)
    }
}
