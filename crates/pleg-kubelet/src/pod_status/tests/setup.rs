//! Input of `pod_status`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::actions::PodPhase;
use crate::plan::Observed;
use crate::pod_status::{PodState, pod_status, waiting};
use k8s_openapi::api::core::v1::{ContainerStateWaiting, Pod, PodStatus};
use pleg::core::{SandboxDetails, SandboxStatus, Text};
use pleg::{ContainerState, ContainerStatus, Exit, Id, PodUid, PodView, WallTime};
use serde_json::{Value, json};

use crate::notation;

/// 2026-07-01T10:00:00Z
pub(crate) const NOW: WallTime = WallTime::from_nanos(1_782_900_000_000_000_000);

/// The time `seconds` before `NOW`.
pub(crate) fn ago(seconds: u64) -> Option<WallTime> {
    Some(NOW.before(Duration::from_secs(seconds)))
}

#[derive(Default)]
pub(crate) struct Node {
    pub(crate) pod: Value,
    pub(crate) sandboxes: Vec<SandboxStatus>,
    pub(crate) containers: Vec<ContainerStatus>,
    pub(crate) ips: Vec<&'static str>,
    pub(crate) ended: Vec<Exit>,
    pub(crate) previous: Value,
    pub(crate) messages: BTreeMap<Id, String>,
    pub(crate) waiting: BTreeMap<String, ContainerStateWaiting>,
    pub(crate) replaced: BTreeSet<String>,
    pub(crate) unread: BTreeSet<Id>,
    pub(crate) host_ips: Vec<IpAddr>,
    pub(crate) terminal: bool,
}

impl Node {
    /// A pod with this specification (by default its container is `app`), sandboxes and containers, in the notation of
    /// the tests.
    pub(crate) fn of(spec: &str, containers: &str) -> Self {
        let spec = match spec.contains(' ') {
            true => notation::spec(spec),
            false => notation::spec(&format!("{spec} app")),
        };
        let mut sandboxes = notation::pod("u-1", containers).sandboxes.to_vec();
        for sandbox in &mut sandboxes {
            let mut details = SandboxDetails::default();
            details.ips = [Text::from("10.0.0.7")].into();
            sandbox.details = Arc::new(details);
        }
        let metadata = json!({"name": "web", "namespace": "shop", "uid": "u-1"});
        Self {
            pod: json!({"metadata": metadata, "spec": spec}),
            sandboxes,
            containers: in_detail(containers),
            ips: vec!["10.0.0.7"],
            host_ips: vec![IpAddr::from([192, 168, 0, 1])],
            ..Self::default()
        }
    }

    /// Makes the container `app` wait for its restart.
    pub(crate) fn waits(mut self) -> Self {
        let waiting = waiting("CrashLoopBackOff", "back-off".to_owned());
        self.waiting.insert("app".to_owned(), waiting);
        self
    }

    pub(crate) fn before(mut self, status: Value) -> Self {
        self.previous = status;
        self
    }

    pub(crate) fn deleted(mut self) -> Self {
        self.pod["metadata"]["deletionTimestamp"] = json!("2026-07-01T09:00:00Z");
        self
    }

    pub(crate) fn status(&self) -> Value {
        let pod: Pod = serde_json::from_value(self.pod.clone()).unwrap();
        let previous: Option<PodStatus> = serde_json::from_value(self.previous.clone()).unwrap();
        let mut status = pleg::PodStatus::nothing(PodUid::from("u-1"));
        status.sandboxes = self.sandboxes.clone().into();
        status.containers = self.containers.clone().into();
        status.ips = self.ips.iter().map(|&ip| Text::from(ip)).collect();
        let observed = Observed {
            view: PodView::new(Arc::new(status), None, None),
            probes: None,
            ended: self.ended.clone().into(),
            unread: self.unread.clone(),
            waiting: BTreeMap::new(),
            replaced: self.replaced.clone(),
            phase: self.terminal.then_some(PodPhase::Failed),
            is_terminated: self.terminal,
        };
        let made = pod_status(PodState {
            pod: &pod,
            observed: &observed,
            previous: previous.as_ref(),
            messages: &self.messages,
            waiting: &self.waiting,
            runtime: "containerd",
            host_ips: &self.host_ips,
            now: NOW,
        });
        serde_json::to_value(made).unwrap()
    }

    pub(crate) fn phase(&self) -> Value {
        self.status()["phase"].clone()
    }

    /// The status of the first container.
    pub(crate) fn app(&self) -> Value {
        self.status()["containerStatuses"][0].clone()
    }
}

/// Containers from the notation of the tests. Running ones started a minute ago; exited ones exited half a minute ago.
fn in_detail(words: &str) -> Vec<ContainerStatus> {
    let mut containers = notation::pod("u-1", words).containers.to_vec();
    for container in &mut containers {
        let details = Arc::make_mut(&mut container.details);
        (details.image, details.image_ref) = ("shop:1".into(), "shop@sha256:1".into());
        details.image_id = "sha256:9".into();
        if container.state == ContainerState::Running || details.exit_code.is_some() {
            details.started_at = ago(60);
        }
        if container.state == ContainerState::Exited {
            details.finished_at = ago(30);
        }
        details.reason = match details.exit_code {
            Some(0) => "Completed".into(),
            Some(_) => "Error".into(),
            None => "".into(),
        };
    }
    containers
}
