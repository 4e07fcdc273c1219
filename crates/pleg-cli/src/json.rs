//! The JSON objects of `-o json`, one per line. Field names are stable.

use std::io::{self, Write};

use pleg::core::{ContainerStatus, PodLifecycleEvent, PodView, SandboxStatus, WallTime};
use pleg::runtime::clock::Clock;
use serde::Serialize;

use crate::text::SafeJson;

/// The type of the record that follows the initial events.
pub(crate) const SYNCED: &str = "Synced";

/// Writes an object and a newline.
pub(crate) fn line(out: &mut impl Write, object: &impl Serialize) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, SafeJson);
    object.serialize(&mut serializer)?;
    out.write_all(b"\n")?;
    out.flush()
}

#[derive(Debug, Serialize)]
pub(crate) struct Pod<'a> {
    uid: &'a str,
    namespace: &'a str,
    name: &'a str,
}

/// A lifecycle event.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event<'a> {
    time: String,
    r#type: &'static str,
    pod: Pod<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    source: &'static str,
    /// It is not a change: what the pod was when this command started.
    initial: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_ms: Option<f64>,
}

impl<'a> Event<'a> {
    pub(crate) fn new(event: &'a PodLifecycleEvent, at: &Detection) -> Self {
        let subject = event.subject.as_ref();
        Self {
            time: at.utc.to_string(),
            r#type: event.event.as_str(),
            pod: Pod {
                uid: event.uid.as_str(),
                namespace: &event.namespace,
                name: &event.pod_name,
            },
            id: subject.map(|s| s.id.as_str()),
            kind: subject.map(|s| s.kind.as_str()),
            name: subject.map(|s| &*s.name).filter(|n| !n.is_empty()),
            source: event.source.as_str(),
            initial: event.initial,
            exit_code: subject.and_then(|s| s.exit_code),
            reason: subject.map(|s| &*s.reason).filter(|r| !r.is_empty()),
            latency_ms: at.latency_ms,
        }
    }
}

/// The record that follows the initial events. Its type is `Synced`.
#[derive(Debug, Serialize)]
pub(crate) struct Synced {
    time: String,
    r#type: &'static str,
    /// The number of pods on the node.
    pods: usize,
}

impl Synced {
    pub(crate) fn new(at: WallTime, pods: usize) -> Self {
        Self {
            time: utc(at).to_string(),
            r#type: SYNCED,
            pods,
        }
    }
}

/// When a change was detected, and how long it took since the change.
#[derive(Debug)]
pub(crate) struct Detection {
    pub(crate) utc: jiff::Timestamp,
    pub(crate) latency_ms: Option<f64>,
}

impl Detection {
    /// There is no latency for a change from before `started`, or if the runtime's clock is ahead of
    /// the local clock.
    pub(crate) fn new(event: &PodLifecycleEvent, clock: Clock, started: WallTime) -> Self {
        let ago = clock.now().since(event.detected);
        let detected = clock.wall().before(ago);
        let latency_ms = event
            .happened_at
            .filter(|&at| at >= started && at <= detected)
            .map(|at| (detected.nanos_since(at) / 1000) as f64 / 1000.0);
        Self {
            utc: utc(detected),
            latency_ms,
        }
    }
}

/// Converts a time to UTC, in microseconds.
pub(crate) fn utc(time: WallTime) -> jiff::Timestamp {
    let micros = time.as_nanos().div_euclid(1000);
    jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

/// A pod with its sandboxes and containers.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodObject<'a> {
    pod: Pod<'a>,
    ips: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    sandboxes: Vec<Sandbox<'a>>,
    containers: Vec<Container<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sandbox<'a> {
    id: &'a str,
    state: &'static str,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Container<'a> {
    id: &'a str,
    name: &'a str,
    state: &'static str,
    attempt: u32,
    active: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    image: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<String>,
}

impl<'a> PodObject<'a> {
    pub(crate) fn new(view: &'a PodView, clock: Clock) -> Self {
        let status = &view.status;
        let as_of = view
            .as_of
            .map(|at| clock.wall().before(clock.now().since(at)));
        Self {
            pod: Pod {
                uid: status.uid.as_str(),
                namespace: &status.namespace,
                name: &status.name,
            },
            ips: status.ips.iter().map(|ip| &**ip).collect(),
            as_of: as_of.map(|at| utc(at).to_string()),
            error: status.error.as_ref().map(ToString::to_string),
            sandboxes: status.sandboxes.iter().map(Sandbox::new).collect(),
            containers: status.containers.iter().map(Container::new).collect(),
        }
    }
}

impl<'a> Sandbox<'a> {
    fn new(s: &'a SandboxStatus) -> Self {
        Self {
            id: s.id.as_str(),
            state: s.state.as_str(),
            attempt: s.attempt,
            created_at: time(s.created_at),
        }
    }
}

impl<'a> Container<'a> {
    fn new(c: &'a ContainerStatus) -> Self {
        let d = &c.details;
        Self {
            id: c.id.as_str(),
            name: &c.name,
            state: c.state.as_str(),
            attempt: c.attempt,
            active: c.active,
            exit_code: d.exit_code,
            reason: Some(&*d.reason).filter(|r| !r.is_empty()),
            image: &d.image,
            created_at: time(c.created_at),
            started_at: time(d.started_at),
            finished_at: time(d.finished_at),
        }
    }
}

fn time(at: Option<WallTime>) -> Option<String> {
    at.map(|at| utc(at).to_string())
}
