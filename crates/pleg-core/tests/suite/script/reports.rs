//! Reports of sandboxes and containers.

use pleg_core::{ContainerDetails, Details, Identity, Kind, Report, ReportedState, WallTime};

use super::WALL;

pub(crate) fn sandbox(id: &str, pod: &str, shown: ReportedState) -> Report {
    report(Kind::Sandbox, id, pod, shown)
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
