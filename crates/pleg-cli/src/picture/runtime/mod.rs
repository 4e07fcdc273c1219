//! Evidence of the runtime: its calls, its event stream, its pods, its own conditions.
//!
//! A generator reads the node as in an agent, and a meter measures the calls; [`lists`] lists all pods like a kubelet.
//! The evidence is plain data, so [`check`] finds the same in a recording as on the node.

mod lists;
mod oddities;
mod pods;
mod session;
mod statuses;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use derive_more::Constructor;
use futures::StreamExt as _;
use itertools::Itertools as _;
use pleg::core::{
    CallError, CallErrorKind, ContainerState, ContainerStatus, Id, Instant, Kind, PodUid, PodView,
    SandboxState, SandboxStatus, Settings, WallTime,
};
use pleg::runtime::{Runtime as _, Scope};
use pleg_cri::v1::StatusResponse;
use pleg_cri::{ConnectError, CriClient, CriConfig, CriRuntime};
use serde::{Deserialize, Serialize};

pub(crate) use self::lists::Lists;
use self::oddities::Oddity;
pub(crate) use self::pods::{Pod, Pods, WallClock, check as check_pods};
use self::pods::{objects, ready, running};
pub(crate) use self::session::collect;
pub(crate) use self::statuses::{Problem, Statuses, check_problems};
use super::finding::{Finding, Severity};
use super::generator::{self, Generator, next_step};
use super::host::Calls;
use crate::meter::{Key, LIST_CONTAINERS, LIST_SANDBOXES, SANDBOX_STATUS, Timing, Timings};
use crate::record;
use crate::text::{bytes, clip, enclosed, millis, short, span};

const MOST_TEXT: usize = 300;
/// The maximum number of recorded conditions. containerd has three.
const MOST_CONDITIONS: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Evidence {
    pub(crate) endpoint: String,
    /// The runtime is the embedded simulated one.
    pub(crate) simulated: bool,
    /// The runtime's name; empty if the runtime did not answer.
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) unusable: Option<Unusable>,
    pub(crate) conditions: Conditions,
    pub(crate) lists: Lists,
    pub(crate) statuses: Statuses,
    pub(crate) stream: Generator,
    pub(crate) pods: Pods,
    pub(crate) wall_clock: WallClock,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Unusable {
    /// True if a process listens on the socket, but does not answer.
    pub(crate) silent: bool,
    pub(crate) denied: bool,
    pub(crate) why: String,
}

impl Unusable {
    /// Returns true if the host may be overloaded: the runtime is silent, or it is usable and calls to it are `slow`.
    pub(crate) fn may_be_slow(unusable: Option<&Self>, slow: bool) -> bool {
        unusable.map_or(slow, |unusable| unusable.silent)
    }
}

