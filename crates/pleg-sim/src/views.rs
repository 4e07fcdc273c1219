//! The state of the node as CRI messages: statuses, list items, filters. Pure.

use std::collections::BTreeMap;

use pleg_cri::v1;

use crate::{
    error::CallError,
    id::image_id,
    profile::{GO_ZERO_TIME, StatusScope},
    world::{Container, Sandbox, World, namespaces},
};

/// The label by which CRI-O finds the containers of a pod.
const POD_UID: &str = "io.kubernetes.pod.uid";

/// The statuses that an event of a sandbox carries: that of the sandbox, if it exists, and those of
/// containers.
pub(crate) type Snapshot = (Option<v1::PodSandboxStatus>, Vec<v1::ContainerStatus>);

impl World {
    pub(crate) fn snapshot(&self, id: &str, scope: StatusScope) -> Snapshot {
        let sandbox = self.sandboxes.get(id);
        let containers = match scope {
            StatusScope::Sandbox => self.statuses(|c| c.sandbox == id),
            StatusScope::Pod => {
                let metadata = sandbox.and_then(|s| s.config.metadata.as_ref());
                let uid = metadata.map_or("", |m| m.uid.as_str());
                self.statuses(|c| c.config.labels.get(POD_UID).is_some_and(|l| l == uid))
            }
        };
        (sandbox.map(|s| s.status(id)), containers)
    }

    /// The statuses of the sandbox's containers.
    pub(crate) fn statuses_of(&self, sandbox: &str) -> Vec<v1::ContainerStatus> {
        self.statuses(|c| c.sandbox == sandbox)
    }

    /// Newest first, as in CRI-O; containerd has no order.
    fn statuses(&self, of: impl Fn(&Container) -> bool) -> Vec<v1::ContainerStatus> {
        let matching = self.containers.iter().filter(|(_, c)| of(c));
        let mut statuses: Vec<_> = matching.map(|(id, c)| c.status(id)).collect();
        statuses.sort_by_key(|c| std::cmp::Reverse(c.created_at));
        statuses
    }

    pub(crate) fn sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus, CallError> {
        self.sandbox(id).map(|s| s.status(id))
    }

    pub(crate) fn container_status(&self, id: &str) -> Result<v1::ContainerStatus, CallError> {
        self.container(id).map(|c| c.status(id))
    }

    /// The sandboxes that match the filter. See [`scan`] for the cost.
    pub(crate) fn sandbox_rows(
        &mut self,
        filter: Option<&v1::PodSandboxFilter>,
    ) -> Vec<v1::PodSandbox> {
        scan(&self.sandboxes, &mut self.visited, Sandbox::row, |row| {
            filter.is_none_or(|f| {
                (f.id.is_empty() || f.id == row.id)
                    && f.state.as_ref().is_none_or(|s| s.state == row.state)
                    && labels_match(&f.label_selector, &row.labels)
            })
        })
    }

    /// The containers that match the filter. See [`scan`] for the cost.
    pub(crate) fn container_rows(
        &mut self,
        filter: Option<&v1::ContainerFilter>,
    ) -> Vec<v1::Container> {
        scan(&self.containers, &mut self.visited, Container::row, |row| {
            filter.is_none_or(|f| {
                (f.id.is_empty() || f.id == row.id)
                    && (f.pod_sandbox_id.is_empty() || f.pod_sandbox_id == row.pod_sandbox_id)
                    && f.state.as_ref().is_none_or(|s| s.state == row.state)
                    && labels_match(&f.label_selector, &row.labels)
            })
        })
    }

    /// All images, or those with that name or id.
    pub(crate) fn image_rows(&self, filter: Option<&v1::ImageFilter>) -> Vec<v1::Image> {
        let name = filter
            .and_then(|f| f.image.as_ref())
            .map(|i| i.image.as_str());
        match name.filter(|n| !n.is_empty()) {
            Some(name) => self.image(name).cloned().into_iter().collect(),
            None => self.images.values().cloned().collect(),
        }
    }
}

impl Sandbox {
    fn state(&self) -> v1::PodSandboxState {
        if self.ready {
            v1::PodSandboxState::SandboxReady
        } else {
            v1::PodSandboxState::SandboxNotready
        }
    }

    fn status(&self, id: &str) -> v1::PodSandboxStatus {
        let options = namespaces(&self.config).cloned();
        v1::PodSandboxStatus {
            id: id.to_owned(),
            metadata: self.config.metadata.clone(),
            state: self.state().into(),
            created_at: if self.removing {
                GO_ZERO_TIME
            } else {
                self.created_at
            },
            network: Some(v1::PodSandboxNetworkStatus {
                ip: self.ip.clone().unwrap_or_default(),
                additional_ips: Vec::new(),
            }),
            linux: Some(v1::LinuxPodSandboxStatus {
                namespaces: Some(v1::Namespace { options }),
            }),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.handler.clone(),
        }
    }

    fn row(&self, id: &str) -> v1::PodSandbox {
        v1::PodSandbox {
            id: id.to_owned(),
            metadata: self.config.metadata.clone(),
            state: self.state().into(),
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            runtime_handler: self.handler.clone(),
        }
    }
}

impl Container {
    fn image(&self) -> (Option<v1::ImageSpec>, String) {
        let id = self.config.image.as_ref().map(|i| image_id(&i.image));
        (self.config.image.clone(), id.unwrap_or_default())
    }

    fn status(&self, id: &str) -> v1::ContainerStatus {
        let (image, image_id) = self.image();
        v1::ContainerStatus {
            id: id.to_owned(),
            metadata: self.config.metadata.clone(),
            state: self.state.into(),
            created_at: self.created_at,
            started_at: self.started_at,
            finished_at: self.finished_at,
            exit_code: self.exit_code,
            image,
            image_ref: image_id.clone(),
            reason: self.reason.to_owned(),
            message: self.message.clone(),
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            mounts: self.config.mounts.clone(),
            log_path: self.config.log_path.clone(),
            resources: self
                .resources
                .clone()
                .map(|r| v1::ContainerResources { linux: Some(r) }),
            image_id,
            user: None,
            stop_signal: self.config.stop_signal,
        }
    }

    fn row(&self, id: &str) -> v1::Container {
        let (image, image_id) = self.image();
        v1::Container {
            id: id.to_owned(),
            pod_sandbox_id: self.sandbox.clone(),
            metadata: self.config.metadata.clone(),
            image,
            image_ref: image_id.clone(),
            state: self.state.into(),
            created_at: self.created_at,
            labels: self.config.labels.clone(),
            annotations: self.config.annotations.clone(),
            image_id,
        }
    }
}

/// Converts every item to a list item, keeps those that match, and counts the items visited.
///
/// containerd does the same: it converts everything on the node and filters afterwards. So a list
/// costs the same with and without a filter, and no index may make it cheaper: a client that sends
/// filtered lists would look cheaper in benchmarks than it is.
fn scan<T, R>(
    items: &BTreeMap<String, T>,
    visited: &mut u64,
    row: impl Fn(&T, &str) -> R,
    matches: impl Fn(&R) -> bool,
) -> Vec<R> {
    let mut rows = Vec::new();
    for (id, item) in items {
        *visited += 1;
        let row = row(item, id);
        if matches(&row) {
            rows.push(row);
        }
    }
    rows
}

fn labels_match(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}
