//! Health: what is wrong, since when, and what to do. The relist period and the event stream.

use pleg::core::{Degraded, Instant, NotReady, StreamState};
use serde::{Deserialize, Serialize};

use super::long;
use super::model::Inputs;
use crate::health::sentence;

/// The code of the reason that an agent does not answer. Only its clients see it.
const AGENT_SILENT: &str = "agent_silent";

/// Whether the pods of the node are known, and what is wrong.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HealthView {
    pub(crate) ready: bool,
    /// The reason for not being ready comes first.
    pub(crate) reasons: Vec<Reason>,
    /// How many pods have calls that hang or fail.
    pub(crate) pods: usize,
    /// For how long the runtime has answered no call, if it does not answer now: what is shown is as
    /// old.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) no_answer_seconds: Option<f64>,
}

/// A reason for not being ready, or a degraded reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Reason {
    /// As in `docs/runbook.md`, which has a section of this name.
    pub(crate) code: String,
    /// The node is not ready because of it. Otherwise it is degraded.
    pub(crate) not_ready: bool,
    pub(crate) message: String,
    /// How long it has lasted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<f64>,
    /// What to do, in short.
    pub(crate) action: String,
    /// Where the runbook explains it. Empty if it does not.
    pub(crate) runbook: String,
}

impl Reason {
    /// An agent does not answer its client.
    pub(crate) fn silent_agent(error: &str, seconds: f64) -> Self {
        Self {
            runbook: String::new(),
            ..Self::new(AGENT_SILENT, false, error, Some(seconds))
        }
    }

    fn new(code: &str, not_ready: bool, message: &str, seconds: Option<f64>) -> Self {
        Self {
            code: code.to_owned(),
            not_ready,
            message: long(message).unwrap_or_default(),
            seconds,
            action: action(code).to_owned(),
            runbook: format!("docs/runbook.md#{code}"),
        }
    }
}

/// What to do, in short. The runbook has more.
fn action(code: &str) -> &'static str {
    match code {
        "never_listed" => "start the runtime, or set its socket with -r; run as root",
        "stale" => "do what the other reasons say",
        "stalled" => "check CPU pressure; restart this process and report the bug",
        "closed" => "restart this process and report the bug, with the log",
        "stream_down" => {
            "nothing if the runtime restarts; CRI-O needs enable_pod_events = true; containerd needs 1.7"
        }
        "stream_lossy" => {
            "nothing is missed, but changes are found late, by lists; find the other subscriber of events (ss -xp); \
             it may be the kubelet: then use --events auto here"
        }
        "backlog" => "find what creates and ends containers at this rate; raise the CPU limit",
        "list_slow" => "remove dead containers and sandboxes; check I/O pressure",
        "list_failed" => "check that the runtime runs and that crictl pods works",
        "runtime_silent" => {
            "see the state of the runtime's process (ps): T: send SIGCONT; D: a disk or mount hangs; else keep its \
             stacks (SIGUSR1 for containerd), then restart it"
        }
        "pods_hung" => "send SIGCONT to a stopped shim of the pod; repair a mount that hangs",
        "pods_failing" => {
            "see the runtime's log for the id; remove a damaged pod with crictl rmp -f"
        }
        "unacknowledged" => "find out why this part of the kubelet does not read ends",
        AGENT_SILENT => "check that the agent runs and listens there",
        _ => "see the runbook",
    }
}

/// What may be the cause of others comes first.
const fn rank(reason: &Degraded) -> u8 {
    match reason {
        Degraded::RuntimeSilent { .. } => 0,
        Degraded::ListFailed { .. } => 1,
        Degraded::ListSlow { .. } => 2,
        Degraded::PodsHung { .. } => 3,
        Degraded::PodsFailing { .. } => 4,
        Degraded::StreamLossy { .. } => 5,
        Degraded::StreamDown { .. } => 6,
        _ => 7,
    }
}

