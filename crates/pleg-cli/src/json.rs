//! The JSON objects of `-o json`, one per line. Field names are stable.

use std::io::{self, Write};

use pleg::core::{ContainerStatus, PodView, SandboxStatus, WallTime};
use pleg::runtime::clock::Clock;
use serde::Serialize;

use crate::text::SafeJson;

/// Writes an object and a newline.
pub(crate) fn line(out: &mut impl Write, object: &impl Serialize) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, SafeJson);
    object.serialize(&mut serializer)?;
    out.write_all(b"\n")?;
    out.flush()
}

#[derive(Debug, Serialize)]
struct Pod<'a> {
    uid: &'a str,
    namespace: &'a str,
    name: &'a str,
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
