//! Pods in words: `sandbox-1 ready, a running, b-2 exited 1`. Newer sandboxes and containers precede older ones.
//!
//! A container has a name, an attempt (0 if it is left out), a state and its exit code. Then may come `missing` (its
//! status is not found), `failing` (its status call fails), `in=1` (its sandbox; by default `sandbox-0`), `hash=IMAGE`
//! (its hash is that of a container with this image), `count=`, `grace=` (annotations) and `memory=` (its limit).
//! `sandbox-0` is ready, unless the words name a sandbox or `no sandbox`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use pleg::core::{
    CallError, CallErrorKind, ContainerDetails, Labels, Resources, SandboxState, SandboxStatus,
};
use pleg::runtime::fake;
use pleg::{ContainerState, ContainerStatus, Instant, PodStatus};
use serde_json::json;

use crate::container_hash;

/// The cells of each row of a table, without its comments.
pub(crate) fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = table.lines().map(str::trim);
    let rows = rows.filter(|row| !row.is_empty() && !row.starts_with('#'));
    rows.map(|row| row.split('|').map(str::trim).collect())
}

pub(crate) fn at(seconds: u32) -> Instant {
    Instant::from_origin(Duration::from_secs(1) * seconds)
}

/// The restart policy, and containers in their order: `i` are init containers, `s` sidecars, others regular.
pub(crate) fn spec(words: &str) -> PodSpec {
    let (policy, names) = words.split_once(' ').unwrap_or((words, ""));
    let of = |is_init: bool| {
        let names = names.split_terminator(' ');
        let names = names.filter(|name| name.starts_with(['i', 's']) == is_init);
        let own = |name: &str| name.starts_with('s').then_some("Always");
        let container = |name| json!({"name": name, "image": "h", "restartPolicy": own(name)});
        names.map(container).collect::<Vec<_>>()
    };
    let (init, regular) = (of(true), of(false));
    let spec = json!({"restartPolicy": policy, "initContainers": init, "containers": regular});
    serde_json::from_value(spec).unwrap()
}

pub(crate) fn pod(uid: &str, words: &str) -> PodStatus {
    let (mut sandboxes, mut containers) = (Vec::new(), Vec::new());
    for item in words.split(", ").filter(|item| !item.is_empty()) {
        match item.strip_prefix("sandbox-") {
            Some(sandbox) => sandboxes.push(sandbox_of(sandbox)),
            None if item == "no sandbox" => {}
            None => containers.push(container_of(item)),
        }
    }
    if sandboxes.is_empty() && !words.starts_with("no sandbox") {
        sandboxes.push(sandbox_of("0 ready"));
    }
    let mut pod = PodStatus::nothing(uid.into());
    (pod.sandboxes, pod.containers) = (sandboxes.into(), containers.into());
    pod
}

fn error(call: &'static str) -> Option<Arc<CallError>> {
    Some(Arc::new(fake::error(call, CallErrorKind::Failed)))
}

fn sandbox_of(words: &str) -> SandboxStatus {
    let mut words = words.split(' ');
    let attempt = words.next().unwrap_or_default();
    let state = match words.next() {
        Some("ready") => SandboxState::Ready,
        Some("ended") => SandboxState::NotReady,
        Some("unknown") => SandboxState::Unknown { last_ready: None },
        other => panic!("{other:?} is no state of a sandbox"),
    };
    let mut sandbox = SandboxStatus::new(format!("sandbox-{attempt}"), state);
    sandbox.attempt = attempt.parse().unwrap();
    for word in words {
        match word {
            "missing" => sandbox.status_missing = true,
            "failing" => sandbox.error = error("PodSandboxStatus"),
            other => panic!("{other:?}"),
        }
    }
    sandbox
}

fn container_of(item: &str) -> ContainerStatus {
    let mut words = item.split(' ');
    let id = words.next().unwrap_or_default();
    let (name, attempt) = id.split_once('-').unwrap_or((id, "0"));
    let state = match words.next() {
        Some("created") => ContainerState::Created,
        Some("running") => ContainerState::Running,
        Some("exited") => ContainerState::Exited,
        Some("unknown") => ContainerState::Unknown { last: None },
        other => panic!("{other:?} is no state of a container: {item}"),
    };
    let mut container = ContainerStatus::new(format!("{name}-{attempt}"), name, state);
    container.attempt = attempt.parse().unwrap();
    container.sandbox = Some("sandbox-0".into());
    let mut details = ContainerDetails::default();
    for word in words {
        let mut annotate = |key: &str, value: &str| {
            details.annotations = Labels::from([(&*format!("io.kubernetes.{key}"), value)]);
        };
        match word.split_once('=').unwrap_or((word, "")) {
            ("missing", _) => container.status_missing = true,
            ("failing", _) => container.error = error("ContainerStatus"),
            ("in", attempt) => container.sandbox = Some(format!("sandbox-{attempt}").into()),
            ("hash", image) => {
                let mut of_image = Container::default();
                (of_image.name, of_image.image) = (name.to_owned(), Some(image.to_owned()));
                annotate("container.hash", &container_hash(&of_image));
            }
            ("count", count) => annotate("container.restartCount", count),
            ("grace", seconds) => annotate("pod.terminationGracePeriod", seconds),
            ("memory", bytes) => {
                let mut resources = Resources::default();
                (resources.memory_limit, resources.cpu_shares) = (bytes.parse().unwrap(), 2);
                details.resources = Some(Arc::new(resources));
            }
            (code, _) => details.exit_code = Some(code.parse().unwrap()),
        }
    }
    container.details = Arc::new(details);
    container
}
