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

use pleg_runtime::core::{
    ContainerDetails, Details, EventType, Id, Identity, Kind, Labels, PodUid, Report, Resources,
    RuntimeEvent, SandboxDetails, Shown, Text, WallTime,
};
use pleg_runtime::{RuntimeVersion, Scope};

use crate::metrics::Irregular;
use crate::v1;

/// The labels by which the kubelet names a container's pod; the metadata of a container has none
/// of it.
const POD_UID: &str = "io.kubernetes.pod.uid";
const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";

/// A message of the event stream; `None` if it names nothing.
pub fn event(event: v1::ContainerEventResponse) -> Option<RuntimeEvent> {
    let id = id(event.container_id)?;
    let what = match v1::ContainerEventType::try_from(event.container_event_type) {
        Ok(v1::ContainerEventType::ContainerCreatedEvent) => EventType::Created,
        Ok(v1::ContainerEventType::ContainerStartedEvent) => EventType::Started,
        Ok(v1::ContainerEventType::ContainerStoppedEvent) => EventType::Stopped,
        Ok(v1::ContainerEventType::ContainerDeletedEvent) => EventType::Deleted,
        Err(_) => {
            Irregular::UnknownNumber.count();
            EventType::Other(event.container_event_type)
        }
    };
    // Quirk `nil sandbox status`: normal for a sandbox's DELETED of containerd 1.7.
    let sandbox = event.pod_sandbox_status.and_then(sandbox_status);
    if sandbox.is_none() {
        Irregular::NoSandboxStatus.count();
    }
    // Quirk `empty container statuses`: elements without an id (cri-o#9663).
    let containers: Vec<_> = event
        .containers_statuses
        .into_iter()
        .filter_map(container_status)
        .collect();
    let mut shown = sandbox.iter().chain(&containers);
    if what != EventType::Deleted && !shown.any(|report| report.id == id) {
        Irregular::NoSubjectStatus.count();
    }
    Some(RuntimeEvent {
        id,
        event: what,
        created_at: event.created_at,
        sandbox,
        containers,
    })
}

/// A row of `ListPodSandbox`; `None` if it names nothing.
pub fn sandbox_row(row: v1::PodSandbox) -> Option<Report> {
    let labels = labels(row.labels);
    Some(Report {
        id: id(row.id)?,
        shown: sandbox_shown(row.state),
        identity: sandbox_identity(row.metadata, &labels, row.created_at),
        details: Details::Sandbox(SandboxDetails {
            ips: Vec::new(),
            runtime_handler: text(row.runtime_handler),
            labels,
            annotations: self::labels(row.annotations),
        }),
    })
}

/// The status of a sandbox; `None` if it names nothing.
pub fn sandbox_status(status: v1::PodSandboxStatus) -> Option<Report> {
    let labels = labels(status.labels);
    Some(Report {
        id: id(status.id)?,
        shown: sandbox_shown(status.state),
        identity: sandbox_identity(status.metadata, &labels, status.created_at),
        details: Details::Sandbox(SandboxDetails {
            ips: status.network.map(addresses).unwrap_or_default(),
            runtime_handler: text(status.runtime_handler),
            labels,
            annotations: self::labels(status.annotations),
        }),
    })
}

/// A row of `ListContainers`; `None` if it names nothing.
pub fn container_row(row: v1::Container) -> Option<Report> {
    let labels = labels(row.labels);
    let identity = Identity {
        sandbox: non_empty(row.pod_sandbox_id),
        ..container_identity(row.metadata, &labels, row.created_at)
    };
    Some(Report {
        id: id(row.id)?,
        shown: container_shown(row.state),
        identity,
        details: Details::Container(ContainerDetails {
            image: text(row.image.unwrap_or_default().image),
            image_ref: text(row.image_ref),
            image_id: text(row.image_id),
            labels,
            annotations: self::labels(row.annotations),
            ..ContainerDetails::default()
        }),
    })
}

