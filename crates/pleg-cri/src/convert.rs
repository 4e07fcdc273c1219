//! Converts wire types of the CRI to the domain types of `pleg-core`.
//!
//! The conversion only checks that values are valid. A field that the runtime leaves out becomes `None` or empty. An
//! invalid value is dropped and counted in a metric; an invalid state becomes `Unknown` and is counted. A row, status
//! or event without an id is dropped and counted.
//!
//! [`CriRuntime`](crate::CriRuntime) makes the same conversions. The functions are public for users that get CRI
//! messages from another source: a proxy, a recording or a fuzzer.

pub(crate) mod brief;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::from_utf8;
use std::sync::Arc;

use prost::encoding::WireType;
use prost::{DecodeError, Message};

use self::brief::{BriefContainer, BriefSandbox};
use crate::metrics::Irregular;
use crate::rows::{BriefRow, ContainerRow, Fields, SandboxRow};
use crate::v1;
use pleg_runtime::core::{
    Id, Identity, Kind, Labels, PodUid, Report, ReportedState, Resources, Text, WallTime,
};
use pleg_runtime::{RuntimeVersion, Scope};

pub use brief::{EncodedEvent, event};

/// The labels by which the kubelet identifies the pod of a container, because the container's metadata does not name
/// its pod.
const POD_UID: &str = "io.kubernetes.pod.uid";
const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";

/// The maximum size of all labels, or all annotations, of an object. The API server accepts annotations of at most 256
/// KiB, and the kubelet and the runtime add a few. Only a broken runtime sends more than this maximum, and the
/// PLEG would store all of it for each object.
const MAX_LABELS: usize = 320 << 10;
/// The maximum size of one label if the labels of its object are too large together. Larger labels are dropped.
const MAX_SHORT_LABEL: usize = 512;

/// Converts a row of `ListPodSandbox`. `None` if it has no id.
pub fn sandbox_row(row: v1::PodSandbox) -> Option<Report> {
    SandboxRow::complete(&row.encode_to_vec()).ok()?
}

/// Converts the status of a sandbox. `None` if it has no id.
pub fn sandbox_status(status: v1::PodSandboxStatus) -> Option<Report> {
    brief::status::<BriefSandbox>(&status.encode_to_vec(), true).ok()?
}

/// Converts a row of `ListContainers`. `None` if it has no id.
pub fn container_row(row: v1::Container) -> Option<Report> {
    ContainerRow::complete(&row.encode_to_vec()).ok()?
}

/// Converts the status of a container. `None` if it has no id. The result has no sandbox id: CRI v1
/// has no such field in a container status.
pub fn container_status(status: v1::ContainerStatus) -> Option<Report> {
    brief::status::<BriefContainer>(&status.encode_to_vec(), true).ok()?
}

pub(crate) fn version(version: v1::VersionResponse) -> RuntimeVersion {
    let mut converted = RuntimeVersion::new(version.runtime_name, version.runtime_version);
    converted.api = version.runtime_api_version;
    converted
}

/// The filter for a list of sandboxes.
pub(crate) fn sandbox_filter(scope: &Scope) -> Option<v1::PodSandboxFilter> {
    let filter = v1::PodSandboxFilter::default();
    match scope {
        Scope::Node => None,
        Scope::Pod(uid) => Some(v1::PodSandboxFilter {
            label_selector: pod_selector(uid),
            ..filter
        }),
    }
}

/// The filter for a list of containers.
pub(crate) fn container_filter(scope: &Scope) -> Option<v1::ContainerFilter> {
    let filter = v1::ContainerFilter::default();
    match scope {
        Scope::Node => None,
        Scope::Pod(uid) => Some(v1::ContainerFilter {
            label_selector: pod_selector(uid),
            ..filter
        }),
    }
}

fn pod_selector(uid: &PodUid) -> BTreeMap<String, String> {
    BTreeMap::from([(POD_UID.to_owned(), uid.to_string())])
}

/// The exit code; `None` unless the container has exited, because runtimes report 0 for a running container.
fn exit_code(shown: ReportedState, code: i32) -> Option<i32> {
    (shown == ReportedState::Exited).then_some(code)
}

pub(crate) fn sandbox_state_or_unknown(state: i32) -> ReportedState {
    sandbox_state(state).unwrap_or_else(unknown_enum_value)
}

pub(crate) fn container_state_or_unknown(state: i32) -> ReportedState {
    container_state(state).unwrap_or_else(unknown_enum_value)
}

/// Converts the state of a sandbox. `None` if the number is not in the CRI.
pub(crate) fn sandbox_state(state: i32) -> Option<ReportedState> {
    Some(match v1::PodSandboxState::try_from(state).ok()? {
        v1::PodSandboxState::SandboxReady => ReportedState::Running,
        v1::PodSandboxState::SandboxNotready => ReportedState::Exited,
    })
}

/// Converts the state of a container. `None` if the number is not in the CRI.
pub(crate) fn container_state(state: i32) -> Option<ReportedState> {
    Some(match v1::ContainerState::try_from(state).ok()? {
        v1::ContainerState::ContainerCreated => ReportedState::Created,
        v1::ContainerState::ContainerRunning => ReportedState::Running,
        v1::ContainerState::ContainerExited => ReportedState::Exited,
        v1::ContainerState::ContainerUnknown => ReportedState::Unknown,
    })
}

fn unknown_enum_value() -> ReportedState {
    Irregular::UnknownEnumValue.count();
    ReportedState::Unknown
}

