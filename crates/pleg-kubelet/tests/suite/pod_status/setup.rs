//! What a status is made from.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStateWaiting, Pod, PodStatus};
use pleg::core::{ContainerDetails, SandboxDetails, SandboxState, SandboxStatus, Text};
use pleg::{ContainerState, ContainerStatus, Exit, Id, PodUid, PodView, WallTime};
use pleg_kubelet::pod_status::{PodState, pod_status};
use pleg_kubelet::probe::ProbeResults;
use serde_json::{Value, json};

/// 2026-07-01T10:00:00Z
pub(crate) const NOW: WallTime = WallTime::from_nanos(1_782_900_000_000_000_000);

/// That many seconds before `NOW`.
pub(crate) fn ago(seconds: u64) -> Option<WallTime> {
    Some(NOW.before(Duration::from_secs(seconds)))
}

/// A node with one pod.
pub(crate) struct Node {
    pub(crate) pod: Value,
    pub(crate) sandboxes: Vec<SandboxStatus>,
    pub(crate) containers: Vec<ContainerStatus>,
    pub(crate) ips: Vec<&'static str>,
    pub(crate) ended: Vec<Exit>,
    pub(crate) previous: Option<Value>,
    pub(crate) messages: BTreeMap<Id, String>,
    pub(crate) waiting: BTreeMap<String, ContainerStateWaiting>,
    pub(crate) replaced: BTreeSet<String>,
    pub(crate) unread: BTreeSet<Id>,
    pub(crate) probes: Option<ProbeResults>,
    pub(crate) host_ips: Vec<IpAddr>,
    pub(crate) terminal: bool,
}

impl Node {
    /// A pod with that specification, its sandbox, and no container.
    pub(crate) fn new(spec: Value) -> Self {
        let mut sandbox = SandboxStatus::new("s1", SandboxState::Ready);
        let mut details = SandboxDetails::default();
        details.ips = [Text::from("10.0.0.7")].into();
        sandbox.details = Arc::new(details);
        Self {
            pod: json!({
                "metadata": {"name": "web", "namespace": "shop", "uid": "u-1"},
                "spec": spec,
            }),
            sandboxes: vec![sandbox],
            containers: Vec::new(),
            ips: vec!["10.0.0.7"],
            ended: Vec::new(),
            previous: None,
            messages: BTreeMap::new(),
            waiting: BTreeMap::new(),
            replaced: BTreeSet::new(),
            unread: BTreeSet::new(),
            probes: None,
            host_ips: vec![IpAddr::from([192, 168, 0, 1])],
            terminal: false,
        }
    }

    /// A pod of one container, `app`, with that restart policy.
    pub(crate) fn one(restart_policy: &str) -> Self {
        Self::new(json!({
            "restartPolicy": restart_policy,
            "containers": [{"name": "app", "image": "shop:1"}],
        }))
    }

    pub(crate) fn with(mut self, container: ContainerStatus) -> Self {
        self.containers.push(container);
        self
    }

    pub(crate) fn waits(mut self, name: &str, reason: &str, message: &str) -> Self {
        let waiting = ContainerStateWaiting {
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()).filter(|m| !m.is_empty()),
        };
        self.waiting.insert(name.to_owned(), waiting);
        self
    }

    pub(crate) fn before(mut self, status: Value) -> Self {
        self.previous = Some(status);
        self
    }

    pub(crate) fn status(&self) -> Value {
        let pod: Pod = serde_json::from_value(self.pod.clone()).unwrap_or_default();
        assert!(pod.spec.is_some(), "not a pod: {}", self.pod);
        let previous = self.previous.clone();
        let previous = previous.map(|p| serde_json::from_value::<PodStatus>(p).unwrap_or_default());
        let mut status = pleg::PodStatus::nothing(PodUid::from("u-1"));
        status.sandboxes = self.sandboxes.clone().into();
        status.containers = self.containers.clone().into();
        status.ips = self.ips.iter().map(|&ip| Text::from(ip)).collect();
        let made = pod_status(&PodState {
            pod: &pod,
            view: &PodView::new(Arc::new(status), None, None),
            ended: &self.ended,
            unread: &self.unread,
            previous: previous.as_ref(),
            messages: &self.messages,
            waiting: &self.waiting,
            replaced: &self.replaced,
            probes: self.probes.as_ref(),
            runtime: "containerd",
            host_ips: &self.host_ips,
            terminal: self.terminal,
            now: NOW,
        });
        serde_json::to_value(made).unwrap_or_default()
    }

    pub(crate) fn phase(&self) -> String {
        self.status()["phase"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// The status of the container `app`.
    pub(crate) fn app(&self) -> Value {
        self.status()["containerStatuses"][0].clone()
    }
}

/// A container `NAME-ATTEMPT` with its image.
pub(crate) fn container(
    name: &str,
    attempt: u32,
    state: ContainerState,
    change: impl FnOnce(&mut ContainerDetails),
) -> ContainerStatus {
    let mut status = ContainerStatus::new(&*format!("{name}-{attempt}"), name, state);
    status.attempt = attempt;
    let mut details = ContainerDetails::default();
    (details.image, details.image_ref) = ("shop:1".into(), "shop@sha256:1".into());
    details.image_id = "sha256:9".into();
    change(&mut details);
    status.details = Arc::new(details);
    status
}

pub(crate) fn running(name: &str, attempt: u32) -> ContainerStatus {
    container(name, attempt, ContainerState::Running, |d| {
        d.started_at = ago(60);
    })
}

pub(crate) fn exited(name: &str, attempt: u32, code: i32) -> ContainerStatus {
    container(name, attempt, ContainerState::Exited, |d| {
        (d.started_at, d.finished_at) = (ago(60), ago(30));
        d.exit_code = Some(code);
        d.reason = if code == 0 {
            "Completed".into()
        } else {
            "Error".into()
        };
    })
}
