//! Upstream's reads: the two lists, and the statuses of a pod, one after the other.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use pleg_core::{CallError, CallErrorKind, Kind, PodUid, Report, ReportedState};
use pleg_runtime::{Row, Runtime, Scope};

use crate::record::Pod;
use crate::status::{PodStatus, newest_first};
use crate::time::Time;

/// The deadline of a call (runtimeRequestTimeout). An inspection has no deadline (C2).
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

async fn call<T>(
    operation: &'static str,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(answer) => answer,
        Err(_) => {
            let kind = CallErrorKind::DeadlineExceeded;
            Err(CallError::new(
                operation,
                kind,
                "no response within two minutes",
            ))
        }
    }
}

/// Lists sandboxes, then containers, and groups them by pod.
pub(crate) async fn list<R: Runtime>(
    runtime: &R,
    scope: &Scope,
    timestamp: Time,
) -> Result<Vec<Pod>, CallError> {
    let mut rows: Vec<Report> = Vec::new();
    let mut row = |row: Row<'_>| rows.extend(row.report());
    call("ListPodSandbox", runtime.list_sandboxes(scope, &mut row)).await?;
    call("ListContainers", runtime.list_containers(scope, &mut row)).await?;
    let mut pods: BTreeMap<PodUid, Pod> = BTreeMap::new();
    for report in rows {
        let Some(uid) = report.identity.pod.clone() else {
            // Without metadata the pod is unknown.
            continue;
        };
        let pod = pods.entry(uid).or_insert_with_key(|uid| Pod {
            uid: uid.clone(),
            namespace: report.identity.namespace.clone().unwrap_or_default(),
            name: report.identity.pod_name.clone().unwrap_or_default(),
            sandboxes: Vec::new(),
            containers: Vec::new(),
            timestamp,
        });
        match report.identity.kind {
            Kind::Sandbox => pod.sandboxes.push(report),
            Kind::Container => pod.containers.push(report),
        }
    }
    let mut pods: Vec<Pod> = pods.into_values().collect();
    for pod in &mut pods {
        newest_first(&mut pod.containers);
        pod.sandboxes.sort_by(|a, b| {
            let order = |r: &Report| (r.identity.attempt, r.identity.created_at, r.id.clone());
            order(b).cmp(&order(a))
        });
    }
    Ok(pods)
}

/// How the statuses of a pod are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InspectMode {
    /// All sandboxes, then all containers.
    Generic,
    /// With the feature gate EventedPLEG: the containers are read with the newest sandbox, so a pod
    /// without a sandbox, or whose sandbox was just removed, seems to have no containers (similar
    /// to A5).
    Evented,
}

/// Reads the statuses of a pod, one call after the other. NotFound omits a sandbox or container, any
/// other error fails the inspection of the pod (C2).
pub(crate) async fn inspect<R: Runtime>(
    runtime: &R,
    pod: &Pod,
    mode: InspectMode,
) -> Result<PodStatus, CallError> {
    let mut status = PodStatus::empty(pod.uid.clone());
    status.namespace = pod.namespace.clone();
    status.name = pod.name.clone();
    let mut newest_found = false;
    for (nth, row) in pod.sandboxes.iter().enumerate() {
        let read = call("PodSandboxStatus", runtime.sandbox_status(&row.id)).await;
        let Some(sandbox) = unless_not_found(read)? else {
            continue;
        };
        newest_found |= nth == 0;
        if nth == 0 && sandbox.shown == ReportedState::Running {
            status.ips = addresses(&sandbox);
        }
        status.sandboxes.push(sandbox);
    }
    if mode == InspectMode::Generic || newest_found {
        for row in &pod.containers {
            let read = call("ContainerStatus", runtime.container_status(&row.id)).await;
            status.containers.extend(unless_not_found(read)?);
        }
    }
    newest_first(&mut status.containers);
    let active = status.sandboxes.first();
    let active = active
        .filter(|s| s.shown == ReportedState::Running)
        .map(|s| &s.id);
    let is_active = |r: &&Report| active.is_some() && r.identity.sandbox.as_ref() == active;
    status.active = status
        .containers
        .iter()
        .filter(is_active)
        .map(|r| r.id.clone())
        .collect();
    Ok(status)
}

/// The addresses in the status of a sandbox.
pub(crate) fn addresses(sandbox: &Report) -> Vec<pleg_core::Text> {
    match &sandbox.details {
        pleg_core::Details::Sandbox(details) => details.ips.to_vec(),
        pleg_core::Details::Container(_) => Vec::new(),
    }
}

fn unless_not_found(read: Result<Report, CallError>) -> Result<Option<Report>, CallError> {
    match read {
        Ok(report) => Ok(Some(report)),
        Err(e) if e.kind == CallErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
