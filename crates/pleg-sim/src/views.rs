//! The state of the node as CRI messages: statuses, list items, filters. Pure.

use std::collections::BTreeMap;

use pleg_cri::v1;
use pleg_node_model::{Due, GO_ZERO_TIME, Object, Source, Status as Shown};
use tonic::Status;

use crate::{
    error::no_container,
    id::image_id,
    world::{Container, World, namespaces},
};

/// The statuses that an event carries: that of the sandbox, if it exists, and those of containers.
pub(crate) type Snapshot = (Option<v1::PodSandboxStatus>, Vec<v1::ContainerStatus>);

impl World {
    /// The sandbox of an event, and the present statuses that the event carries. `None` if the runtime sends
    /// no event.
    pub(crate) fn snapshot(&self, due: &Due) -> Option<(String, Snapshot)> {
        let event = self.node.event(due, self.node.latest())?;
        let sandbox = self.sandbox_of(&due.subject);
        let containers = event.containers.iter().map(|status| match status {
            Some(status) => self.message(status),
            None => v1::ContainerStatus::default(),
        });
        let status = self.sandbox_status(&sandbox).ok();
        Some((sandbox, (status, containers.collect())))
    }

    /// The statuses of the sandbox's containers, newest first as in CRI-O.
    pub(crate) fn statuses_of(&self, sandbox: &str) -> Vec<v1::ContainerStatus> {
        let containers = self.containers_of(sandbox).into_iter();
        let mut statuses: Vec<_> = containers
            .flat_map(|id| self.container_status(&id))
            .collect();
        statuses.sort_by_key(|c| std::cmp::Reverse(c.created_at));
        statuses
    }

    pub(crate) fn sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus, Status> {
        let sandbox = self.sandbox(id)?;
        let options = namespaces(&sandbox.config).cloned();
        Ok(v1::PodSandboxStatus {
            id: id.to_owned(),
            metadata: sandbox.config.metadata.clone(),
            state: self.sandbox_state(id).into(),
            created_at: match sandbox.removing {
                true => GO_ZERO_TIME,
                false => self.created_at(id),
            },
            network: Some(v1::PodSandboxNetworkStatus {
                ip: sandbox.ip.clone().unwrap_or_default(),
                additional_ips: Vec::new(),
            }),
            linux: Some(v1::LinuxPodSandboxStatus {
                namespaces: Some(v1::Namespace { options }),
            }),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
            runtime_handler: sandbox.handler.clone(),
        })
    }

    pub(crate) fn container_status(&self, id: &str) -> Result<v1::ContainerStatus, Status> {
        let container = self.node.object(id);
        let status = container.and_then(|c| c.status(self.node.latest(), Source::Status));
        self.container(id)?;
        let status = status.ok_or_else(|| no_container(id))?;
        Ok(self.message(&status))
    }

    /// The status of a container that exists, as a message.
    fn message(&self, status: &Shown) -> v1::ContainerStatus {
        let id = status.row.id.to_string();
        let (Ok(container), Ok(state)) = (self.container(&id), self.container_state(&id)) else {
            return v1::ContainerStatus::default();
        };
        let (image, image_id) = container.image();
        let (config, resources) = (&container.config, container.resources.clone());
        v1::ContainerStatus {
            id,
            metadata: config.metadata.clone(),
            state: state.into(),
            created_at: status.row.created_at,
            started_at: status.started_at,
            finished_at: status.finished_at,
            exit_code: status.exit_code.unwrap_or_default(),
            image,
            image_ref: image_id.clone(),
            reason: status.reason.to_owned(),
            message: container.message.clone(),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            mounts: config.mounts.clone(),
            log_path: config.log_path.clone(),
            resources: resources.map(|r| v1::ContainerResources { linux: Some(r) }),
            image_id,
            user: None,
            stop_signal: config.stop_signal,
        }
    }

    fn sandbox_state(&self, id: &str) -> v1::PodSandboxState {
        match self.is_ready(id) {
            true => v1::PodSandboxState::SandboxReady,
            false => v1::PodSandboxState::SandboxNotready,
        }
    }

    fn created_at(&self, id: &str) -> i64 {
        self.node.object(id).map_or(0, Object::created_at)
    }

    /// The sandboxes that match the filter.
    ///
    /// This visits every sandbox. containerd does the same: it converts everything on the node and filters
    /// afterwards. So a list costs the same with and without a filter, and no index may make it cheaper: a
    /// client that sends filtered lists would look cheaper in benchmarks than it is.
    pub(crate) fn sandbox_rows(
        &mut self,
        filter: Option<v1::PodSandboxFilter>,
    ) -> Vec<v1::PodSandbox> {
        self.visited += self.sandboxes.len() as u64;
        let f = filter.unwrap_or_default();
        let rows = self.sandboxes.iter().map(|(id, sandbox)| v1::PodSandbox {
            id: id.clone(),
            metadata: sandbox.config.metadata.clone(),
            state: self.sandbox_state(id).into(),
            created_at: self.created_at(id),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
            runtime_handler: sandbox.handler.clone(),
        });
        let matching = rows.filter(|row| {
            (f.id.is_empty() || f.id == row.id)
                && f.state.is_none_or(|s| s.state == row.state)
                && labels_match(&f.label_selector, &row.labels)
        });
        matching.collect()
    }

    /// The containers that match the filter. This visits every container, as [`World::sandbox_rows`] does
    /// with sandboxes.
    pub(crate) fn container_rows(
        &mut self,
        filter: Option<v1::ContainerFilter>,
    ) -> Vec<v1::Container> {
        self.visited += self.containers.len() as u64;
        let f = filter.unwrap_or_default();
        let rows = self.containers.iter().map(|(id, container)| {
            let (image, image_id) = container.image();
            let state = self.container_state(id).unwrap_or_default();
            v1::Container {
                id: id.clone(),
                pod_sandbox_id: self.sandbox_of(id),
                metadata: container.config.metadata.clone(),
                image,
                image_ref: image_id.clone(),
                state: state.into(),
                created_at: self.created_at(id),
                labels: container.config.labels.clone(),
                annotations: container.config.annotations.clone(),
                image_id,
            }
        });
        let matching = rows.filter(|row| {
            (f.id.is_empty() || f.id == row.id)
                && (f.pod_sandbox_id.is_empty() || f.pod_sandbox_id == row.pod_sandbox_id)
                && f.state.is_none_or(|s| s.state == row.state)
                && labels_match(&f.label_selector, &row.labels)
        });
        matching.collect()
    }

    /// All images, or those with that name or id.
    pub(crate) fn image_rows(&self, filter: Option<v1::ImageFilter>) -> Vec<v1::Image> {
        let name = filter.and_then(|f| f.image).unwrap_or_default().image;
        let images = self.images.values();
        let named = images.filter(|image| name.is_empty() || is_image(image, &name));
        named.cloned().collect()
    }
}

/// Returns true if the image has that name or id.
pub(crate) fn is_image(image: &v1::Image, name: &str) -> bool {
    image.id == name || image.repo_tags.iter().any(|tag| tag == name)
}

impl Container {
    fn image(&self) -> (Option<v1::ImageSpec>, String) {
        let id = self.config.image.as_ref().map(|i| image_id(&i.image));
        (self.config.image.clone(), id.unwrap_or_default())
    }
}

fn labels_match(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}
