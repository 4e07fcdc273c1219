//! The state of the node: the model of its sandboxes and containers, and the data that only CRI messages have:
//! configurations, addresses and images.
//!
//! The module has no I/O and no clock: the engine sets the time. The engine sends the events of a change, and `views`
//! converts the state to CRI messages.

use std::collections::BTreeMap;

use pleg_cri::v1::{self, ContainerState, NamespaceMode};
use pleg_node_model::{
    Due, EventType, Id, Label, NewContainer, Node, Pod, Profile, Refused, SandboxDeleted, State,
    Step,
};
use tonic::Status;

use crate::{
    error::{missing, name_taken, not_found, sandbox_not_ready, wrong_state},
    id::{Rng, image_id},
    programs::ExitStatus,
    script::Script,
};

/// The label by which CRI-O finds a pod's containers for an event.
const POD_UID: &str = "io.kubernetes.pod.uid";

pub(crate) struct World {
    pub(crate) node: Node,
    /// The sandboxes and containers that exist.
    pub(crate) sandboxes: BTreeMap<String, Sandbox>,
    pub(crate) containers: BTreeMap<String, Container>,
    pub(crate) images: BTreeMap<String, v1::Image>,
    /// The number of items that list calls have visited.
    pub(crate) visited: u64,
    /// The wall clock, in nanoseconds.
    pub(crate) now: i64,
    rng: Rng,
    addresses: u32,
}

pub(crate) struct Sandbox {
    pub(crate) config: v1::PodSandboxConfig,
    pub(crate) handler: String,
    /// The address of the sandbox; `None` on the host network, and after the network is released.
    pub(crate) ip: Option<String>,
    /// True once the removal has begun. As in containerd 2, statuses then show `GO_ZERO_TIME` as the creation time.
    pub(crate) removing: bool,
}

pub(crate) struct Container {
    pub(crate) config: v1::ContainerConfig,
    pub(crate) message: String,
    pub(crate) resources: Option<v1::LinuxContainerResources>,
}

impl World {
    pub(crate) fn new(seed: u64, profile: Profile) -> Self {
        Self {
            node: Node::new(profile),
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
            images: BTreeMap::new(),
            visited: 0,
            now: 0,
            rng: Rng::new(seed),
            addresses: 0,
        }
    }

    /// Returns the next change's instant, which is a counter, not a time. Sets the model's wall clock to `self.now`.
    fn next(&mut self) -> u64 {
        let at = self.node.latest() + 1;
        self.node.step_wall(self.now - self.node.wall(at));
        at
    }

    // === sandboxes ===

    pub(crate) fn run_sandbox(
        &mut self,
        config: v1::PodSandboxConfig,
        handler: String,
    ) -> Result<(String, Vec<Due>), Status> {
        let metadata = config.metadata.as_ref();
        let metadata = metadata.ok_or_else(|| missing("sandbox metadata"))?;
        let pod = Pod::new(&metadata.uid, &metadata.namespace, &metadata.name);
        let (id, at) = (self.rng.id(), self.next());
        let events = self.node.run_sandbox(&id, &pod, metadata.attempt, at);
        let events = events.map_err(|refused| match refused {
            Refused::NameTaken(by) => name_taken("sandbox", &reserved(metadata), &by),
            other => Status::unknown(other.to_string()),
        })?;
        let namespaces = namespaces(&config);
        if let Some(sandbox) = self.node.object_mut(&id) {
            sandbox.shares_processes = namespaces.is_some_and(|n| n.pid() == NamespaceMode::Pod);
        }
        let on_host = namespaces.is_some_and(|n| n.network() == NamespaceMode::Node);
        let sandbox = Sandbox {
            ip: (!on_host).then(|| self.address()),
            config,
            handler,
            removing: false,
        };
        self.sandboxes.insert(id.clone(), sandbox);
        Ok((id, events))
    }

    /// Does one step of stopping or removing a sandbox. Returns no events if there is nothing to do.
    pub(crate) fn step(&mut self, step: &Step) -> Vec<Due> {
        let at = self.next();
        self.node.step(step, at)
    }

