//! Makes reports of sandboxes and containers, with ids made from the pod's uid and a name.

use std::sync::Arc;

use pleg_core::{
    ContainerDetails, Details, Identity, Kind, Report, ReportedState, Resources, SandboxDetails,
    WallTime,
};

/// A sandbox of the pod `uid`, with the id `UID-NAME`.
#[must_use]
pub fn sandbox(uid: &str, name: &str, shown: ReportedState) -> Report {
    report(Kind::Sandbox, uid, name, shown)
}

/// A container of the pod `uid`, with the id `UID-NAME`, in the sandbox `UID-s`.
#[must_use]
pub fn container(uid: &str, name: &str, shown: ReportedState) -> Report {
    report(Kind::Container, uid, name, shown)
}

/// A container that has exited with the exit code `code`.
#[must_use]
pub fn exited(uid: &str, name: &str, code: i32) -> Report {
    let mut details = ContainerDetails::default();
    details.exit_code = Some(code);
    details.reason = if code == 0 { "Completed" } else { "Error" }.into();
    with_details(container(uid, name, ReportedState::Exited), details)
}

/// Returns `sandbox` with these addresses.
#[must_use]
pub fn with_ips(sandbox: Report, ips: &[&str]) -> Report {
    let mut details = SandboxDetails::default();
    details.ips = ips.iter().map(|&ip| ip.into()).collect();
    with_details(sandbox, details)
}

/// Returns `container` with this memory limit, in bytes.
#[must_use]
pub fn with_memory_limit(container: Report, limit: i64) -> Report {
    let mut resources = Resources::default();
    resources.memory_limit = limit;
    let mut details = ContainerDetails::default();
    details.resources = Some(Arc::new(resources));
    with_details(container, details)
}

fn with_details(mut report: Report, details: impl Into<Details>) -> Report {
    report.details = details.into();
    report
}

fn report(kind: Kind, uid: &str, name: &str, shown: ReportedState) -> Report {
    let is_container = kind == Kind::Container;
    let mut identity = Identity::new(kind);
    identity.pod = Some(uid.into());
    identity.namespace = Some("ns".into());
    identity.pod_name = Some(uid.into());
    identity.sandbox = is_container.then(|| format!("{uid}-s").into());
    identity.name = is_container.then(|| name.into());
    identity.created_at = WallTime::claimed(1_700_000_000_000_000_000);
    let id = format!("{uid}-{name}");
    Report::new(id, shown, identity, Details::none(kind))
}
