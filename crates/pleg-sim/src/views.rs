//! The state of the node as CRI messages: statuses, list items, filters. The module has no I/O.

use std::collections::BTreeMap;

use pleg_cri::v1;
use pleg_node_model::{Due, EventType, GO_ZERO_TIME, Kind, Object, Status as Shown};
use tonic::Status;

use crate::{
    error::not_found,
    id::image_id,
    world::{World, namespaces},
};

impl World {
    /// The sandbox that an event belongs to, and the event with the current statuses and without a timestamp. `None` if
    /// the runtime sends no event.
    pub(crate) fn event(&self, due: &Due) -> Option<(String, v1::ContainerEventResponse)> {
        let event = self.node.event(due, self.node.latest())?;
        let sandbox = self.sandbox_of(&due.subject);
        let containers = event.containers.iter().map(|status| match status {
            Some(status) => self.message(status),
            None => v1::ContainerStatus::default(),
        });
        let kind = match due.what {
            EventType::Created => v1::ContainerEventType::ContainerCreatedEvent,
            EventType::Started => v1::ContainerEventType::ContainerStartedEvent,
            EventType::Stopped => v1::ContainerEventType::ContainerStoppedEvent,
            EventType::Deleted => v1::ContainerEventType::ContainerDeletedEvent,
        };
        let event = v1::ContainerEventResponse {
            container_id: due.subject.to_string(),
            container_event_type: kind.into(),
            created_at: 0,
            pod_sandbox_status: self.sandbox_status(&sandbox).ok(),
            containers_statuses: containers.collect(),
        };
        Some((sandbox, event))
    }

    /// The statuses of the sandbox's containers, newest first as in CRI-O.
    pub(crate) fn statuses_of(&self, sandbox: &str) -> Vec<v1::ContainerStatus> {
        let ids = self.node.containers_of(sandbox).into_iter();
        let mut statuses: Vec<_> = ids.flat_map(|id| self.container_status(&id)).collect();
        statuses.sort_by_key(|c| std::cmp::Reverse(c.created_at));
        statuses
    }

    pub(crate) fn sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus, Status> {
        let sandbox = self.sandbox(id)?;
        let options = namespaces(&sandbox.config).cloned();
        let state = match self.is_ready(id) {
            true => v1::PodSandboxState::SandboxReady,
            false => v1::PodSandboxState::SandboxNotready,
        };
        Ok(v1::PodSandboxStatus {
            id: id.to_owned(),
            metadata: sandbox.config.metadata.clone(),
            state: state.into(),
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
        let status = self.node.status(id, Kind::Container, self.node.latest());
        let status = status.map(|status| self.message(&status));
        status.ok_or_else(|| not_found("container", id))
    }

    /// Converts the status of an existing container to a CRI message.
    fn message(&self, status: &Shown) -> v1::ContainerStatus {
        let id = status.row.id.to_string();
        let (Ok(container), Ok(state)) = (self.container(&id), self.container_state(&id)) else {
            return v1::ContainerStatus::default();
        };
        let (config, resources) = (&container.config, container.resources.clone());
        let image_id = config.image.as_ref().map(|i| image_id(&i.image));
        let image_id = image_id.unwrap_or_default();
        v1::ContainerStatus {
            id,
            metadata: config.metadata.clone(),
            state: state.into(),
            created_at: status.row.created_at,
            started_at: status.started_at,
            finished_at: status.finished_at,
            exit_code: status.exit_code.unwrap_or_default(),
            image: config.image.clone(),
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

    fn created_at(&self, id: &str) -> i64 {
        self.node.object(id).map_or(0, Object::created_at)
    }

    /// The sandboxes that match the filter.
    ///
    /// Visits every sandbox, as containerd does, which converts everything on the node and filters afterwards. So a
    /// list costs the same with and without a filter. Do not add an index: a client that sends filtered lists would
    /// then look cheaper in benchmarks than it is on real runtimes.
    pub(crate) fn sandbox_rows(
        &mut self,
        filter: Option<v1::PodSandboxFilter>,
    ) -> Vec<v1::PodSandbox> {
        self.visited += self.sandboxes.len() as u64;
        let f = filter.unwrap_or_default();
        let statuses = { self.sandboxes.keys() }.flat_map(|id| self.sandbox_status(id));
        let rows = statuses.map(|status| v1::PodSandbox {
            created_at: self.created_at(&status.id),
            id: status.id,
            metadata: status.metadata,
            state: status.state,
            labels: status.labels,
            annotations: status.annotations,
            runtime_handler: status.runtime_handler,
        });
        let matching = rows.filter(|row| {
            (f.id.is_empty() || f.id == row.id)
                && f.state.is_none_or(|s| s.state == row.state)
                && labels_match(&f.label_selector, &row.labels)
        });
        matching.collect()
    }

    /// The containers that match the filter. Visits every container, as [`World::sandbox_rows`] visits every sandbox.
    pub(crate) fn container_rows(
        &mut self,
        filter: Option<v1::ContainerFilter>,
    ) -> Vec<v1::Container> {
        self.visited += self.containers.len() as u64;
        let f = filter.unwrap_or_default();
        let statuses = { self.containers.keys() }.flat_map(|id| self.container_status(id));
        let rows = statuses.map(|status| v1::Container {
            pod_sandbox_id: self.sandbox_of(&status.id),
            id: status.id,
            metadata: status.metadata,
            image: status.image,
            image_ref: status.image_ref,
            state: status.state,
            created_at: status.created_at,
            labels: status.labels,
            annotations: status.annotations,
            image_id: status.image_id,
        });
        let matching = rows.filter(|row| {
            (f.id.is_empty() || f.id == row.id)
                && (f.pod_sandbox_id.is_empty() || f.pod_sandbox_id == row.pod_sandbox_id)
                && f.state.is_none_or(|s| s.state == row.state)
                && labels_match(&f.label_selector, &row.labels)
        });
        matching.collect()
    }
}

/// Returns true if the image has the name or id `name`.
pub(crate) fn is_image(image: &v1::Image, name: &str) -> bool {
    image.id == name || image.repo_tags.iter().any(|tag| tag == name)
}

fn labels_match(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    let mut wanted = selector.iter();
    wanted.all(|(key, value)| labels.get(key) == Some(value))
}