pub(crate) fn sandbox_identity(
    metadata: Option<v1::PodSandboxMetadata>,
    labels: &Labels,
    created_at: i64,
) -> Identity {
    let metadata = metadata.unwrap_or_default();
    let labelled = labels.get(POD_UID).filter(|uid| !uid.is_empty());
    let pod: Option<PodUid> = non_empty(metadata.uid).or_else(|| labelled.map(PodUid::from));
    let mut identity = Identity::new(Kind::Sandbox);
    identity.unlabelled = labelled.is_none() || labelled != pod.as_ref().map(PodUid::as_str);
    identity.pod = pod;
    identity.namespace = non_empty(metadata.namespace).or_else(|| label(labels, POD_NAMESPACE));
    identity.pod_name = non_empty(metadata.name).or_else(|| label(labels, POD_NAME));
    identity.attempt = metadata.attempt;
    identity.created_at = time(created_at);
    identity
}

pub(crate) fn container_identity(
    metadata: Option<v1::ContainerMetadata>,
    labels: &Labels,
    created_at: i64,
) -> Identity {
    let metadata = metadata.unwrap_or_default();
    let pod = label(labels, POD_UID);
    let mut identity = Identity::new(Kind::Container);
    identity.unlabelled = pod.is_none();
    identity.pod = pod;
    identity.namespace = label(labels, POD_NAMESPACE);
    identity.pod_name = label(labels, POD_NAME);
    identity.name = non_empty(metadata.name);
    identity.attempt = metadata.attempt;
    identity.created_at = time(created_at);
    identity
}

/// The IP addresses, the primary one first.
fn addresses(network: v1::PodSandboxNetworkStatus) -> Box<[Text]> {
    let additional = network.additional_ips.into_iter().map(|address| address.ip);
    let all = std::iter::once(network.ip).chain(additional);
    let non_empty = all.filter(|ip| !ip.is_empty());
    non_empty.filter_map(|ip| address(&ip)).collect()
}

fn address(text: &str) -> Option<Text> {
    let is_valid = text.parse::<IpAddr>().is_ok();
    if !is_valid {
        Irregular::InvalidAddress.count();
    }
    is_valid.then(|| text.into())
}

fn resources(linux: v1::LinuxContainerResources) -> Arc<Resources> {
    let mut resources = Resources::default();
    resources.cpu_period = linux.cpu_period;
    resources.cpu_quota = linux.cpu_quota;
    resources.cpu_shares = linux.cpu_shares;
    resources.memory_limit = linux.memory_limit_in_bytes;
    resources.memory_swap_limit = linux.memory_swap_limit_in_bytes;
    resources.cpuset_cpus = text(linux.cpuset_cpus);
    resources.cpuset_mems = text(linux.cpuset_mems);
    resources.unified = labels(&linux.unified);
    Arc::new(resources)
}

/// Converts an id. Returns `None` if the id is empty, and counts this in the metric of irregular input.
pub(crate) fn id(id: String) -> Option<Id> {
    if id.is_empty() {
        Irregular::NoId.count();
    }
    non_empty(id)
}

/// Quirk `invalid created_at`: in DELETED of a sandbox, containerd ≥ 2 sets `created_at` to Go's
/// zero time in nanoseconds.
fn time(nanos: i64) -> Option<WallTime> {
    let time = WallTime::claimed(nanos);
    if time.is_none() {
        Irregular::InvalidTime.count();
    }
    time
}

/// Converts a time. Zero means that the time is not known yet, and does not count as irregular.
fn time_unless_zero(nanos: i64) -> Option<WallTime> {
    if nanos == 0 { None } else { time(nanos) }
}

/// The labels or annotations in the field `field` of a message. Drops and counts labels that are not valid UTF-8.
pub(crate) fn encoded_labels(message: &[u8], field: u32) -> Result<Labels, DecodeError> {
    let mut labels = Vec::new();
    // Decodes at most `MAX_LABELS` labels: empty labels need memory, but do not count in `size`.
    for entry in Fields(message).values(field).take(MAX_LABELS) {
        let mut texts: [&[u8]; 2] = [&[], &[]];
        for text in Fields(entry?) {
            match text? {
                (1, WireType::LengthDelimited, key) => texts[0] = key,
                (2, WireType::LengthDelimited, value) => texts[1] = value,
                _ => {}
            }
        }
        match texts.map(from_utf8) {
            [Ok(key), Ok(value)] => labels.push((key, value)),
            _ => Irregular::InvalidLabel.count(),
        }
    }
    Ok(bounded(labels.iter().copied()))
}

fn labels(map: &BTreeMap<String, String>) -> Labels {
    bounded(map.iter().map(|(key, value)| (&**key, &**value)))
}

/// Returns the labels. If they are too large together, drops the long labels; if that is not enough, drops all.
fn bounded<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)> + Clone) -> Labels {
    if size(pairs.clone()) <= MAX_LABELS {
        return pairs.collect();
    }
    Irregular::LabelsTooLarge.count();
    // The labels that identify an object are short, so they are not dropped here.
    let short = pairs.filter(|pair| size([*pair]) <= MAX_SHORT_LABEL);
    match size(short.clone()) <= MAX_LABELS {
        true => short.collect(),
        false => Labels::default(),
    }
}

fn size<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> usize {
    let pairs = pairs.into_iter();
    pairs.map(|(key, value)| key.len() + value.len()).sum()
}

fn label<T: for<'a> From<&'a str>>(labels: &Labels, key: &str) -> Option<T> {
    let value = labels.get(key).filter(|value| !value.is_empty());
    value.map(T::from)
}

pub(crate) fn non_empty<T: From<String>>(text: String) -> Option<T> {
    (!text.is_empty()).then(|| text.into())
}

/// Converts a text. Does not allocate for an empty text; most texts are empty.
pub(crate) fn text(text: String) -> Text {
    if text.is_empty() {
        Text::default()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests;
