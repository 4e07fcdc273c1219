//! The Ready condition of the node, with upstream's reasons and messages.

use std::fmt;

use k8s_openapi::api::core::v1::NodeCondition;
use pleg::WallTime;

use pleg_kubelet::api_time;

use crate::runtime_state::{RuntimeErrors, aggregate};

/// What the Ready condition follows from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeErrors {
    /// Errors of the runtime, the network and the storage.
    pub runtime: RuntimeErrors,
    /// Why the node shuts down, if it does.
    pub shutdown: Option<String>,
    /// Of `cpu`, `memory`, `pods` and `ephemeral-storage` those whose capacity is not known, in this
    /// order.
    pub missing_capacity: Vec<String>,
}

impl NodeErrors {
    /// All errors as one message, as upstream joins them.
    #[must_use]
    pub fn message(&self) -> Option<String> {
        let missing = (!self.missing_capacity.is_empty()).then(|| {
            let missing = self.missing_capacity.join(", ");
            format!("missing node capacity for resources: {missing}")
        });
        let others = self.shutdown.as_deref().into_iter();
        aggregate(self.runtime.iter().chain(others).chain(missing.as_deref()))
    }
}

/// That the status of the Ready condition changed: an event of type `Normal`, with this as its
/// reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeEvent {
    /// The node became ready.
    NodeReady,
    /// The node became not ready.
    NodeNotReady,
}

impl NodeEvent {
    /// Upstream's reason.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NodeReady => "NodeReady",
            Self::NodeNotReady => "NodeNotReady",
        }
    }

    /// Upstream's message.
    #[must_use]
    pub fn message(self, node: &str) -> String {
        format!("Node {node} status is now: {self}")
    }
}

impl fmt::Display for NodeEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The Ready condition at `now`, and the event to record if its status is not that of the previous
/// one. The time of transition changes with the status only, that of the heartbeat always.
///
/// It must be the last condition in the list of a node, because upstream's clients rely on it.
#[must_use]
pub fn node_ready(
    errors: &NodeErrors,
    previous: Option<&NodeCondition>,
    now: WallTime,
) -> (NodeCondition, Option<NodeEvent>) {
    let (status, reason, message) = match errors.message() {
        None => (
            "True",
            "KubeletReady",
            "kubelet is posting ready status".to_owned(),
        ),
        Some(message) => ("False", "KubeletNotReady", message),
    };
    let now = Some(api_time(now));
    let kept = previous.filter(|p| p.status == status);
    let condition = NodeCondition {
        type_: "Ready".to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_heartbeat_time: now.clone(),
        last_transition_time: kept.map_or(now, |p| p.last_transition_time.clone()),
    };
    let event = match (previous, kept, status) {
        (Some(_), None, "True") => Some(NodeEvent::NodeReady),
        (Some(_), None, _) => Some(NodeEvent::NodeNotReady),
        _ => None,
    };
    (condition, event)
}
