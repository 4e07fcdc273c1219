//! Converts wire types to domain types. Arguments are passed by value, so that fields can be moved.
//!
//! The conversion only checks that values are valid. A field that the runtime leaves out becomes
//! `None` or empty. An invalid value becomes `None` and is counted. An element without an id is
//! dropped and counted (invariant 7).
//!
//! [`CriRuntime`](crate::CriRuntime) uses these functions. They are public for users that get CRI
//! messages from another source: a proxy, a recording or a fuzzer.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use pleg_runtime::core::{
    ContainerDetails, EventType, Id, Identity, Kind, Labels, PodUid, Report, ReportedState,
    Resources, RuntimeEvent, SandboxDetails, Text, WallTime,
};
use pleg_runtime::{RuntimeVersion, Scope};
use smallvec::SmallVec;

pub use crate::interner::Interner;
use crate::metrics::Irregular;
use crate::v1;
use crate::wire::Pair;

/// The labels with which the kubelet identifies the pod of a container. The metadata of a container
/// does not contain the pod.
pub(crate) const POD_UID: &str = "io.kubernetes.pod.uid";
pub(crate) const POD_NAME: &str = "io.kubernetes.pod.name";
pub(crate) const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";

/// Converts a message of the event stream. `None` if it has no id.
pub fn event(event: v1::ContainerEventResponse) -> Option<RuntimeEvent> {
    event_with(event, &mut Interner::default())
}

/// Like [`event`], with an interner.
pub fn event_with(
    event: v1::ContainerEventResponse,
    interner: &mut Interner,
) -> Option<RuntimeEvent> {
    let id = id(event.container_id)?;
    let sandbox = event.pod_sandbox_status;
    let sandbox = sandbox.and_then(|status| sandbox_status_with(status, interner));
    let containers = event.containers_statuses.into_iter();
    // Quirk `empty container statuses`: elements without an id (cri-o#9663).
    let containers = containers.filter_map(|status| container_status_with(status, interner));
    let containers = containers.collect();
    let (kind, created_at) = (event.container_event_type, event.created_at);
    Some(event_from_parts(id, kind, created_at, sandbox, containers))
}

/// Creates an event from its converted parts, and counts missing parts.
pub(crate) fn event_from_parts(
    id: Id,
    kind: i32,
    created_at: i64,
    sandbox: Option<Report>,
    containers: Vec<Report>,
) -> RuntimeEvent {
    let event = match v1::ContainerEventType::try_from(kind) {
        Ok(v1::ContainerEventType::ContainerCreatedEvent) => EventType::Created,
        Ok(v1::ContainerEventType::ContainerStartedEvent) => EventType::Started,
        Ok(v1::ContainerEventType::ContainerStoppedEvent) => EventType::Stopped,
        Ok(v1::ContainerEventType::ContainerDeletedEvent) => EventType::Deleted,
        Err(_) => {
            Irregular::UnknownEnumValue.count();
            EventType::Other(kind)
        }
    };
    // Quirk `nil sandbox status`: normal for DELETED of a sandbox in containerd 1.7.
    if sandbox.is_none() {
        Irregular::NoSandboxStatus.count();
    }
    let mut shown = sandbox.iter().chain(&containers);
    if event != EventType::Deleted && !shown.any(|report| report.id == id) {
        Irregular::NoSubjectStatus.count();
    }
    let mut event = RuntimeEvent::new(id, event);
    event.created_at = created_at;
    event.sandbox = sandbox;
    event.containers = containers;
    event
}

/// Converts a row of `ListPodSandbox`. `None` if it has no id.
pub fn sandbox_row(row: v1::PodSandbox) -> Option<Report> {
    sandbox_row_with(row, &mut Interner::default())
}

/// Like [`sandbox_row`], with an interner.
pub fn sandbox_row_with(row: v1::PodSandbox, interner: &mut Interner) -> Option<Report> {
    let labels = labels(&row.labels, interner);
    let id = id(row.id)?;
    let shown = sandbox_state_or_unknown(row.state);
    let identity = sandbox_identity(row.metadata, &labels, row.created_at, interner);
    let mut details = SandboxDetails::default();
    details.runtime_handler = shared(&row.runtime_handler, interner);
    details.labels = labels;
    details.annotations = self::labels(&row.annotations, interner);
    Some(Report::new(id, shown, identity, details))
}

