//! Decodes statuses without mounts, namespaces and (unless `whole` is set) annotations, and responses of status calls
//! without labels as well: list rows have these. All fields would cost a PLEG's start some 10 % more CPU instructions.

use std::fmt::Debug;
use std::str::from_utf8;

use pleg_runtime::core::{
    ContainerDetails, EventType, Identity, Kind, Labels, Report, ReportedState, RuntimeEvent,
    SandboxDetails,
};
use prost::bytes::Bytes;
use prost::{DecodeError, Message};

use super::{
    addresses, container_identity, container_state_or_unknown, encoded_labels, exit_code, id,
    non_empty, resources, sandbox_identity, sandbox_state_or_unknown, text, time_unless_zero,
};
use crate::metrics::Irregular;
use crate::v1;

/// A message of the event stream. The statuses in it are not decoded: they are slices of the message.
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

/// The id in a status of a container or sandbox, and the metadata, which for a sandbox names the pod.
#[derive(Clone, PartialEq, Message)]
struct SubjectAndPod {
    #[prost(bytes = "bytes", tag = "1")]
    id: Bytes,
    /// The metadata of a sandbox, which `sandbox_of` decodes. Not used for a container: its metadata has other fields.
    #[prost(bytes = "bytes", tag = "2")]
    metadata: Bytes,
}

/// Converts a message of the event stream. `None` if it has no id.
///
/// Unless `whole` is set, the result has only the status of the container or sandbox that the event is about (without
/// annotations, because lists show them) and the identity of its pod.
///
/// # Errors
/// If a status that is decoded is malformed.
pub fn event(event: EncodedEvent, whole: bool) -> Result<Option<RuntimeEvent>, DecodeError> {
    let Some(id) = id(event.id) else {
        return Ok(None);
    };
    let kind = event_type(event.kind);
    let mut containers = Vec::new();
    for encoded in event.containers {
        // Quirk `empty container statuses`: CRI-O sends statuses without an id (cri-o#9663).
        if whole || SubjectAndPod::decode(encoded.clone())?.id == id.as_str() {
            containers.extend(status::<BriefContainer>(&encoded, whole)?);
        }
    }
    let sandbox = match event.sandbox {
        Some(encoded) if whole || containers.is_empty() => status::<BriefSandbox>(&encoded, whole)?,
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

/// Converts an encoded status with its labels and, if `whole` is set, its annotations. `None` if it has no id.
pub(crate) fn status<S: BriefStatus>(
    encoded: &[u8],
    whole: bool,
) -> Result<Option<Report>, DecodeError> {
    let labels = encoded_labels(encoded, S::LABELS)?;
    let annotations = match whole {
        true => encoded_labels(encoded, S::ANNOTATIONS)?,
        false => Labels::default(),
    };
    Ok(S::decode(encoded)?.report(labels, annotations))
}

/// The pod's identity, from the sandbox status in an event about a container of the pod.
fn sandbox_of(brief: SubjectAndPod) -> Result<Option<Report>, DecodeError> {
    let metadata = v1::PodSandboxMetadata::decode(brief.metadata)?;
    let Some(id) = id(from_utf8(&brief.id).unwrap_or_default().to_owned()) else {
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

/// The response of `PodSandboxStatus` or `ContainerStatus`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusResponse<S: BriefStatus> {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<S>,
}

/// [`v1::ContainerStatus`] without mounts, labels and annotations.
///
/// Has every status field that the PLEG needs and that list rows lack or show differently: containerd's row has an
/// image's id, but its container status has the image's repository digest.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BriefContainer {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(message, optional, tag = "2")]
    metadata: Option<v1::ContainerMetadata>,
    #[prost(int32, tag = "3")]
    state: i32,
    #[prost(int64, tag = "4")]
    created_at: i64,
    #[prost(int64, tag = "5")]
    started_at: i64,
    #[prost(int64, tag = "6")]
    finished_at: i64,
    #[prost(int32, tag = "7")]
    exit_code: i32,
    #[prost(message, optional, tag = "8")]
    image: Option<v1::ImageSpec>,
    #[prost(string, tag = "9")]
    image_ref: String,
    #[prost(string, tag = "10")]
    reason: String,
    #[prost(string, tag = "11")]
    message: String,
    #[prost(string, tag = "15")]
    log_path: String,
    #[prost(message, optional, tag = "16")]
    resources: Option<v1::ContainerResources>,
    #[prost(string, tag = "17")]
    image_id: String,
}

/// [`v1::PodSandboxStatus`] without labels, annotations and namespaces.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct BriefSandbox {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(message, optional, tag = "2")]
    metadata: Option<v1::PodSandboxMetadata>,
    #[prost(int32, tag = "3")]
    state: i32,
    #[prost(int64, tag = "4")]
    created_at: i64,
    #[prost(message, optional, tag = "5")]
    network: Option<v1::PodSandboxNetworkStatus>,
    #[prost(string, tag = "9")]
    runtime_handler: String,
}

/// A status that is decoded without labels and annotations.
pub(crate) trait BriefStatus: Debug + Message + Default {
    /// The field numbers of the labels and of the annotations in the CRI's status message.
    const LABELS: u32;
    const ANNOTATIONS: u32;

    /// Converts the status. `None` if the status has no id.
    fn report(self, labels: Labels, annotations: Labels) -> Option<Report>;
}

impl BriefStatus for BriefSandbox {
    const LABELS: u32 = 7;
    const ANNOTATIONS: u32 = 8;

    fn report(self, labels: Labels, annotations: Labels) -> Option<Report> {
        let id = id(self.id)?;
        let shown = sandbox_state_or_unknown(self.state);
        let identity = sandbox_identity(self.metadata, &labels, self.created_at);
        let mut details = SandboxDetails::default();
        details.ips = self.network.map(addresses).unwrap_or_default();
        details.runtime_handler = text(self.runtime_handler);
        details.labels = labels;
        details.annotations = annotations;
        Some(Report::new(id, shown, identity, details))
    }
}

impl BriefStatus for BriefContainer {
    const LABELS: u32 = 12;
    const ANNOTATIONS: u32 = 13;

    fn report(self, labels: Labels, annotations: Labels) -> Option<Report> {
        let shown = container_state_or_unknown(self.state);
        let id = id(self.id)?;
        let identity = container_identity(self.metadata, &labels, self.created_at);
        let linux = self.resources.and_then(|resources| resources.linux);
        let mut details = ContainerDetails::default();
        details.started_at = time_unless_zero(self.started_at);
        details.finished_at = time_unless_zero(self.finished_at);
        details.exit_code = exit_code(shown, self.exit_code);
        details.reason = text(self.reason);
        details.message = text(self.message);
        details.image = text(self.image.unwrap_or_default().image);
        details.image_ref = text(self.image_ref);
        details.image_id = text(self.image_id);
        details.log_path = text(self.log_path);
        details.resources = linux.map(resources);
        details.labels = labels;
        details.annotations = annotations;
        Some(Report::new(id, shown, identity, details))
    }
}