/// The status of a container; `None` if it names nothing. It does not say which sandbox the
/// container is in: CRI v1 has no such field.
pub fn container_status(status: v1::ContainerStatus) -> Option<Report> {
    let labels = labels(status.labels);
    let shown = container_shown(status.state);
    Some(Report {
        id: id(status.id)?,
        shown,
        identity: container_identity(status.metadata, &labels, status.created_at),
        details: Details::Container(ContainerDetails {
            started_at: time_unless_zero(status.started_at),
            finished_at: time_unless_zero(status.finished_at),
            // Zero is what a running container has there, too.
            exit_code: (shown == Shown::Exited).then_some(status.exit_code),
            reason: text(status.reason),
            message: text(status.message),
            image: text(status.image.unwrap_or_default().image),
            image_ref: text(status.image_ref),
            image_id: text(status.image_id),
            log_path: text(status.log_path),
            resources: status
                .resources
                .and_then(|resources| resources.linux)
                .map(resources),
            labels,
            annotations: self::labels(status.annotations),
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
        Scope::Sandbox(id) => Some(v1::PodSandboxFilter {
            id: id.to_string(),
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
        Scope::Sandbox(id) => Some(v1::ContainerFilter {
            pod_sandbox_id: id.to_string(),
            ..filter
        }),
    }
}

fn pod_selector(uid: &PodUid) -> BTreeMap<String, String> {
    BTreeMap::from([(POD_UID.to_owned(), uid.to_string())])
}

fn sandbox_shown(state: i32) -> Shown {
    sandbox_state(state).unwrap_or_else(unknown_number)
}

fn container_shown(state: i32) -> Shown {
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
) -> Identity {
    let metadata = metadata.unwrap_or_default();
    Identity {
        kind: Kind::Sandbox,
        pod: non_empty(metadata.uid).or_else(|| label(labels, POD_UID)),
        namespace: non_empty(metadata.namespace).or_else(|| label(labels, POD_NAMESPACE)),
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
) -> Identity {
    let metadata = metadata.unwrap_or_default();
    Identity {
        kind: Kind::Container,
        pod: label(labels, POD_UID),
        namespace: label(labels, POD_NAMESPACE),
        pod_name: label(labels, POD_NAME),
        sandbox: None,
        name: non_empty(metadata.name),
        attempt: metadata.attempt,
        created_at: time(created_at),
    }
}

/// The addresses, the primary one first.
fn addresses(network: v1::PodSandboxNetworkStatus) -> Vec<Text> {
    let additional = network.additional_ips.into_iter().map(|address| address.ip);
    let is_address = |address: &String| {
        let sane = address.parse::<IpAddr>().is_ok();
        if !sane {
            Irregular::AbsurdAddress.count();
        }
        sane
    };
    let all = std::iter::once(network.ip)
        .chain(additional)
        .filter(|address| !address.is_empty());
    all.filter(is_address).map(Text::from).collect()
}

fn resources(linux: v1::LinuxContainerResources) -> Resources {
    Resources {
        cpu_period: linux.cpu_period,
        cpu_quota: linux.cpu_quota,
        cpu_shares: linux.cpu_shares,
        memory_limit: linux.memory_limit_in_bytes,
        memory_swap_limit: linux.memory_swap_limit_in_bytes,
        cpuset_cpus: text(linux.cpuset_cpus),
        cpuset_mems: text(linux.cpuset_mems),
        unified: labels(linux.unified),
    }
}

fn id(id: String) -> Option<Id> {
    let id = non_empty(id);
    if id.is_none() {
        Irregular::NoId.count();
    }
    id
}

/// Quirk `absurd created_at`: containerd ≥ 2 stamps the status in a sandbox's DELETED with the
/// nanoseconds of Go's zero time.
fn time(nanos: i64) -> Option<WallTime> {
    let time = WallTime::claimed(nanos);
    if time.is_none() {
        Irregular::AbsurdTime.count();
    }
    time
}

/// Zero is the regular way to say "not yet".
fn time_unless_zero(nanos: i64) -> Option<WallTime> {
    if nanos == 0 { None } else { time(nanos) }
}

fn labels(map: BTreeMap<String, String>) -> Labels {
    if map.is_empty() {
        return Labels::default();
    }
    Labels::new(
        map.into_iter()
            .map(|(key, value)| (text(key), text(value)))
            .collect(),
    )
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
