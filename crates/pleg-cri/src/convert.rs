//! Wire → domain, in one place. By value: what can be moved is moved.
//!
//! Nothing is judged here but whether it can mean anything at all. What a runtime leaves out
//! becomes `None` or empty, what is absurd becomes `None` too and is counted, and an element that
//! names nothing is dropped and counted (law 7).
//!
//! [`CriRuntime`](crate::CriRuntime) does all of this itself. The functions are public for whoever
//! gets hold of CRI messages in another way: a proxy, a recording, a fuzzer.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use pleg_runtime::core::{
    ContainerDetails, Details, EventType, Id, Identity, Kind, Labels, PodUid, Report, Resources,
    RuntimeEvent, SandboxDetails, Shown, Text, WallTime,
};
use pleg_runtime::{RuntimeVersion, Scope};
use smallvec::SmallVec;

use crate::metrics::Irregular;
pub use crate::pool::Pool;
use crate::v1;
use crate::wire::Pair;

/// The labels by which the kubelet names a container's pod; the metadata of a container has none
/// of it.
pub(crate) const POD_UID: &str = "io.kubernetes.pod.uid";
pub(crate) const POD_NAME: &str = "io.kubernetes.pod.name";
pub(crate) const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";

/// A message of the event stream; `None` if it names nothing.
pub fn event(event: v1::ContainerEventResponse) -> Option<RuntimeEvent> {
    event_with(event, &mut Pool::default())
}

/// [`event`], sharing with the pool.
pub fn event_with(event: v1::ContainerEventResponse, pool: &mut Pool) -> Option<RuntimeEvent> {
    let id = id(event.container_id)?;
    let sandbox = event.pod_sandbox_status;
    let sandbox = sandbox.and_then(|status| sandbox_status_with(status, pool));
    let containers = event.containers_statuses.into_iter();
    // Quirk `empty container statuses`: elements without an id (cri-o#9663).
    let containers = containers.filter_map(|status| container_status_with(status, pool));
    let containers = containers.collect();
    let (kind, created_at) = (event.container_event_type, event.created_at);
    Some(put_together(id, kind, created_at, sandbox, containers))
}

/// An event of its parts. Counts what it lacks.
pub(crate) fn put_together(
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
            Irregular::UnknownNumber.count();
            EventType::Other(kind)
        }
    };
    // Quirk `nil sandbox status`: normal for a sandbox's DELETED of containerd 1.7.
    if sandbox.is_none() {
        Irregular::NoSandboxStatus.count();
    }
    let mut shown = sandbox.iter().chain(&containers);
    if event != EventType::Deleted && !shown.any(|report| report.id == id) {
        Irregular::NoSubjectStatus.count();
    }
    RuntimeEvent {
        id,
        event,
        created_at,
        sandbox,
        containers,
    }
}

/// A row of `ListPodSandbox`; `None` if it names nothing.
pub fn sandbox_row(row: v1::PodSandbox) -> Option<Report> {
    sandbox_row_with(row, &mut Pool::default())
}

/// [`sandbox_row`], sharing with the pool.
pub fn sandbox_row_with(row: v1::PodSandbox, pool: &mut Pool) -> Option<Report> {
    let labels = labels(&row.labels, pool);
    Some(Report {
        id: id(row.id)?,
        shown: sandbox_shown(row.state),
        identity: sandbox_identity(row.metadata, &labels, row.created_at, pool),
        details: Details::from(SandboxDetails {
            ips: Box::default(),
            runtime_handler: shared(&row.runtime_handler, pool),
            labels,
            annotations: self::labels(&row.annotations, pool),
        }),
    })
}

/// The status of a sandbox; `None` if it names nothing.
pub fn sandbox_status(status: v1::PodSandboxStatus) -> Option<Report> {
    sandbox_status_with(status, &mut Pool::default())
}

/// [`sandbox_status`], sharing with the pool.
pub fn sandbox_status_with(status: v1::PodSandboxStatus, pool: &mut Pool) -> Option<Report> {
    let labels = labels(&status.labels, pool);
    Some(Report {
        id: id(status.id)?,
        shown: sandbox_shown(status.state),
        identity: sandbox_identity(status.metadata, &labels, status.created_at, pool),
        details: Details::from(SandboxDetails {
            ips: status.network.map(addresses).unwrap_or_default(),
            runtime_handler: shared(&status.runtime_handler, pool),
            labels,
            annotations: self::labels(&status.annotations, pool),
        }),
    })
}

