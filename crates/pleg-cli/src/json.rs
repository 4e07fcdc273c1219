//! The JSON objects of `-o json`, one per line. Field names are stable.

use std::io::{self, Write as _};

use pleg::core::{ContainerStatus, PodView, SandboxStatus, WallTime};
use pleg::runtime::clock::Clock;
use serde::Serialize;
use serde_json::{Value, json};

use crate::record::Pod;
use crate::text::safe_json;

pub(crate) fn line(object: &impl Serialize) -> Vec<u8> {
    // Writing to memory does not fail.
    let json = serde_json::to_string(object).unwrap_or_default();
    (safe_json(&json) + "\n").into_owned().into()
}

pub(crate) fn print(object: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(&line(object))?;
    out.flush()
}

pub(crate) fn utc(time: WallTime) -> jiff::Timestamp {
    let micros = time.as_nanos().div_euclid(1000);
    jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

/// Removes the fields of an object whose value is null: they do not apply.
pub(crate) fn applicable(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    object
}

pub(crate) fn pod(view: &PodView, clock: Clock) -> Value {
    let status = &*view.status;
    let sandboxes = status.sandboxes.iter().map(sandbox);
    let containers = status.containers.iter().map(container);
    applicable(json!({
        "pod": Pod::from(status),
        "ips": status.ips.iter().map(|ip| &**ip).collect::<Vec<_>>(),
        "asOf": view.as_of.map(|at| utc(clock.wall_at(at))),
        "error": status.error.as_ref().map(ToString::to_string),
        "sandboxes": sandboxes.collect::<Vec<_>>(),
        "containers": containers.collect::<Vec<_>>(),
    }))
}

fn sandbox(sandbox: &SandboxStatus) -> Value {
    applicable(json!({
        "id": sandbox.id.as_str(),
        "state": sandbox.state.as_str(),
        "attempt": sandbox.attempt,
        "createdAt": sandbox.created_at.map(utc),
    }))
}

fn container(container: &ContainerStatus) -> Value {
    let details = &container.details;
    applicable(json!({
        "id": container.id.as_str(),
        "name": &*container.name,
        "state": container.state.as_str(),
        "attempt": container.attempt,
        "active": container.active,
        "exitCode": details.exit_code,
        "reason": Some(&*details.reason).filter(|reason| !reason.is_empty()),
        "image": &*details.image,
        "createdAt": container.created_at.map(utc),
        "startedAt": details.started_at.map(utc),
        "finishedAt": details.finished_at.map(utc),
    }))
}
