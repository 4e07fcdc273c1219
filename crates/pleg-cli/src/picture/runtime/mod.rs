//! What the runtime shows: its calls, its event stream, its pods, its own conditions.
//!
//! A generator reads the node as an agent does, and its calls are measured. Beside it the lists of a
//! kubelet are made ([`lists`]). What is collected is plain data, so [`check`] finds the same in a recording.

mod conditions;
mod lists;
mod oddities;
mod pods;
mod session;
mod statuses;
mod wall_clock;

use std::fmt;

use pleg::core::CallError;
use pleg_cri::ConnectError;
use serde::{Deserialize, Serialize};

pub(crate) use self::conditions::{Conditions, check as check_conditions};
pub(crate) use self::lists::Lists;
pub(crate) use self::pods::{Pod, Pods, check as check_pods};
pub(crate) use self::session::collect;
pub(crate) use self::statuses::{Problem, Statuses, check_problems};
pub(crate) use self::wall_clock::WallClock;
use super::finding::Finding;
use super::generator::{self, Generator};
use super::host::Calls;
use super::kinds;
use crate::text::clip;

/// How many characters of an error's message are recorded.
const MOST_MESSAGE: usize = 300;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Evidence {
    pub(crate) endpoint: String,
    /// It is the embedded simulated runtime.
    pub(crate) simulated: bool,
    /// Empty if it did not answer.
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
    /// A process listens and does not answer.
    pub(crate) silent: bool,
    /// This process has no permission to ask it.
    pub(crate) denied: bool,
    pub(crate) why: String,
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

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Failure {
    /// As `CallErrorKind::as_str`.
    pub(crate) kind: String,
    /// The runtime's own words. Empty in a redacted recording.
    pub(crate) message: String,
}

impl From<&CallError> for Failure {
    fn from(error: &CallError) -> Self {
        Self {
            kind: error.kind.as_str().to_owned(),
            message: clip(&error.message, MOST_MESSAGE).into_owned(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.kind, &*self.message) {
            (kind, "") => f.write_str(kind),
            (kind, message) => write!(f, "{kind}: {message}"),
        }
    }
}

impl Evidence {
    /// The results of the calls, as far as they decide what the host's evidence means.
    pub(crate) fn calls(&self) -> Calls<'_> {
        let silent = match &self.unusable {
            Some(unusable) => unusable.silent,
            None => self.stream.has(kinds::RUNTIME_SILENT.0),
        };
        let slow = silent || self.lists.are_slow() || self.statuses.are_slow();
        let is_listed = self.unusable.is_none() && self.lists.succeeded();
        Calls::new(&self.pods, slow, is_listed)
    }
}

pub(crate) fn check(evidence: &Evidence) -> Vec<Finding> {
    let unusable: Vec<Finding> = evidence.unusable.iter().map(unusable).collect();
    if unusable.iter().any(|finding| finding.code == NOT_EXAMINED) {
        // What failed because of that says nothing of the node.
        return unusable;
    }
    // What is examined here more closely than by the generator.
    let is_examined = |code| match code {
        "list_slow" | "list_failed" => true,
        "runtime_silent" => !unusable.is_empty(),
        _ => false,
    };
    let mut findings = generator::check(&evidence.stream);
    findings.retain(|finding| !is_examined(finding.code));
    findings.splice(0..0, unusable);
    findings.extend(conditions::check(&evidence.conditions));
    findings.extend(lists::check(&evidence.lists, &evidence.pods));
    findings.extend(statuses::check(&evidence.statuses, &evidence.pods));
    findings.extend(pods::check(&evidence.pods));
    findings.extend(wall_clock::check(&evidence.wall_clock));
    findings
}

/// The finding that there is nothing to say of the node.
pub(crate) const NOT_EXAMINED: &str = kinds::NOT_EXAMINED.0;
/// The findings that are over when the runtime answers.
pub(super) const UNUSABLE: [&str; 3] =
    [kinds::RUNTIME_SILENT.0, kinds::UNREACHABLE.0, NOT_EXAMINED];

pub(crate) fn unusable(unusable: &Unusable) -> Finding {
    let found = match (unusable.denied, unusable.silent) {
        (true, _) => kinds::NOT_EXAMINED.found(
            "the runtime was not examined: this user may not ask it",
            "Run pleg doctor as root.",
        ),
        (false, true) => {
            kinds::RUNTIME_SILENT.found("the runtime does not answer", generator::SILENT_NEXT)
        }
        (false, false) => kinds::UNREACHABLE.found(
            "the runtime cannot be reached",
            "Start the runtime, or correct the endpoint (-r unix:///path).",
        ),
    };
    found.because(&unusable.why)
}

#[cfg(test)]
mod tests;
