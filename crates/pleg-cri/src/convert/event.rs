//! Converts a message of the event stream.

use std::str::{Utf8Error, from_utf8};

use pleg_runtime::core::{
    EventType, Identity, Kind, Labels, Report, ReportedState, RuntimeEvent, SandboxDetails,
};
use prost::bytes::Bytes;
use prost::{DecodeError, Message};

use super::brief::{BriefContainer, BriefSandbox, BriefStatus as _};
use super::{container_status, id, non_empty, sandbox_status};
use crate::metrics::Irregular;
use crate::v1;

/// A status in an event is malformed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The status is not a valid message.
    #[error("a status in an event is malformed: {0}")]
    Message(#[from] DecodeError),
    /// An id or a label is not valid UTF-8.
    #[error("an id or a label in an event is malformed: {0}")]
    Text(#[from] Utf8Error),
}

/// A message of the event stream. Its statuses are not decoded: they are slices of the message.
#[derive(Clone, PartialEq, Message)]
pub struct EncodedEvent {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(int32, tag = "2")]
    kind: i32,
    #[prost(int64, tag = "3")]
    created_at: i64,
    #[prost(bytes = "bytes", optional, tag = "4")]
    sandbox: Option<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "5")]
    containers: Vec<Bytes>,
}

/// The fields that identify a status and its pod.
#[derive(Clone, PartialEq, Message)]
struct SubjectAndPod {
    #[prost(bytes = "bytes", tag = "1")]
    id: Bytes,
    /// The metadata of a sandbox; a container's metadata has other fields.
    #[prost(bytes = "bytes", tag = "2")]
    metadata: Bytes,
}

/// Converts a message of the event stream. `None` if it has no id.
///
/// Unless `whole` is set, the result has only the status of the event's subject (without annotations, because lists
/// bring those) and the identity of its pod.
///
/// # Errors
/// If a status that is decoded is malformed.
pub fn event(event: EncodedEvent, whole: bool) -> Result<Option<RuntimeEvent>, EventError> {
    let Some(id) = id(event.id) else {
        return Ok(None);
    };
    let kind = event_type(event.kind);
    let mut containers = Vec::new();
    for encoded in event.containers {
        // Quirk `empty container statuses`: elements without an id (cri-o#9663).
        if whole {
            containers.extend(container_status(v1::ContainerStatus::decode(encoded)?));
        } else if SubjectAndPod::decode(encoded.clone())?.id == id.as_str() {
            containers.extend(BriefContainer::decode(encoded)?.report(Labels::default())?);
        }
    }
    let sandbox = match event.sandbox {
        Some(encoded) if whole => sandbox_status(v1::PodSandboxStatus::decode(encoded)?),
        Some(encoded) if containers.is_empty() => {
            BriefSandbox::decode(encoded)?.report(Labels::default())?
        }
        Some(encoded) => sandbox_of(SubjectAndPod::decode(encoded)?)?,
        None => None,
    };
    // Quirk `nil sandbox status`: normal for DELETED of a sandbox in containerd 1.7.
    if sandbox.is_none() {
        Irregular::NoSandboxStatus.count();
    }
    let mut shown = sandbox.iter().chain(&containers);
    if kind != EventType::Deleted && !shown.any(|report| report.id == id) {
        Irregular::NoSubjectStatus.count();
    }
    let mut converted = RuntimeEvent::new(id, kind);
    converted.created_at = event.created_at;
    converted.sandbox = sandbox;
    converted.containers = containers;
    Ok(Some(converted))
}

/// The pod of a container whose status an event contains.
fn sandbox_of(brief: SubjectAndPod) -> Result<Option<Report>, EventError> {
    let metadata = v1::PodSandboxMetadata::decode(brief.metadata)?;
    let Some(id) = id(from_utf8(&brief.id)?.to_owned()) else {
        return Ok(None);
    };
    let mut identity = Identity::new(Kind::Sandbox);
    identity.pod = non_empty(metadata.uid);
    identity.namespace = non_empty(metadata.namespace);
    identity.pod_name = non_empty(metadata.name);
    identity.attempt = metadata.attempt;
    let details = SandboxDetails::default();
    Ok(Some(Report::new(
        id,
        ReportedState::Unknown,
        identity,
        details,
    )))
}

fn event_type(number: i32) -> EventType {
    match v1::ContainerEventType::try_from(number) {
        Ok(v1::ContainerEventType::ContainerCreatedEvent) => EventType::Created,
        Ok(v1::ContainerEventType::ContainerStartedEvent) => EventType::Started,
        Ok(v1::ContainerEventType::ContainerStoppedEvent) => EventType::Stopped,
        Ok(v1::ContainerEventType::ContainerDeletedEvent) => EventType::Deleted,
        Err(_) => {
            Irregular::UnknownEnumValue.count();
            EventType::Other(number)
        }
    }
}
