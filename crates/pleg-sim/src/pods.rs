//! The calls that change pods and containers. Each changes the state and then sends events.
//!
//! The node model says which events a change causes.

use std::{sync::Arc, time::Duration};

use pleg_cri::v1::{self, ContainerState};
use pleg_node_model::Due;

use crate::{
    engine::Engine, error::CallError, programs::ExitStatus, refusals, script::KILLED, world::World,
};

impl Engine {
    /// Sends the events of a change, one after the other.
    pub(crate) async fn emit_all(self: &Arc<Self>, events: Vec<Due>) {
        for due in events {
            self.emit(&due).await;
        }
    }

    // === sandboxes ===

    /// The sandbox is ready before its events are sent, and they are sent before the call returns.
    pub(crate) async fn run_sandbox(
        self: &Arc<Self>,
        config: v1::PodSandboxConfig,
        handler: String,
    ) -> Result<String, CallError> {
        let mut handler = handler;
        if self.profile.is_crio {
            refusals::check_sandbox(&config)?;
            handler.clear();
        }
        let now = self.now();
        let (id, events) = self.world().run_sandbox(config, handler, now)?;
        self.emit_all(events).await;
        Ok(id)
    }

    /// Kills the containers, stops the sandbox and releases its network. No error if there is
    /// nothing to do.
    pub(crate) async fn stop_sandbox(self: &Arc<Self>, id: &str) {
        let containers = self.world().containers_of(id);
        for container in containers {
            self.stop_program(&container, Duration::ZERO).await;
        }
        if self.profile.is_crio && !self.has_pause_process(id) {
            let now = self.now();
            let events = self.world().sandbox_exited(id, now);
            self.emit_all(events).await;
        } else {
            self.end_sandbox(id);
        }
        self.world().release_address(id);
    }

    /// The pause process exits, for whatever reason. A separate task sends the event.
    fn end_sandbox(self: &Arc<Self>, id: &str) {
        let now = self.now();
        let events = self.world().sandbox_exited(id, now);
        if !events.is_empty() {
            let pending = self.begin_exit_event(id);
            let (engine, id) = (Arc::clone(self), id.to_owned());
            self.tasks.spawn(async move {
                engine.emit_all(events).await;
                engine.finish_exit_event(&id, pending);
            });
        }
    }

    /// Kills the pause process, and with it everything in its process namespace. Returns false if
    /// there is no such process.
    pub(crate) fn kill_sandbox(self: &Arc<Self>, id: &str) -> bool {
        if !self.world().is_ready(id) || !self.has_pause_process(id) {
            return false;
        }
        self.end_sandbox(id);
        if self.world().shares_processes(id) {
            let containers = self.world().containers_of(id);
            for container in containers {
                self.kill_container(&container, ExitStatus::from_code(KILLED));
            }
        }
        true
    }

    fn has_pause_process(&self, id: &str) -> bool {
        !self.profile.node.drops_infra_container || self.world().shares_processes(id)
    }

    /// Stops everything, removes the containers and then the sandbox. DELETED is sent after the
    /// sandbox is gone, before it is gone (then a list still shows the sandbox for a moment), or
    /// never.
    pub(crate) async fn remove_sandbox(self: &Arc<Self>, id: &str) {
        self.stop_sandbox(id).await;
        self.wait_for_exit_event(id).await;
        let containers = self.world().containers_of(id);
        for container in containers {
            self.delete_container(&container, true).await;
        }
        let now = self.now();
        let begun = self.world().begin_removal(id, now);
        if let Some(announced) = begun {
            self.emit_all(announced).await;
            self.delete(id, |world, now| world.delete_sandbox(id, now))
                .await;
        }
    }

    /// Removes an object, sends the events, and then forgets it.
    async fn delete(
        self: &Arc<Self>,
        id: &str,
        remove: impl FnOnce(&mut World, i64) -> Vec<Due> + Send,
    ) {
        let now = self.now();
        let events = remove(&mut self.world(), now);
        self.emit_all(events).await;
        self.world().node.forget(&id.into());
    }

    // === containers ===

    pub(crate) async fn create_container(
        self: &Arc<Self>,
        sandbox: &str,
        config: v1::ContainerConfig,
        of_sandbox: Option<v1::PodSandboxConfig>,
    ) -> Result<String, CallError> {
        if self.profile.is_crio {
            refusals::check_container(of_sandbox.as_ref(), &config)?;
        }
        let now = self.now();
        let (id, events) = self.world().create_container(sandbox, config, now)?;
        self.emit_all(events).await;
        Ok(id)
    }

    /// The program runs before STARTED is sent, so a short one may have exited by then. A failed
    /// start sends no event.
    pub(crate) async fn start_container(self: &Arc<Self>, id: &str) -> Result<(), CallError> {
        let now = self.now();
        let (script, events) = self.world().start_container(id, now)?;
        self.spawn_program(id, script);
        self.emit_all(events).await;
        Ok(())
    }

    /// Returns when the container has exited; its event may follow later. No error if there is
    /// nothing to do.
    pub(crate) async fn stop_container(self: &Arc<Self>, id: &str, grace: Duration) {
        self.stop_program(id, grace).await;
        let deleted = self.world().deleted_on_stop(id);
        self.emit_all(Vec::from_iter(deleted)).await;
    }

    /// Kills the container if it runs. It is gone before DELETED is sent. No error if there is
    /// nothing to do.
    pub(crate) async fn remove_container(self: &Arc<Self>, id: &str) {
        self.delete_container(id, false).await;
    }

    async fn delete_container(self: &Arc<Self>, id: &str, with_sandbox: bool) {
        self.stop_program(id, Duration::ZERO).await;
        self.wait_for_exit_event(id).await;
        self.delete(id, |world, now| {
            world.delete_container(id, with_sandbox, now)
        })
        .await;
    }

    /// Changes the limits of a container that has not exited.
    pub(crate) fn update_resources(
        &self,
        id: &str,
        resources: Option<v1::LinuxContainerResources>,
    ) -> Result<(), CallError> {
        let mut world = self.world();
        let state = world.container_state(id)?;
        if state == ContainerState::ContainerExited {
            return Err(CallError::WrongState(state.as_str_name()));
        }
        if let (Some(container), Some(resources)) = (world.containers.get_mut(id), resources) {
            container.resources = Some(resources);
        }
        Ok(())
    }
}