/// A row of `ListContainers`; `None` if it names nothing.
pub fn container_row(row: v1::Container) -> Option<Report> {
    container_row_with(row, &mut Pool::default())
}

/// [`container_row`], sharing with the pool.
pub fn container_row_with(row: v1::Container, pool: &mut Pool) -> Option<Report> {
    let labels = labels(&row.labels, pool);
    let identity = Identity {
        sandbox: non_empty(row.pod_sandbox_id),
        ..container_identity(row.metadata, &labels, row.created_at, pool)
    };
    Some(Report {
        id: id(row.id)?,
        shown: container_shown(row.state),
        identity,
        details: Details::from(ContainerDetails {
            image: shared(&row.image.unwrap_or_default().image, pool),
            image_ref: shared(&row.image_ref, pool),
            image_id: shared(&row.image_id, pool),
            labels,
            annotations: self::labels(&row.annotations, pool),
            ..ContainerDetails::default()
        }),
    })
}

/// The status of a container; `None` if it names nothing. It does not say which sandbox the
/// container is in: CRI v1 has no such field.
pub fn container_status(status: v1::ContainerStatus) -> Option<Report> {
    container_status_with(status, &mut Pool::default())
}

/// [`container_status`], sharing with the pool.
pub fn container_status_with(status: v1::ContainerStatus, pool: &mut Pool) -> Option<Report> {
    let labels = labels(&status.labels, pool);
    let shown = container_shown(status.state);
    Some(Report {
        id: id(status.id)?,
        shown,
        identity: container_identity(status.metadata, &labels, status.created_at, pool),
        details: Details::from(ContainerDetails {
            started_at: time_unless_zero(status.started_at),
            finished_at: time_unless_zero(status.finished_at),
            exit_code: exit_code(shown, status.exit_code),
            reason: shared(&status.reason, pool),
            message: text(status.message),
            image: shared(&status.image.unwrap_or_default().image, pool),
            image_ref: shared(&status.image_ref, pool),
            image_id: shared(&status.image_id, pool),
            log_path: text(status.log_path),
            resources: status
                .resources
                .and_then(|resources| resources.linux)
                .map(|linux| resources(linux, pool)),
            labels,
            annotations: self::labels(&status.annotations, pool),
        }),
    })
}

pub(crate) fn version(version: v1::VersionResponse) -> RuntimeVersion {
    RuntimeVersion {
        name: version.runtime_name,
        version: version.runtime_version,
        api: version.runtime_api_version,
    }
}

/// Domain → wire: which sandboxes a list shall show.
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

/// Domain → wire: which containers a list shall show.
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

/// Zero is what a running container has there, too.
pub(crate) fn exit_code(shown: Shown, code: i32) -> Option<i32> {
    (shown == Shown::Exited).then_some(code)
}

pub(crate) fn sandbox_shown(state: i32) -> Shown {
    sandbox_state(state).unwrap_or_else(unknown_number)
}

pub(crate) fn container_shown(state: i32) -> Shown {
    container_state(state).unwrap_or_else(unknown_number)
}

/// The state of a sandbox by its number; none by one that the contract does not know.
pub(crate) fn sandbox_state(state: i32) -> Option<Shown> {
    Some(match v1::PodSandboxState::try_from(state).ok()? {
        v1::PodSandboxState::SandboxReady => Shown::Running,
        v1::PodSandboxState::SandboxNotready => Shown::Exited,
    })
}

/// The state of a container, likewise.
pub(crate) fn container_state(state: i32) -> Option<Shown> {
    Some(match v1::ContainerState::try_from(state).ok()? {
        v1::ContainerState::ContainerCreated => Shown::Created,
        v1::ContainerState::ContainerRunning => Shown::Running,
        v1::ContainerState::ContainerExited => Shown::Exited,
        v1::ContainerState::ContainerUnknown => Shown::Unknown,
    })
}

fn unknown_number() -> Shown {
    Irregular::UnknownNumber.count();
    Shown::Unknown
}

