//! The statuses of sandboxes and containers, decoded without what the generator never needs or has from lists:
//! annotations, mounts and namespaces. Decoding and copying them would take a third of the time of a status call.

use std::fmt::Debug;
use std::str::{Utf8Error, from_utf8};

use pleg_runtime::core::{ContainerDetails, Labels, Report, SandboxDetails};
use prost::Message;
use prost::bytes::Bytes;

use super::{
    addresses, bounded, container_identity, container_state_or_unknown, exit_code, id, resources,
    sandbox_identity, sandbox_state_or_unknown, text, time_unless_zero,
};
use crate::v1;

/// The response of `PodSandboxStatus` or `ContainerStatus`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusResponse<S: BriefStatus> {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<S>,
}

/// [`v1::ContainerStatus`] without mounts and annotations.
///
/// The type has every other field that lists lack or show differently: containerd lists a container's image by its id,
/// but the container's status names the repository digest.
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
    #[prost(message, repeated, tag = "12")]
    labels: Vec<Label>,
    #[prost(string, tag = "15")]
    log_path: String,
    #[prost(message, optional, tag = "16")]
    resources: Option<v1::ContainerResources>,
    #[prost(string, tag = "17")]
    image_id: String,
}

/// [`v1::PodSandboxStatus`] without annotations and namespaces.
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
    #[prost(message, repeated, tag = "7")]
    labels: Vec<Label>,
    #[prost(string, tag = "9")]
    runtime_handler: String,
}

/// A label. Its texts are slices of the message.
#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

/// A status that is decoded without annotations.
pub(crate) trait BriefStatus: Debug + Message + Default {
    /// Converts the status. `None` if it has no id.
    ///
    /// # Errors
    /// If a label is not valid UTF-8.
    fn report(self, annotations: Labels) -> Result<Option<Report>, Utf8Error>;
}

impl BriefStatus for BriefSandbox {
    fn report(self, annotations: Labels) -> Result<Option<Report>, Utf8Error> {
        let labels = labels(&self.labels)?;
        let Some(id) = id(self.id) else {
            return Ok(None);
        };
        let shown = sandbox_state_or_unknown(self.state);
        let identity = sandbox_identity(self.metadata, &labels, self.created_at);
        let mut details = SandboxDetails::default();
        details.ips = self.network.map(addresses).unwrap_or_default();
        details.runtime_handler = text(self.runtime_handler);
        details.labels = labels;
        details.annotations = annotations;
        Ok(Some(Report::new(id, shown, identity, details)))
    }
}

impl BriefStatus for BriefContainer {
    fn report(self, annotations: Labels) -> Result<Option<Report>, Utf8Error> {
        let labels = labels(&self.labels)?;
        let shown = container_state_or_unknown(self.state);
        let Some(id) = id(self.id) else {
            return Ok(None);
        };
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
        Ok(Some(Report::new(id, shown, identity, details)))
    }
}

fn labels(labels: &[Label]) -> Result<Labels, Utf8Error> {
    let texts = labels.iter();
    let texts = texts.map(|label| Ok((from_utf8(&label.key)?, from_utf8(&label.value)?)));
    Ok(bounded(texts.collect::<Result<Vec<_>, _>>()?.into_iter()))
}
