//! The runtime's own `Status`: RuntimeReady, NetworkReady and further conditions.

use pleg::core::CallError;
use pleg_cri::v1::StatusResponse;
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use crate::picture::finding::{Finding, Layer, Severity};
use crate::text::clip;

/// How many characters of a text are kept.
const MOST: usize = 300;

/// The answer of `Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Conditions {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) failure: Option<Failure>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    pub(crate) name: String,
    pub(crate) status: bool,
    pub(crate) reason: String,
    /// Empty in a redacted recording.
    pub(crate) message: String,
}

impl From<Result<StatusResponse, CallError>> for Conditions {
    fn from(answer: Result<StatusResponse, CallError>) -> Self {
        let text = |text: String| clip(&text, MOST).into_owned();
        match answer {
            Err(error) => Self {
                conditions: Vec::new(),
                failure: Some(Failure::from(&error)),
            },
            Ok(answer) => Self {
                conditions: answer
                    .status
                    .unwrap_or_default()
                    .conditions
                    .into_iter()
                    .take(16)
                    .map(|condition| Condition {
                        name: text(condition.r#type),
                        status: condition.status,
                        reason: text(condition.reason),
                        message: text(condition.message),
                    })
                    .collect(),
                failure: None,
            },
        }
    }
}

pub(super) fn check(conditions: &Conditions) -> Vec<Finding> {
    conditions.conditions.iter().filter_map(not_met).collect()
}

fn not_met(condition: &Condition) -> Option<Finding> {
    let (code, layer, summary, next) = match &*condition.name {
        "NetworkReady" => (
            "network_not_ready",
            Layer::Network,
            "the runtime's network is not ready: the kubelet starts no pod that needs it",
            "Install or repair the network plugin: its configuration (/etc/cni/net.d) and its pods.",
        ),
        "RuntimeReady" => (
            "runtime_not_ready",
            Layer::Runtime,
            "the runtime says that it is not ready: the kubelet starts no pod",
            "Read the runtime's log.",
        ),
        _ => return None,
    };
    if condition.status {
        return None;
    }
    let finding = Finding::new(code, layer, Severity::Critical, summary, next);
    let mut evidence = format!("Status: {} is false", condition.name);
    if !condition.reason.is_empty() {
        evidence = format!("{evidence} ({})", condition.reason);
    }
    if !condition.message.is_empty() {
        evidence = format!("{evidence}: {}", condition.message);
    }
    Some(finding.because(evidence))
}