    /// Begins the removal of a sandbox. Returns the events to send now: DELETED of containerd 2. `None` if the removal
    /// has begun already, or the sandbox does not exist.
    pub(crate) fn begin_removal(&mut self, id: &str) -> Option<Vec<Due>> {
        let sandbox = self.sandboxes.get_mut(id)?;
        if std::mem::replace(&mut sandbox.removing, true) {
            return None;
        }
        Some(match self.node.profile().sandbox_deleted {
            SandboxDeleted::BeforeRemoval => self.step(&Step::Announce(id.into())),
            SandboxDeleted::AfterRemoval | SandboxDeleted::Never => Vec::new(),
        })
    }

    /// Removes the sandbox and releases its name.
    pub(crate) fn delete_sandbox(&mut self, id: &str) -> Vec<Due> {
        self.sandboxes.remove(id);
        self.step(&Step::RemoveSandbox(id.into()))
    }

    pub(crate) fn sandbox(&self, id: &str) -> Result<&Sandbox, Status> {
        let sandbox = self.sandboxes.get(id);
        sandbox.ok_or_else(|| not_found("sandbox", id))
    }

    pub(crate) fn is_ready(&self, sandbox: &str) -> bool {
        self.node.state(sandbox) == Some(State::Running)
    }

    /// CRI-O starts a pause process only if the containers share its process namespace.
    pub(crate) fn has_pause_process(&self, sandbox: &str) -> bool {
        !self.node.profile().drops_infra_container || self.shares_processes(sandbox)
    }

    pub(crate) fn shares_processes(&self, sandbox: &str) -> bool {
        let sandbox = self.node.object(sandbox);
        sandbox.is_some_and(|o| o.shares_processes)
    }

    // === containers ===

    pub(crate) fn create_container(
        &mut self,
        sandbox: &str,
        config: v1::ContainerConfig,
    ) -> Result<(String, Vec<Due>), Status> {
        let pod = self.sandbox(sandbox)?.config.metadata.clone();
        let pod = pod.unwrap_or_default();
        let metadata = config.metadata.as_ref();
        let metadata = metadata.ok_or_else(|| missing("container metadata"))?;
        let (name, attempt) = (&metadata.name, metadata.attempt);
        let (id, at) = (self.rng.id(), self.next());
        let new = NewContainer {
            attempt,
            label: match config.labels.get(POD_UID) {
                Some(uid) if *uid == pod.uid => Label::Right,
                Some(other) => Label::Wrong(other.as_str().into()),
                None => Label::Missing,
            },
            ..NewContainer::new(&id, sandbox, name)
        };
        let events = self.node.create_container(new, at);
        let events = events.map_err(|refused| match refused {
            Refused::NameTaken(by) => {
                let pod = v1::PodSandboxMetadata { attempt, ..pod };
                name_taken("container", &format!("{name}_{}", reserved(&pod)), &by)
            }
            _ => sandbox_not_ready(sandbox),
        })?;
        let container = Container {
            resources: config.linux.as_ref().and_then(|l| l.resources.clone()),
            config,
            message: String::new(),
        };
        self.containers.insert(id.clone(), container);
        Ok((id, events))
    }

    /// Starts a container and returns what its program does. A container that fails to start is kept as exited
    /// (containerd) or removed (CRI-O).
    pub(crate) fn start_container(&mut self, id: &str) -> Result<(Script, Vec<Due>), Status> {
        let config = &self.container(id)?.config;
        let script = Script::parse(&config.command, &config.args);
        let state = self.container_state(id)?;
        let at = self.next();
        let started = match script {
            Script::FailStart => self.node.fail_start(&id.into(), at).map(|()| Vec::new()),
            _ => self.node.start(&id.into(), at),
        };
        let events = started.map_err(|_| match state {
            ContainerState::ContainerCreated => sandbox_not_ready(&self.sandbox_of(id)),
            state => wrong_state(state),
        })?;
        if script != Script::FailStart {
            return Ok((script, events));
        }
        let error = format!(
            "failed to start container {id:?}: failed to create containerd task: no such program"
        );
        if self.node.state(id) == Some(State::Removed) {
            self.containers.remove(id);
            self.node.forget(id);
        } else if let Some(container) = self.containers.get_mut(id) {
            container.message.clone_from(&error);
        }
        Err(Status::unknown(error))
    }