/// Converts the status of a sandbox. `None` if it has no id.
pub fn sandbox_status(status: v1::PodSandboxStatus) -> Option<Report> {
    sandbox_status_with(status, &mut Interner::default())
}

/// Like [`sandbox_status`], with an interner.
pub fn sandbox_status_with(
    status: v1::PodSandboxStatus,
    interner: &mut Interner,
) -> Option<Report> {
    let labels = labels(&status.labels, interner);
    let id = id(status.id)?;
    let shown = sandbox_state_or_unknown(status.state);
    let identity = sandbox_identity(status.metadata, &labels, status.created_at, interner);
    let mut details = SandboxDetails::default();
    details.ips = status.network.map(addresses).unwrap_or_default();
    details.runtime_handler = shared(&status.runtime_handler, interner);
    details.labels = labels;
    details.annotations = self::labels(&status.annotations, interner);
    Some(Report::new(id, shown, identity, details))
}

/// Converts a row of `ListContainers`. `None` if it has no id.
pub fn container_row(row: v1::Container) -> Option<Report> {
    container_row_with(row, &mut Interner::default())
}

/// Like [`container_row`], with an interner.
pub fn container_row_with(row: v1::Container, interner: &mut Interner) -> Option<Report> {
    let labels = labels(&row.labels, interner);
    let mut identity = container_identity(row.metadata, &labels, row.created_at, interner);
    identity.sandbox = non_empty(row.pod_sandbox_id);
    let id = id(row.id)?;
    let shown = container_state_or_unknown(row.state);
    let mut details = ContainerDetails::default();
    details.image = shared(&row.image.unwrap_or_default().image, interner);
    details.image_ref = shared(&row.image_ref, interner);
    details.image_id = shared(&row.image_id, interner);
    details.labels = labels;
    details.annotations = self::labels(&row.annotations, interner);
    Some(Report::new(id, shown, identity, details))
}

/// Converts the status of a container. `None` if it has no id. The result has no sandbox id: CRI v1
/// has no such field in a container status.
pub fn container_status(status: v1::ContainerStatus) -> Option<Report> {
    container_status_with(status, &mut Interner::default())
}

