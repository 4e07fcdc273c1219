//! The records of `pleg watch` and of the agent: lifecycle events and changes of health. JSON field names are stable.

use pleg::core::{LifecycleType, PodLifecycleEvent, PodName, PodStatus, PodUid, WallTime};
use pleg::runtime::clock::Clock;
use pleg::{Delivery, Pleg};
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::json::utc;
use crate::text::{counted, exit};

/// The type of the record that follows the initial events.
pub(crate) const SYNCED: &str = "Synced";
/// The type of the record that reports that records were lost, because a reader of the records was too slow.
pub(crate) const LAGGED: &str = "Lagged";
pub(crate) const DEGRADED: &str = "Degraded";
pub(crate) const RECOVERED: &str = "Recovered";
pub(crate) const NOT_READY: &str = "NotReady";
pub(crate) const READY: &str = "Ready";

/// A lifecycle event, or a change of health. A field that does not apply is absent.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Record {
    /// The number that the agent gave the record.
    pub(crate) seq: Option<u64>,
    /// The time at which the change was detected: UTC, RFC 3339.
    pub(crate) time: String,
    pub(crate) r#type: String,
    pub(crate) pod: Option<Pod>,
    pub(crate) id: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) source: Option<String>,
    /// True if the record is not a change, but shows what existed when this command started.
    pub(crate) initial: Option<bool>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) reason: Option<String>,
    pub(crate) latency_ms: Option<f64>,
    /// Only with the type `Synced`: the number of pods on the node.
    pub(crate) pods: Option<usize>,
    /// With `Lagged`: the number of lost exits and removals, or, with `pleg watch --agent`, of lost records.
    pub(crate) missed: Option<u64>,
    /// The code of a change of health, as in the runbook.
    pub(crate) code: Option<String>,
    pub(crate) message: Option<String>,
    /// For a change of health, the time for which the trouble has lasted.
    pub(crate) seconds: Option<f64>,
}

/// Pods are ordered by namespace and name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Pod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

impl Pod {
    pub(crate) fn new(uid: &PodUid, namespace: &str, name: &str) -> Self {
        Self {
            uid: uid.to_string(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The pod as `namespace/name`, or its uid if the names are not known.
    pub(crate) fn shown(&self) -> String {
        match self.name.is_empty() {
            true => self.uid.clone(),
            false => format!("{}/{}", self.namespace, self.name),
        }
    }
}

impl From<&PodStatus> for Pod {
    fn from(pod: &PodStatus) -> Self {
        Self::new(&pod.uid, &pod.namespace, &pod.name)
    }
}

impl From<&PodName> for Pod {
    fn from(pod: &PodName) -> Self {
        Self::new(&pod.uid, &pod.namespace, &pod.name)
    }
}

impl Record {
    pub(crate) fn new(kind: &str, at: WallTime) -> Self {
        Self {
            time: utc(at).to_string(),
            r#type: kind.to_owned(),
            ..Self::default()
        }
    }

    /// The record of an event. It has no latency if the change precedes `started`, or if the runtime's clock is ahead.
    fn event(event: &PodLifecycleEvent, clock: Clock, started: WallTime) -> Self {
        let subject = event.subject.as_ref();
        let detected = clock.wall_at(event.detected);
        // `ContainerChanged` may report an exit code that became known late, but has the time of the exit: no latency.
        let is_late = event.event == LifecycleType::ContainerChanged;
        let happened = event.happened_at.filter(|_| !is_late);
        let happened = happened.filter(|at| (started..=detected).contains(at));
        let text = |text: &str| Some(text).filter(|t| !t.is_empty()).map(str::to_owned);
        Self {
            pod: Some(Pod::new(&event.uid, &event.namespace, &event.pod_name)),
            id: subject.map(|s| s.id.to_string()),
            kind: subject.map(|s| s.kind.to_string()),
            name: subject.and_then(|s| text(&s.name)),
            source: Some(event.source.as_str().to_owned()),
            initial: Some(event.initial),
            exit_code: subject.and_then(|s| s.exit_code),
            reason: subject.and_then(|s| text(&s.reason)),
            latency_ms: happened.map(|at| (detected.nanos_since(at) / 1000) as f64 / 1000.0),
            ..Self::new(event.event.as_str(), detected)
        }
    }

    pub(crate) fn delivery(delivery: &Delivery, pleg: &Pleg, started: WallTime) -> Option<Self> {
        let at = pleg.clock().wall();
        match delivery {
            Delivery::Event(event) => Some(Self::event(event, pleg.clock(), started)),
            Delivery::Synced => Some(Self {
                pods: Some(pleg.snapshot().len()),
                ..Self::new(SYNCED, at)
            }),
            Delivery::Lagged { missed } => Some(Self::lagged(at, *missed, "exits and removals")),
            _ => None,
        }
    }

    pub(crate) fn lagged(at: WallTime, missed: u64, what: &str) -> Self {
        let message = format!("the reader was too slow: {missed} {what} are not shown");
        Self {
            missed: Some(missed),
            message: Some(message),
            ..Self::new(LAGGED, at)
        }
    }

    pub(crate) fn health(kind: &str, at: WallTime, code: &str, message: String) -> Self {
        Self {
            code: Some(code.to_owned()),
            message: Some(message),
            ..Self::new(kind, at)
        }
    }

    /// The text of a record that is no event; it begins with the name of the pod if `with_pod` is set.
    pub(crate) fn text(&self, with_pod: bool) -> String {
        let pod = self.pod.as_ref().filter(|_| with_pod).map(Pod::shown);
        let pods = self.pods.map(|n| counted(n, "pod"));
        let parts = [pod, self.code.clone(), self.message.clone(), pods];
        parts.into_iter().flatten().collect::<Vec<_>>().join(": ")
    }

    pub(crate) fn exit(&self) -> String {
        let reason = self.reason.as_deref().unwrap_or_default();
        exit(self.exit_code, "", reason)
    }

    pub(crate) const fn is_event(&self) -> bool {
        self.source.is_some()
    }

    pub(crate) fn is_failure(&self) -> bool {
        self.r#type == "ContainerDied"
            && self.kind.as_deref() == Some("container")
            && self.exit_code != Some(0)
    }
}

/// The first line of `/debug/events`: which records follow, and which are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    pub(crate) time: jiff::Timestamp,
    /// The time of the agent's start.
    pub(crate) agent: String,
    /// The time since which the agent has kept every record.
    pub(crate) complete_since: jiff::Timestamp,
    /// How many records after the requested number are missing, because the agent has dropped them.
    pub(crate) missed: u64,
    /// The number of the last record of this page. The next request asks for records after this number.
    pub(crate) last: u64,
    pub(crate) more: bool,
}