    /// Records that the program has exited. Returns no events if the exit is already known.
    pub(crate) fn container_exited(&mut self, id: &str, exit: ExitStatus) -> Vec<Due> {
        let (id, at) = (Id::from(id), self.next());
        match exit {
            ExitStatus::OOM => self.node.oom_kill(&id, u64::MAX, at),
            ExitStatus { code, reason } => self.node.exit(&id, code, reason, at),
        }
    }

    /// Removes the container and releases its name. CRI-O sends no event if the container is removed with its sandbox.
    pub(crate) fn delete_container(&mut self, id: &str, with_sandbox: bool) -> Vec<Due> {
        self.containers.remove(id);
        let (id, at) = (Id::from(id), self.next());
        match with_sandbox {
            true => self.node.step(&Step::Remove(id), at),
            false => self.node.remove_container(&id, at),
        }
    }

    /// The DELETED event that CRI-O up to 1.27.0 sends when a container stops.
    pub(crate) fn deleted_on_stop(&self, id: &str) -> Vec<Due> {
        match self.node.profile().deleted_on_stop && self.containers.contains_key(id) {
            true => self.node.due(EventType::Deleted, &id.into()),
            false => Vec::new(),
        }
    }

    pub(crate) fn container(&self, id: &str) -> Result<&Container, Status> {
        let container = self.containers.get(id);
        container.ok_or_else(|| not_found("container", id))
    }

    pub(crate) fn container_state(&self, id: &str) -> Result<ContainerState, Status> {
        self.container(id)?;
        Ok(match self.node.state(id) {
            Some(State::Created) => ContainerState::ContainerCreated,
            Some(State::Running) => ContainerState::ContainerRunning,
            _ => ContainerState::ContainerExited,
        })
    }

    pub(crate) fn sandbox_of(&self, id: &str) -> String {
        let container = self.node.object(id);
        container.map_or_else(String::new, |c| c.sandbox_id().to_string())
    }

    // === images ===

    pub(crate) fn pull(&mut self, spec: v1::ImageSpec) -> Result<String, Status> {
        if spec.image.is_empty() {
            return Err(missing("image"));
        }
        let id = image_id(&spec.image);
        let image = v1::Image {
            id: id.clone(),
            repo_tags: vec![spec.image.clone()],
            size: 1 << 20,
            spec: Some(spec.clone()),
            ..Default::default()
        };
        self.images.insert(spec.image, image);
        Ok(id)
    }

    fn address(&mut self) -> String {
        self.addresses = self.addresses.wrapping_add(1);
        let [_, b, c, d] = self.addresses.to_be_bytes();
        format!("10.{}.{c}.{d}", 88_u8.wrapping_add(b))
    }
}

/// The name that containerd reserves for a sandbox.
fn reserved(pod: &v1::PodSandboxMetadata) -> String {
    format!("{}_{}_{}_{}", pod.name, pod.namespace, pod.uid, pod.attempt)
}

pub(crate) fn namespaces(config: &v1::PodSandboxConfig) -> Option<&v1::NamespaceOption> {
    let security = config.linux.as_ref()?.security_context.as_ref()?;
    security.namespace_options.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_follow_wall_clock_when_it_steps_back() {
        let mut world = World::new(1, Profile::containerd("2.1.0"));
        world.now = 1_000;
        let mut pod = v1::PodSandboxConfig::default();
        pod.metadata.get_or_insert_default();
        let (s, _) = world.run_sandbox(pod, String::new()).unwrap();
        world.now = 500;
        let mut container = v1::ContainerConfig::default();
        container.metadata.get_or_insert_default();
        let (c, _) = world.create_container(&s, container).unwrap();
        world.start_container(&c).unwrap();
        world.now = 2_000;
        world.container_exited(&c, ExitStatus::from_code(3));
        let status = world.container_status(&c).unwrap();
        let times = [status.created_at, status.started_at, status.finished_at];
        assert_eq!(times, [500, 500, 2_000]);
        assert_eq!(world.sandbox_status(&s).unwrap().created_at, 1_000);
    }
}
