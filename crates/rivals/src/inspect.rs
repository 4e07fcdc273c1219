//! The runtime calls that upstream makes: the two lists and, for each changed pod, one status call after the other.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use pleg_core::{CallError, CallErrorKind, Kind, PodUid, Report};
use pleg_runtime::{Row, Runtime, Scope};

use crate::cache::PodStatus;

/// The deadline of one call (runtimeRequestTimeout). The inspection of a pod, with several calls, has no deadline.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

async fn call<T>(
    operation: &'static str,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let answer = tokio::time::timeout(CALL_TIMEOUT, call).await;
    answer.unwrap_or_else(|_| {
        let (kind, text) = (CallErrorKind::DeadlineExceeded, "no response in time");
        Err(CallError::new(operation, kind, text))
    })
}

/// Lists sandboxes, then containers, and groups them by pod.
pub(crate) async fn list<R: Runtime>(
    runtime: &R,
    scope: &Scope,
) -> Result<Vec<PodStatus>, CallError> {
    let mut rows: Vec<Report> = Vec::new();
    let mut row = |row: Row<'_>| rows.extend(row.report());
    call("ListPodSandbox", runtime.list_sandboxes(scope, &mut row)).await?;
    call("ListContainers", runtime.list_containers(scope, &mut row)).await?;
    let mut pods: BTreeMap<PodUid, PodStatus> = BTreeMap::new();
    for report in rows {
        let Some(uid) = report.identity.pod.clone() else {
            // A row without metadata names no pod.
            continue;
        };
        let pod = pods.entry(uid).or_insert_with_key(|uid| PodStatus {
            uid: uid.clone(),
            namespace: report.identity.namespace.clone().unwrap_or_default(),
            name: report.identity.pod_name.clone().unwrap_or_default(),
            sandboxes: Vec::new(),
            containers: Vec::new(),
        });
        match report.identity.kind {
            Kind::Sandbox => pod.sandboxes.push(report),
            Kind::Container => pod.containers.push(report),
        }
    }
    let mut pods: Vec<PodStatus> = pods.into_values().collect();
    for pod in &mut pods {
        newest_first(&mut pod.containers);
        pod.sandboxes.sort_by(|a, b| {
            let order = |r: &Report| (r.identity.attempt, r.identity.created_at, r.id.clone());
            order(b).cmp(&order(a))
        });
    }
    Ok(pods)
}

/// Reads the statuses of a listed pod, one call after the other. If a call returns NotFound, the sandbox or container
/// is left out; after any other error the inspection of the pod fails.
pub(crate) async fn inspect<R: Runtime>(
    runtime: &R,
    pod: &PodStatus,
) -> Result<PodStatus, CallError> {
    let (mut sandboxes, mut containers) = (Vec::new(), Vec::new());
    for row in &pod.sandboxes {
        let read = call("PodSandboxStatus", runtime.sandbox_status(&row.id)).await;
        sandboxes.extend(unless_not_found(read)?);
    }
    for row in &pod.containers {
        let read = call("ContainerStatus", runtime.container_status(&row.id)).await;
        containers.extend(unless_not_found(read)?);
    }
    newest_first(&mut containers);
    Ok(PodStatus {
        uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        sandboxes,
        containers,
    })
}

fn newest_first(containers: &mut [Report]) {
    containers.sort_by_key(|r| std::cmp::Reverse(r.identity.created_at));
}

fn unless_not_found(read: Result<Report, CallError>) -> Result<Option<Report>, CallError> {
    match read {
        Ok(report) => Ok(Some(report)),
        Err(e) if e.kind == CallErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
