//! Bytes as a runtime might send them: decoded, converted and passed to the reconciler as `pleg-cri`
//! does.
//!
//! The input is a sequence of messages, each with a length prefix of two bytes (little endian). A
//! truncated message is shortened. gRPC's own framing is not tested here.

use std::time::Duration;

use pleg_core::{
    Arrival, CallError, CallErrorKind, Report, RuntimeEvent, Settings, StreamChange, StreamEnd,
};
use pleg_cri::convert;
use pleg_cri::v1;
use prost::Message;

use crate::harness::{Harness, RequestedRead};

const MS: Duration = Duration::from_millis(1);
/// Longer inputs show nothing new.
const MOST_MESSAGES: usize = 64;

/// Messages of the event stream. One that cannot be decoded ends the stream, and the next one arrives
/// on a new stream.
pub fn event_bytes(data: &[u8]) {
    let exists = node();
    let mut harness = Harness::new(Settings::default());
    subscribe(&mut harness);
    harness.settle(&exists, MS);
    for message in messages(data) {
        harness.pass(5 * MS);
        match v1::ContainerEventResponse::decode(message) {
            Ok(message) => {
                // The client drops events without an id.
                if let Some(event) = convert::event(message) {
                    arrive(&mut harness, event);
                }
            }
            Err(error) => {
                let (at, why) = (harness.now(), error.to_string());
                let why = CallError::new("GetContainerEvents", CallErrorKind::Malformed, why);
                let ended = StreamChange::Ended {
                    at,
                    why: StreamEnd::Ended(Some(why)),
                    retry_at: at,
                };
                harness.input(|reconciler, now| reconciler.handle_stream(now, ended.clone()));
                subscribe(&mut harness);
            }
        }
    }
    harness.settle(&exists, Duration::from_secs(200));
}

/// Lists: responses of sandboxes and of containers in turn. The last one stays true.
pub fn list_bytes(data: &[u8]) {
    let mut harness = Harness::new(Settings::default());
    subscribe(&mut harness);
    let mut exists = Vec::new();
    let mut messages = messages(data);
    while let Some(sandboxes) = messages.next() {
        let read = rows(sandboxes, messages.next().unwrap_or_default());
        if let Ok(rows) = &read {
            exists.clone_from(rows);
        }
        // A list is always due sooner or later; other reads are answered from the last one.
        for _ in 0..1000 {
            match harness.reads.pop_front() {
                Some(RequestedRead::List(ticket, began)) => {
                    let failed = |e: prost::DecodeError| {
                        CallError::new("ListContainers", CallErrorKind::Malformed, e.to_string())
                    };
                    harness.list(ticket, began, read.map_err(failed));
                    break;
                }
                Some(read) => harness.answer(read, &exists),
                None => harness.pass(100 * MS),
            }
        }
    }
    harness.settle(&exists, Duration::from_secs(200));
}

fn rows(sandboxes: &[u8], containers: &[u8]) -> Result<Vec<Report>, prost::DecodeError> {
    let sandboxes = v1::ListPodSandboxResponse::decode(sandboxes)?;
    let containers = v1::ListContainersResponse::decode(containers)?;
    let sandboxes = sandboxes.items.into_iter().filter_map(convert::sandbox_row);
    let containers = containers
        .containers
        .into_iter()
        .filter_map(convert::container_row);
    Ok(sandboxes.chain(containers).collect())
}

fn messages(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = data;
    let next = move || {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (message, after) = after.split_at(length);
        rest = after;
        Some(message)
    };
    std::iter::from_fn(next).take(MOST_MESSAGES)
}

fn subscribe(harness: &mut Harness) {
    let (at, wall) = (harness.now(), harness.wall());
    harness.input(|reconciler, now| {
        reconciler.handle_stream(now, StreamChange::Subscribed { at, wall });
    });
}

fn arrive(harness: &mut Harness, event: RuntimeEvent) {
    let arrival = Arrival {
        event,
        arrived: harness.now(),
        wall: harness.wall(),
    };
    harness.input(|reconciler, now| reconciler.handle_event(now, arrival.clone()));
}

/// The node of the seeds: one pod with one container.
fn node() -> Vec<Report> {
    let sandbox = v1::PodSandbox {
        id: "s1".to_owned(),
        metadata: Some(v1::PodSandboxMetadata {
            name: "web".to_owned(),
            uid: "u1".to_owned(),
            namespace: "ns".to_owned(),
            attempt: 0,
        }),
        created_at: crate::harness::WALL_ORIGIN,
        ..v1::PodSandbox::default()
    };
    let container = v1::Container {
        id: "c1".to_owned(),
        pod_sandbox_id: "s1".to_owned(),
        metadata: Some(v1::ContainerMetadata {
            name: "app".to_owned(),
            attempt: 0,
        }),
        state: v1::ContainerState::ContainerRunning.into(),
        created_at: crate::harness::WALL_ORIGIN,
        labels: [("io.kubernetes.pod.uid".to_owned(), "u1".to_owned())].into(),
        ..v1::Container::default()
    };
    let sandbox = convert::sandbox_row(sandbox);
    let container = convert::container_row(container);
    sandbox.into_iter().chain(container).collect()
}
