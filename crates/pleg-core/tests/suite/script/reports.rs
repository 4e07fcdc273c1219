//! Reports of sandboxes and containers.

use pleg_core::{
    CallError, CallErrorKind, ContainerDetails, Details, Identity, Kind, Report, ReportedState,
    Resources, SandboxDetails, WallTime,
};

use super::WALL;

pub(crate) fn sandbox(id: &str, pod: &str, shown: ReportedState) -> Report {
    report(Kind::Sandbox, id, pod, shown)
}

/// The ready sandbox "s" of the pod "p".
pub(crate) fn ready() -> Report {
    sandbox("s", "p", ReportedState::Running)
}

/// The same, as in an event.
pub(crate) fn s() -> Option<Report> {
    Some(ready())
}

/// The list rows of that sandbox and its container "c".
pub(crate) fn rows(c: ReportedState) -> [Report; 2] {
    [ready(), container("c", "p", c)]
}

/// The statuses of that sandbox and its container "c".
pub(crate) fn statuses(c: ReportedState) -> [Report; 2] {
    [ready(), status("c", "p", c)]
}

/// A list row of a container in the sandbox "s".
pub(crate) fn container(id: &str, pod: &str, shown: ReportedState) -> Report {
    let mut report = report(Kind::Container, id, pod, shown);
    report.identity.sandbox = Some("s".into());
    report
}

/// A container status, which does not name the sandbox.
pub(crate) fn status(id: &str, pod: &str, shown: ReportedState) -> Report {
    report(Kind::Container, id, pod, shown)
}

pub(crate) fn exited(id: &str, pod: &str, code: i32, reason: &str) -> Report {
    let mut details = ContainerDetails::default();
    details.exit_code = Some(code);
    details.finished_at = Some(WallTime::from_nanos(WALL));
    details.reason = reason.into();
    let mut report = status(id, pod, ReportedState::Exited);
    report.details = details.into();
    report
}

/// The same with addresses in its status.
pub(crate) fn with_ips(mut report: Report, ips: &[&str]) -> Report {
    let mut details = SandboxDetails::default();
    details.ips = ips.iter().map(|&ip| ip.into()).collect();
    report.details = details.into();
    report
}

/// The same with a memory limit in its status.
pub(crate) fn with_memory_limit(mut report: Report, limit: i64) -> Report {
    let mut resources = Resources::default();
    resources.memory_limit = limit;
    let mut details = ContainerDetails::default();
    details.resources = Some(resources.into());
    report.details = details.into();
    report
}

/// A list row has no details.
pub(super) fn list_row(report: &Report) -> Report {
    let mut row = report.clone();
    row.details = Details::none(report.identity.kind);
    row
}

/// The error of a call that the runtime refused.
pub(crate) fn failure(what: &str) -> CallError {
    CallError::new("Inspect", CallErrorKind::Failed, what)
}

/// A report with id and state only.
pub(crate) fn nameless(mut report: Report) -> Report {
    report.identity = Identity::new(report.identity.kind);
    report.identity.unlabelled = true;
    report
}

fn report(kind: Kind, id: &str, pod: &str, shown: ReportedState) -> Report {
    let mut identity = Identity::new(kind);
    identity.pod = Some(pod.into());
    identity.namespace = Some("ns".into());
    identity.pod_name = Some(pod.into());
    identity.created_at = Some(WallTime::from_nanos(WALL));
    identity.name = (kind == Kind::Container).then(|| id.into());
    Report::new(id, shown, identity, Details::none(kind))
}
