//! The JSON objects of `-o json`, one per line. Field names are stable.

use std::io::{self, Write};

use pleg::core::{ContainerStatus, PodView, SandboxStatus, WallTime};
use pleg::runtime::clock::Clock;
use serde::Serialize;
use serde_with::skip_serializing_none;

use crate::record::Pod;
use crate::text::SafeJson;

/// Writes an object and a newline.
pub(crate) fn line(out: &mut impl Write, object: &impl Serialize) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, SafeJson);
    object.serialize(&mut serializer)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Converts a time to UTC, in microseconds.
pub(crate) fn utc(time: WallTime) -> jiff::Timestamp {
    let micros = time.as_nanos().div_euclid(1000);
    jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

/// A pod with its sandboxes and containers.
#[skip_serializing_none]
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodObject<'a> {
    pod: Pod,
    ips: Vec<&'a str>,
    as_of: Option<jiff::Timestamp>,
    error: Option<String>,
    sandboxes: Vec<Sandbox<'a>>,
    containers: Vec<Container<'a>>,
}

#[skip_serializing_none]
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Sandbox<'a> {
    id: &'a str,
    state: &'static str,
    attempt: u32,
    created_at: Option<jiff::Timestamp>,
}

#[skip_serializing_none]
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Container<'a> {
    id: &'a str,
    name: &'a str,
    state: &'static str,
    attempt: u32,
    active: bool,
    exit_code: Option<i32>,
    reason: Option<&'a str>,
    image: &'a str,
    created_at: Option<jiff::Timestamp>,
    started_at: Option<jiff::Timestamp>,
    finished_at: Option<jiff::Timestamp>,
}

impl<'a> PodObject<'a> {
    pub(crate) fn new(view: &'a PodView, clock: Clock) -> Self {
        let status = &*view.status;
        let as_of = view
            .as_of
            .map(|at| clock.wall().before(clock.now().since(at)));
        Self {
            pod: status.into(),
            ips: status.ips.iter().map(|ip| &**ip).collect(),
            as_of: as_of.map(utc),
            error: status.error.as_ref().map(ToString::to_string),
            sandboxes: status.sandboxes.iter().map(Sandbox::from).collect(),
            containers: status.containers.iter().map(Container::from).collect(),
        }
    }
}

impl<'a> From<&'a SandboxStatus> for Sandbox<'a> {
    fn from(s: &'a SandboxStatus) -> Self {
        Self {
            id: s.id.as_str(),
            state: s.state.as_str(),
            attempt: s.attempt,
            created_at: s.created_at.map(utc),
        }
    }
}

impl<'a> From<&'a ContainerStatus> for Container<'a> {
    fn from(c: &'a ContainerStatus) -> Self {
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
            created_at: c.created_at.map(utc),
            started_at: d.started_at.map(utc),
            finished_at: d.finished_at.map(utc),
        }
    }
}