/// Like [`container_status`], with an interner.
pub fn container_status_with(
    status: v1::ContainerStatus,
    interner: &mut Interner,
) -> Option<Report> {
    let labels = labels(&status.labels, interner);
    let shown = container_state_or_unknown(status.state);
    let id = id(status.id)?;
    let identity = container_identity(status.metadata, &labels, status.created_at, interner);
    let linux = status.resources.and_then(|resources| resources.linux);
    let mut details = ContainerDetails::default();
    details.started_at = time_unless_zero(status.started_at);
    details.finished_at = time_unless_zero(status.finished_at);
    details.exit_code = exit_code(shown, status.exit_code);
    details.reason = shared(&status.reason, interner);
    details.message = text(status.message);
    details.image = shared(&status.image.unwrap_or_default().image, interner);
    details.image_ref = shared(&status.image_ref, interner);
    details.image_id = shared(&status.image_id, interner);
    details.log_path = text(status.log_path);
    details.resources = linux.map(|linux| resources(linux, interner));
    details.labels = labels;
    details.annotations = self::labels(&status.annotations, interner);
    Some(Report::new(id, shown, identity, details))
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

/// `None` unless the container has exited: a running container has the exit code 0.
pub(crate) fn exit_code(shown: ReportedState, code: i32) -> Option<i32> {
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

fn sandbox_identity(
    metadata: Option<v1::PodSandboxMetadata>,
    labels: &Labels,
    created_at: i64,
    interner: &mut Interner,
) -> Identity {
    let metadata = metadata.unwrap_or_default();
    let labelled = labels.get(POD_UID).filter(|uid| !uid.is_empty());
    let pod: Option<PodUid> = non_empty(metadata.uid).or_else(|| labelled.map(PodUid::from));
    let mut identity = Identity::new(Kind::Sandbox);
    identity.unlabelled = labelled.is_none() || labelled != pod.as_ref().map(PodUid::as_str);
    identity.pod = pod;
    identity.namespace = shared_or_label(&metadata.namespace, labels, POD_NAMESPACE, interner);
    identity.pod_name = non_empty(metadata.name).or_else(|| label(labels, POD_NAME));
    identity.attempt = metadata.attempt;
    identity.created_at = time(created_at);
    identity
}

fn container_identity(
    metadata: Option<v1::ContainerMetadata>,
    labels: &Labels,
    created_at: i64,
    interner: &mut Interner,
) -> Identity {
    let metadata = metadata.unwrap_or_default();
    let pod = label(labels, POD_UID);
    let mut identity = Identity::new(Kind::Container);
    identity.unlabelled = pod.is_none();
    identity.pod = pod;
    identity.namespace = shared_or_label("", labels, POD_NAMESPACE, interner);
    identity.pod_name = label(labels, POD_NAME);
    identity.name = Some(shared(&metadata.name, interner)).filter(|name| !name.is_empty());
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

pub(crate) fn address(text: &str) -> Option<Text> {
    let is_valid = text.parse::<IpAddr>().is_ok();
    if !is_valid {
        Irregular::InvalidAddress.count();
    }
    is_valid.then(|| text.into())
}

fn resources(linux: v1::LinuxContainerResources, interner: &mut Interner) -> Arc<Resources> {
    let mut resources = Resources::default();
    resources.cpu_period = linux.cpu_period;
    resources.cpu_quota = linux.cpu_quota;
    resources.cpu_shares = linux.cpu_shares;
    resources.memory_limit = linux.memory_limit_in_bytes;
    resources.memory_swap_limit = linux.memory_swap_limit_in_bytes;
    resources.cpuset_cpus = shared(&linux.cpuset_cpus, interner);
    resources.cpuset_mems = shared(&linux.cpuset_mems, interner);
    resources.unified = labels(&linux.unified, interner);
    interner.resources(resources)
}

fn id(id: String) -> Option<Id> {
    non_empty_id(&id)?;
    Some(id.into())
}

/// Returns `None` and counts it if the id is empty.
pub(crate) fn non_empty_id(id: &str) -> Option<&str> {
    if id.is_empty() {
        Irregular::NoId.count();
        return None;
    }
    Some(id)
}

/// Quirk `invalid created_at`: in DELETED of a sandbox, containerd ≥ 2 sets `created_at` to Go's
/// zero time in nanoseconds.
pub(crate) fn time(nanos: i64) -> Option<WallTime> {
    let time = WallTime::claimed(nanos);
    if time.is_none() {
        Irregular::InvalidTime.count();
    }
    time
}

/// Zero means that the time is not known yet. It is not counted as irregular.
pub(crate) fn time_unless_zero(nanos: i64) -> Option<WallTime> {
    if nanos == 0 { None } else { time(nanos) }
}

fn labels(map: &BTreeMap<String, String>, interner: &mut Interner) -> Labels {
    let pairs = map.iter().map(|(k, v)| (k.as_bytes(), v.as_bytes()));
    let mut pairs: SmallVec<[Pair<'_>; 8]> = pairs.collect();
    // Strings are valid UTF-8, so this does not fail.
    interner.labels(&mut pairs).unwrap_or_default()
}

/// For a text that many ids have in common.
fn shared(text: &str, interner: &mut Interner) -> Text {
    interner.text(text.as_bytes()).unwrap_or_default()
}

/// The text, or the label if the text is empty. For a text that many ids have in common.
fn shared_or_label(
    text: &str,
    labels: &Labels,
    key: &str,
    interner: &mut Interner,
) -> Option<Text> {
    let text = Some(text).filter(|text| !text.is_empty());
    let label = || labels.get(key).filter(|value| !value.is_empty());
    text.or_else(label).map(|text| shared(text, interner))
}

fn label<T: for<'a> From<&'a str>>(labels: &Labels, key: &str) -> Option<T> {
    labels
        .get(key)
        .filter(|value| !value.is_empty())
        .map(|value| T::from(value))
}

fn non_empty<T: From<String>>(text: String) -> Option<T> {
    (!text.is_empty()).then(|| text.into())
}

/// Does not allocate for an empty text; most texts are empty.
fn text(text: String) -> Text {
    if text.is_empty() {
        Text::default()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests;