impl From<ConnectError> for Unusable {
    fn from(error: ConnectError) -> Self {
        use ConnectError::{PermissionDenied, Silent, Unresponsive};
        Self {
            silent: matches!(error, Silent { .. } | Unresponsive { .. }),
            denied: matches!(error, PermissionDenied { .. }),
            why: error.to_string(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[display("{kind}{}", enclosed(": ", message, ""))]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Failure {
    /// The kind of error, as `CallErrorKind::as_str` writes it.
    pub(crate) kind: String,
    /// The runtime's error text. Empty in a redacted recording.
    pub(crate) message: String,
}

impl From<&CallError> for Failure {
    fn from(error: &CallError) -> Self {
        Self {
            kind: error.kind.as_str().to_owned(),
            message: clip(&error.message, MOST_TEXT).into_owned(),
        }
    }
}

/// The runtime's own `Status`: RuntimeReady, NetworkReady and further conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Constructor)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Conditions {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) failure: Option<Failure>,
}

/// A condition, displayed as its status with the reason and the message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[display(
    "{status}{}{}",
    enclosed(" (", reason, ")"),
    enclosed(": ", message, "")
)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    pub(crate) name: String,
    pub(crate) status: bool,
    pub(crate) reason: String,
    /// The runtime's text; empty in a redacted recording.
    pub(crate) message: String,
}

impl Condition {
    /// Returns true if a kubelet does not work without this condition.
    pub(crate) fn is_needed(&self) -> bool {
        matches!(&*self.name, "NetworkReady" | "RuntimeReady")
    }
}

impl From<StatusResponse> for Conditions {
    fn from(answer: StatusResponse) -> Self {
        let text = |text: String| clip(&text, MOST_TEXT).into_owned();
        let conditions = answer.status.unwrap_or_default().conditions.into_iter();
        let conditions = conditions.take(MOST_CONDITIONS).map(|condition| Condition {
            name: text(condition.r#type),
            status: condition.status,
            reason: text(condition.reason),
            message: text(condition.message),
        });
        Self::new(conditions.collect(), None)
    }
}

pub(crate) fn check_conditions(conditions: &Conditions) -> impl Iterator<Item = Finding> {
    let failed = conditions.failure.iter().map(|failure| {
        let summary = "the runtime's Status call fails: the kubelet makes the node NotReady";
        let next = "Read the runtime's log.";
        Finding::new("runtime_status_failed", summary, next).because(failure.to_string())
    });
    let all = conditions.conditions.iter();
    let all = all.filter(|condition| condition.is_needed() && !condition.status);
    failed.chain(all.map(|condition| {
        let (code, summary, next) = match &*condition.name {
            "NetworkReady" => (
                "network_not_ready",
                "the runtime's network is not ready: the kubelet starts no pod that needs it",
                "Install or repair the network plugin: its configuration (/etc/cni/net.d) and its pods.",
            ),
            _ => (
                "runtime_not_ready",
                "the runtime reports that it is not ready: the kubelet starts no pod",
                "Read the runtime's log.",
            ),
        };
        let evidence = format!("Status: {} is {condition}", condition.name);
        Finding::new(code, summary, next).because(evidence)
    }))
}

impl Evidence {
    /// The results of calls to the runtime, on which the findings about the host depend.
    pub(crate) fn calls(&self) -> Calls<'_> {
        let silent = self.stream.degraded.contains_key("runtime_silent");
        let slow = silent || self.lists.are_slow() || self.statuses.are_slow();
        let slow = Unusable::may_be_slow(self.unusable.as_ref(), slow);
        let is_listed = self.unusable.is_none() && self.lists.succeeded();
        Calls::new(&self.pods, slow, is_listed)
    }
}

pub(crate) fn check(evidence: &Evidence) -> Vec<Finding> {
    let mut findings: Vec<Finding> = evidence.unusable.iter().map(unusable).collect();
    if findings.iter().any(|finding| finding.code == NOT_EXAMINED) {
        // Returns only `not_examined`: other findings would follow from the missing permission, not from the node.
        return findings;
    }
    // The generator's findings about lists are dropped: lists are examined more closely here.
    let is_examined = |f: &Finding| ["list_slow", "list_failed"].contains(&f.code);
    findings.extend(generator::check(&evidence.stream));
    findings.retain(|f| !is_examined(f));
    findings.extend(check_conditions(&evidence.conditions));
    findings.extend(lists::check(&evidence.lists, &evidence.pods));
    findings.extend(statuses::check(&evidence.statuses, &evidence.pods));
    findings.extend(pods::check(&evidence.pods));
    findings.extend(evidence.wall_clock.check());
    findings
}

pub(crate) const NOT_EXAMINED: &str = "not_examined";
/// The codes of the findings of [`unusable`]. Once the runtime answers, an earlier finding with such a code is over.
pub(super) const UNUSABLE: [&str; 3] = ["runtime_silent", "runtime_unreachable", NOT_EXAMINED];

pub(crate) fn unusable(unusable: &Unusable) -> Finding {
    let (code, summary, next) = match (unusable.denied, unusable.silent) {
        (true, _) => (
            NOT_EXAMINED,
            "the runtime was not examined: this user may not connect to it",
            "Run pleg doctor as root.",
        ),
        (false, true) => {
            let next = next_step("runtime_silent");
            ("runtime_silent", "the runtime does not answer", next)
        }
        (false, false) => (
            "runtime_unreachable",
            "the runtime cannot be reached",
            "Start the runtime, or correct the endpoint (-r unix:///path).",
        ),
    };
    Finding::new(code, summary, next).because(&unusable.why)
}

/// The median: of two values in the middle, the lower one.
fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    quantile(values, 0.5)
}

fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> Option<f64> {
    let values = values.into_iter().sorted_by(f64::total_cmp).collect_vec();
    let last = values.len().checked_sub(1)?;
    values.get((last as f64 * share) as usize).copied()
}

#[cfg(test)]
mod tests;