fn sandbox_identity(
    metadata: Option<v1::PodSandboxMetadata>,
    labels: &Labels,
    created_at: i64,
    pool: &mut Pool,
) -> Identity {
    let metadata = metadata.unwrap_or_default();
    let labelled: Option<PodUid> = label(labels, POD_UID);
    let pod = non_empty(metadata.uid).or_else(|| labelled.clone());
    Identity {
        kind: Kind::Sandbox,
        unlabelled: labelled.is_none() || labelled != pod,
        pod,
        namespace: in_common(&metadata.namespace, labels, POD_NAMESPACE, pool),
        pod_name: non_empty(metadata.name).or_else(|| label(labels, POD_NAME)),
        sandbox: None,
        name: None,
        attempt: metadata.attempt,
        created_at: time(created_at),
    }
}

fn container_identity(
    metadata: Option<v1::ContainerMetadata>,
    labels: &Labels,
    created_at: i64,
    pool: &mut Pool,
) -> Identity {
    let metadata = metadata.unwrap_or_default();
    let pod = label(labels, POD_UID);
    Identity {
        kind: Kind::Container,
        unlabelled: pod.is_none(),
        pod,
        namespace: in_common("", labels, POD_NAMESPACE, pool),
        pod_name: label(labels, POD_NAME),
        sandbox: None,
        name: Some(shared(&metadata.name, pool)).filter(|name| !name.is_empty()),
        attempt: metadata.attempt,
        created_at: time(created_at),
    }
}

/// The addresses, the primary one first.
fn addresses(network: v1::PodSandboxNetworkStatus) -> Box<[Text]> {
    let additional = network.additional_ips.into_iter().map(|address| address.ip);
    let all = std::iter::once(network.ip).chain(additional);
    let said = all.filter(|said| !said.is_empty());
    said.filter_map(|said| address(&said)).collect()
}

pub(crate) fn address(said: &str) -> Option<Text> {
    let sane = said.parse::<IpAddr>().is_ok();
    if !sane {
        Irregular::AbsurdAddress.count();
    }
    sane.then(|| said.into())
}

fn resources(linux: v1::LinuxContainerResources, pool: &mut Pool) -> Arc<Resources> {
    let resources = Resources {
        cpu_period: linux.cpu_period,
        cpu_quota: linux.cpu_quota,
        cpu_shares: linux.cpu_shares,
        memory_limit: linux.memory_limit_in_bytes,
        memory_swap_limit: linux.memory_swap_limit_in_bytes,
        cpuset_cpus: shared(&linux.cpuset_cpus, pool),
        cpuset_mems: shared(&linux.cpuset_mems, pool),
        unified: labels(&linux.unified, pool),
    };
    pool.resources(resources)
}

fn id(id: String) -> Option<Id> {
    named(&id)?;
    Some(id.into())
}

/// Nothing, counted, if that names nothing.
pub(crate) fn named(id: &str) -> Option<&str> {
    if id.is_empty() {
        Irregular::NoId.count();
        return None;
    }
    Some(id)
}

/// Quirk `absurd created_at`: containerd ≥ 2 stamps the status in a sandbox's DELETED with the
/// nanoseconds of Go's zero time.
pub(crate) fn time(nanos: i64) -> Option<WallTime> {
    let time = WallTime::claimed(nanos);
    if time.is_none() {
        Irregular::AbsurdTime.count();
    }
    time
}

/// Zero is the regular way to say "not yet".
pub(crate) fn time_unless_zero(nanos: i64) -> Option<WallTime> {
    if nanos == 0 { None } else { time(nanos) }
}

fn labels(map: &BTreeMap<String, String>, pool: &mut Pool) -> Labels {
    let pairs = map.iter().map(|(k, v)| (k.as_bytes(), v.as_bytes()));
    let mut pairs: SmallVec<[Pair<'_>; 8]> = pairs.collect();
    // All of them are texts.
    pool.labels(&mut pairs).unwrap_or_default()
}

/// A text that many ids have in common.
fn shared(text: &str, pool: &mut Pool) -> Text {
    pool.text(text.as_bytes()).unwrap_or_default()
}

/// What is said, or else the label: a text that many ids have in common.
fn in_common(said: &str, labels: &Labels, key: &str, pool: &mut Pool) -> Option<Text> {
    let said = Some(said).filter(|said| !said.is_empty());
    let label = || labels.get(key).filter(|value| !value.is_empty());
    said.or_else(label).map(|text| shared(text, pool))
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

/// Empty text needs no allocation, and most texts are empty.
fn text(text: String) -> Text {
    if text.is_empty() {
        Text::default()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests;
