//! The state of the node: sandboxes, containers, names and images.
//!
//! Pure: no I/O, no clock (the time is an argument), no events. The engine sends the events of a
//! change, and `views` converts the state to CRI messages.

use std::collections::BTreeMap;

use pleg_cri::v1::{self, ContainerState, NamespaceMode};

use crate::{
    error::CallError,
    id::{Rng, image_id},
    programs::ExitStatus,
    script::{START_FAILED, Script},
};

/// Everything on the node.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) sandboxes: BTreeMap<String, Sandbox>,
    pub(crate) containers: BTreeMap<String, Container>,
    pub(crate) images: BTreeMap<String, v1::Image>,
    /// The number of items that list calls have visited.
    pub(crate) visited: u64,
    /// Reserved names, and the ids that hold them.
    names: BTreeMap<String, String>,
    rng: Rng,
    addresses: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    pub(crate) config: v1::PodSandboxConfig,
    pub(crate) handler: String,
    pub(crate) ready: bool,
    pub(crate) created_at: i64,
    /// `None` on the host network, and after the network is released.
    pub(crate) ip: Option<String>,
    /// The removal has begun: containerd 2's controller has removed it, its store has not.
    pub(crate) removing: bool,
    name: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) sandbox: String,
    pub(crate) config: v1::ContainerConfig,
    pub(crate) state: ContainerState,
    pub(crate) created_at: i64,
    pub(crate) started_at: i64,
    pub(crate) finished_at: i64,
    pub(crate) exit_code: i32,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) resources: Option<v1::LinuxContainerResources>,
    name: String,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
            images: BTreeMap::new(),
            visited: 0,
            names: BTreeMap::new(),
            rng: Rng::new(seed),
            addresses: 0,
        }
    }

    // === sandboxes ===

    /// Creates a sandbox, which is ready immediately.
    pub(crate) fn run_sandbox(
        &mut self,
        config: v1::PodSandboxConfig,
        handler: String,
        now: i64,
    ) -> Result<String, CallError> {
        let metadata = config
            .metadata
            .as_ref()
            .ok_or(CallError::Missing("sandbox metadata"))?;
        let name = sandbox_name(metadata);
        if let Some(by) = self.names.get(&name) {
            return Err(CallError::SandboxNameTaken {
                name,
                by: by.clone(),
            });
        }
        let id = self.rng.id();
        self.names.insert(name.clone(), id.clone());
        let ip = (!on_host_network(&config)).then(|| self.address());
        let sandbox = Sandbox {
            config,
            handler,
            ready: true,
            created_at: now,
            ip,
            removing: false,
            name,
        };
        self.sandboxes.insert(id.clone(), sandbox);
        Ok(id)
    }

    /// The pause process has exited. Returns false if that is known or the sandbox does not exist.
    pub(crate) fn sandbox_exited(&mut self, id: &str) -> bool {
        let sandbox = self.sandboxes.get_mut(id);
        sandbox.is_some_and(|s| std::mem::replace(&mut s.ready, false))
    }

    /// Releases the network address.
    pub(crate) fn release_address(&mut self, id: &str) {
        if let Some(sandbox) = self.sandboxes.get_mut(id) {
            sandbox.ip = None;
        }
    }

    /// Begins the removal. Returns false if it has begun or the sandbox does not exist.
    pub(crate) fn begin_removal(&mut self, id: &str) -> bool {
        let sandbox = self.sandboxes.get_mut(id);
        sandbox.is_some_and(|s| !std::mem::replace(&mut s.removing, true))
    }

    /// Removes the sandbox and releases its name.
    pub(crate) fn delete_sandbox(&mut self, id: &str) {
        if let Some(sandbox) = self.sandboxes.remove(id) {
            self.names.remove(&sandbox.name);
        }
    }

    pub(crate) fn sandbox(&self, id: &str) -> Result<&Sandbox, CallError> {
        self.sandboxes
            .get(id)
            .ok_or_else(|| CallError::NoSandbox(id.to_owned()))
    }

    /// The uid of the pod that a sandbox or container belongs to.
    pub(crate) fn pod_of(&self, id: &str) -> Option<String> {
        let sandbox = self.containers.get(id).map_or(id, |c| c.sandbox.as_str());
        let metadata = self.sandboxes.get(sandbox)?.config.metadata.as_ref();
        metadata.map(|m| m.uid.clone())
    }

    /// Whether its containers share the process namespace of its pause process.
    pub(crate) fn shares_processes(&self, id: &str) -> bool {
        let namespaces = self.sandboxes.get(id).and_then(|s| namespaces(&s.config));
        namespaces.is_some_and(|n| n.pid() == NamespaceMode::Pod)
    }

    // === containers ===

    pub(crate) fn create_container(
        &mut self,
        sandbox_id: &str,
        config: v1::ContainerConfig,
        now: i64,
    ) -> Result<String, CallError> {
        let sandbox = self.sandbox(sandbox_id)?;
        if !sandbox.ready || sandbox.removing {
            return Err(CallError::SandboxNotReady(sandbox_id.to_owned()));
        }
        let metadata = config
            .metadata
            .as_ref()
            .ok_or(CallError::Missing("container metadata"))?;
        let pod = sandbox.config.metadata.clone().unwrap_or_default();
        let name = [
            metadata.name.as_str(),
            &pod.name,
            &pod.namespace,
            &pod.uid,
            &metadata.attempt.to_string(),
        ]
        .join("_");
        if let Some(by) = self.names.get(&name) {
            return Err(CallError::ContainerNameTaken {
                name,
                by: by.clone(),
            });
        }
        let id = self.rng.id();
        self.names.insert(name.clone(), id.clone());
        let container = Container {
            sandbox: sandbox_id.to_owned(),
            resources: config.linux.as_ref().and_then(|l| l.resources.clone()),
            config,
            state: ContainerState::ContainerCreated,
            created_at: now,
            started_at: 0,
            finished_at: 0,
            exit_code: 0,
            reason: "",
            message: String::new(),
            name,
        };
        self.containers.insert(id.clone(), container);
        Ok(id)
    }

    /// Starts a container and returns what its program does. A failed start leaves it exited.
    pub(crate) fn start_container(&mut self, id: &str, now: i64) -> Result<Script, CallError> {
        let container = self.container(id)?;
        if container.state != ContainerState::ContainerCreated {
            return Err(CallError::WrongState(container.state.as_str_name()));
        }
        if !self.sandbox(&container.sandbox)?.ready {
            return Err(CallError::SandboxNotReady(container.sandbox.clone()));
        }
        let container = self.container_mut(id)?;
        let script = Script::parse(&container.config);
        if script == Script::FailStart {
            let error = CallError::StartFailed(id.to_owned());
            container.state = ContainerState::ContainerExited;
            container.finished_at = now;
            container.exit_code = START_FAILED;
            container.reason = "StartError";
            container.message = error.to_string();
            return Err(error);
        }
        container.state = ContainerState::ContainerRunning;
        container.started_at = now;
        Ok(script)
    }

    /// The program has exited. Returns the sandbox of the container, unless the exit is known.
    pub(crate) fn container_exited(
        &mut self,
        id: &str,
        exit: ExitStatus,
        now: i64,
    ) -> Option<String> {
        let container = self.containers.get_mut(id)?;
        if container.state != ContainerState::ContainerRunning {
            return None;
        }
        container.state = ContainerState::ContainerExited;
        container.finished_at = now;
        container.exit_code = exit.code;
        container.reason = exit.reason;
        Some(container.sandbox.clone())
    }

    /// Sets the reason of an exit that is known only later.
    pub(crate) fn set_exit_reason(&mut self, id: &str, reason: &'static str) {
        if let Some(container) = self.containers.get_mut(id) {
            container.reason = reason;
        }
    }

    /// Removes the container and releases its name. Returns the sandbox it belonged to.
    pub(crate) fn delete_container(&mut self, id: &str) -> Option<String> {
        let container = self.containers.remove(id)?;
        self.names.remove(&container.name);
        Some(container.sandbox)
    }

    pub(crate) fn container(&self, id: &str) -> Result<&Container, CallError> {
        self.containers
            .get(id)
            .ok_or_else(|| CallError::NoContainer(id.to_owned()))
    }

    pub(crate) fn container_mut(&mut self, id: &str) -> Result<&mut Container, CallError> {
        self.containers
            .get_mut(id)
            .ok_or_else(|| CallError::NoContainer(id.to_owned()))
    }

    pub(crate) fn containers_of(&self, sandbox: &str) -> Vec<String> {
        let matching = self.containers.iter().filter(|(_, c)| c.sandbox == sandbox);
        matching.map(|(id, _)| id.clone()).collect()
    }

    // === images ===

    /// Pulls an image and returns its id.
    pub(crate) fn pull(&mut self, spec: v1::ImageSpec) -> Result<String, CallError> {
        if spec.image.is_empty() {
            return Err(CallError::Missing("image"));
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

    /// By name or id.
    pub(crate) fn image(&self, name: &str) -> Option<&v1::Image> {
        self.images
            .get(name)
            .or_else(|| self.images.values().find(|i| i.id == name))
    }

    /// By name or id.
    pub(crate) fn remove_image(&mut self, name: &str) {
        self.images
            .retain(|tag, image| tag != name && image.id != name);
    }

    fn address(&mut self) -> String {
        self.addresses = self.addresses.wrapping_add(1);
        let [_, b, c, d] = self.addresses.to_be_bytes();
        format!("10.{}.{c}.{d}", 88_u8.wrapping_add(b))
    }
}

fn sandbox_name(metadata: &v1::PodSandboxMetadata) -> String {
    let v1::PodSandboxMetadata {
        name,
        namespace,
        uid,
        attempt,
    } = metadata;
    format!("{name}_{namespace}_{uid}_{attempt}")
}

fn on_host_network(config: &v1::PodSandboxConfig) -> bool {
    namespaces(config).is_some_and(|n| n.network() == NamespaceMode::Node)
}

pub(crate) fn namespaces(config: &v1::PodSandboxConfig) -> Option<&v1::NamespaceOption> {
    config
        .linux
        .as_ref()?
        .security_context
        .as_ref()?
        .namespace_options
        .as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> v1::PodSandboxConfig {
        let metadata = v1::PodSandboxMetadata {
            name: name.into(),
            uid: format!("uid-{name}"),
            namespace: "default".into(),
            attempt: 0,
        };
        v1::PodSandboxConfig {
            metadata: Some(metadata),
            ..Default::default()
        }
    }

    fn container(name: &str, command: &[&str]) -> v1::ContainerConfig {
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: name.into(),
                attempt: 0,
            }),
            command: command.iter().map(ToString::to_string).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn name_is_reserved_until_sandbox_is_removed() {
        let mut world = World::new(1);
        let id = world.run_sandbox(pod("a"), String::new(), 10).unwrap();
        let taken = world.run_sandbox(pod("a"), String::new(), 11).unwrap_err();
        assert!(
            taken
                .to_string()
                .contains("failed to reserve sandbox name \"a_default_uid-a_0\"")
        );
        assert!(taken.to_string().contains(&id));
        assert!(world.sandbox_exited(&id));
        assert!(!world.sandbox_exited(&id), "reported once");
        assert!(
            world.run_sandbox(pod("a"), String::new(), 12).is_err(),
            "still reserved"
        );
        world.delete_sandbox(&id);
        let again = world.run_sandbox(pod("a"), String::new(), 13).unwrap();
        assert_ne!(id, again, "ids are never reused");
    }

    #[test]
    fn container_state_only_moves_forward() {
        let mut world = World::new(1);
        let sandbox = world.run_sandbox(pod("a"), String::new(), 10).unwrap();
        let id = world
            .create_container(&sandbox, container("c", &[]), 11)
            .unwrap();
        assert!(matches!(
            world.create_container(&sandbox, container("c", &[]), 11),
            Err(CallError::ContainerNameTaken { .. })
        ));
        assert_eq!(world.start_container(&id, 12), Ok(Script::Run));
        let again = world.start_container(&id, 13).unwrap_err();
        assert_eq!(again.to_string(), "container is in CONTAINER_RUNNING state");
        assert_eq!(
            world.container_exited(&id, ExitStatus::from_code(3), 14),
            Some(sandbox.clone())
        );
        assert_eq!(
            world.container_exited(&id, ExitStatus::from_code(4), 15),
            None
        );
        let c = world.container(&id).unwrap();
        assert_eq!((c.exit_code, c.reason, c.finished_at), (3, "Error", 14));
        assert_eq!(world.delete_container(&id), Some(sandbox));
        assert_eq!(world.delete_container(&id), None);
    }

    #[test]
    fn failed_start_leaves_exited_container() {
        let mut world = World::new(1);
        let sandbox = world.run_sandbox(pod("a"), String::new(), 10).unwrap();
        let id = world
            .create_container(&sandbox, container("c", &["fail-start"]), 11)
            .unwrap();
        assert!(matches!(
            world.start_container(&id, 12),
            Err(CallError::StartFailed(_))
        ));
        let c = world.container(&id).unwrap();
        assert_eq!(
            (c.exit_code, c.reason, c.started_at),
            (128, "StartError", 0)
        );
        world.sandbox_exited(&sandbox);
        assert!(matches!(
            world.create_container(&sandbox, container("d", &[]), 13),
            Err(CallError::SandboxNotReady(_))
        ));
    }
}