impl HealthView {
    pub(super) fn new(inputs: &Inputs<'_>) -> Self {
        let not_ready = inputs.ready.as_ref().err();
        let degraded = inputs.health.degraded(inputs.now);
        let lasts = |since: Instant| inputs.now.since(since).as_secs_f64();
        let mut reasons = Vec::new();
        if let Some(why) = not_ready {
            reasons.push(Reason::new(why.as_str(), true, &why.to_string(), None));
        }
        let mut causes: Vec<_> = degraded.iter().collect();
        causes.sort_by_key(|reason| rank(reason));
        reasons.extend(causes.into_iter().map(|reason| {
            let message = sentence(reason, inputs.health);
            let seconds = reason.since().map(lasts);
            Reason::new(reason.as_str(), false, &message, seconds)
        }));
        let unanswered = degraded.iter().any(|reason| {
            matches!(
                reason,
                Degraded::RuntimeSilent { .. } | Degraded::ListFailed { .. }
            )
        });
        let unanswered = unanswered || matches!(not_ready, Some(NotReady::Stale { .. }));
        Self {
            ready: not_ready.is_none(),
            reasons,
            pods: inputs.problems.len(),
            no_answer_seconds: unanswered.then(|| lasts(inputs.calls.unanswered_since())),
        }
    }
}

/// Complete lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Relist {
    pub(crate) period_seconds: f64,
    /// How long ago the last complete list began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_seconds: Option<f64>,
    /// For how long the present list has been running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) in_flight_seconds: Option<f64>,
}

impl Relist {
    pub(super) fn new(inputs: &Inputs<'_>) -> Self {
        let lasts = |since: Instant| inputs.now.since(since).as_secs_f64();
        Self {
            period_seconds: inputs.health.period.as_secs_f64(),
            last_seconds: inputs.health.last_list.map(lasts),
            in_flight_seconds: inputs.health.list_in_flight.map(lasts),
        }
    }
}

/// The event stream.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct StreamView {
    /// `polling`, `starting`, `unconfirmed`, `confirmed`, `losing` or `down`; `silent` as long as the
    /// runtime answers no call: nobody knows then whether events would arrive.
    pub(crate) state: String,
    /// For how long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<f64>,
    /// Why there is no stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Events that it did not deliver, since the start.
    pub(crate) missed: u64,
    /// Of the last ten minutes: how many events should have arrived, and how many of them did not.
    pub(crate) recently_expected: u64,
    pub(crate) recently_missed: u64,
}

impl StreamView {
    pub(super) fn new(inputs: &Inputs<'_>) -> Self {
        let health = inputs.health;
        let degraded = health.degraded(inputs.now);
        let has = |code: &str| degraded.iter().any(|reason| reason.as_str() == code);
        let (state, since, reason) = match (&health.stream, health.stream.declined()) {
            (_, Some(reason)) => ("polling", None, Some(reason.to_owned())),
            (StreamState::Off, None) => ("polling", None, None),
            (StreamState::Starting { since }, None) => ("starting", Some(since), None),
            (StreamState::Down { since, why, .. }, None) => {
                ("down", Some(since), Some(why.to_string()))
            }
            (
                StreamState::Subscribed {
                    since, confirmed, ..
                },
                None,
            ) => {
                let state = match confirmed {
                    _ if has("runtime_silent") => "silent",
                    _ if has("stream_lossy") => "losing",
                    true => "confirmed",
                    false => "unconfirmed",
                };
                (state, Some(since), None)
            }
            (_, None) => ("unknown", None, None),
        };
        Self {
            state: state.to_owned(),
            seconds: since.map(|&since| inputs.now.since(since).as_secs_f64()),
            reason: reason.as_deref().and_then(long),
            missed: health.missed,
            recently_expected: health.loss.expected,
            recently_missed: health.loss.missed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_says_what_to_do() {
        let unknown = action("no such code");
        for code in [&NotReady::CODES[..], &Degraded::CODES, &[AGENT_SILENT]].concat() {
            assert_ne!(action(code), unknown, "{code}");
        }
    }
}
