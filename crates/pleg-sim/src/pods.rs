//! The calls that change pods and containers. Each changes the state and then sends events.
//!
//! The node model says which events a change causes.

use std::{sync::Arc, time::Duration};

use pleg_cri::v1::{self, ContainerState};
use pleg_node_model::Due;

use crate::{
    engine::Engine, error::CallError, programs::ExitStatus, refusals, script::KILLED, world::World,
};

type Done = Result<(), CallError>;

impl Engine {
    // === sandboxes ===

    /// The sandbox is ready before its events are sent, and they are sent before the call returns.
    pub(crate) async fn run_sandbox(
        self: Arc<Self>,
        config: v1::PodSandboxConfig,
        mut handler: String,
    ) -> Result<String, CallError> {
        if self.profile.is_crio {
            refusals::check_sandbox(&config)?;
            handler.clear();
        }
        let (id, events) = self.world().run_sandbox(config, handler)?;
        self.emit(events).await;
        Ok(id)
    }

    /// Kills the containers, stops the sandbox and releases its network. No error if there is
    /// nothing to do.
    pub(crate) async fn stop_sandbox(self: Arc<Self>, id: String) -> Done {
        let containers = self.world().containers_of(&id);
        for container in containers {
            self.stop_program(&container, Duration::ZERO).await;
        }
        if self.profile.is_crio && !self.has_pause_process(&id) {
            let events = self.world().sandbox_exited(&id);
            self.emit(events).await;
        } else {
            self.end_sandbox(&id);
        }
        self.world().release_address(&id);
        Ok(())
    }

    /// The pause process exits, for whatever reason. A separate task sends the event.
    fn end_sandbox(self: &Arc<Self>, id: &str) {
        let events = self.world().sandbox_exited(id);
        if !events.is_empty() {
            let pending = self.begin_exit_event(id);
            let (engine, id) = (Arc::clone(self), id.to_owned());
            self.tasks.spawn(async move {
                engine.emit(events).await;
                engine.finish_exit_event(&id, &pending);
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
    pub(crate) async fn remove_sandbox(self: Arc<Self>, id: String) -> Done {
        Arc::clone(&self).stop_sandbox(id.clone()).await?;
        self.wait_for_exit_event(&id).await;
        let containers = self.world().containers_of(&id);
        for container in containers {
            self.delete_container(&container, true).await;
        }
        let begun = self.world().begin_removal(&id);
        if let Some(announced) = begun {
            self.emit(announced).await;
            self.delete(&id, |world| world.delete_sandbox(&id)).await;
        }
        Ok(())
    }

    /// Removes an object, sends the events, and then forgets it.
    async fn delete(self: &Arc<Self>, id: &str, remove: impl FnOnce(&mut World) -> Vec<Due>) {
        let events = remove(&mut self.world());
        self.emit(events).await;
        self.world().node.forget(&id.into());
    }

    // === containers ===

    pub(crate) async fn create_container(
        self: Arc<Self>,
        sandbox: String,
        config: v1::ContainerConfig,
        of_sandbox: Option<v1::PodSandboxConfig>,
    ) -> Result<String, CallError> {
        if self.profile.is_crio {
            refusals::check_container(of_sandbox.as_ref(), &config)?;
        }
        let (id, events) = self.world().create_container(&sandbox, config)?;
        self.emit(events).await;
        Ok(id)
    }

    /// The program runs before STARTED is sent, so a short one may have exited by then. A failed
    /// start sends no event.
    pub(crate) async fn start_container(self: Arc<Self>, id: String) -> Done {
        let (script, events) = self.world().start_container(&id)?;
        self.spawn_program(&id, script);
        self.emit(events).await;
        Ok(())
    }

    /// Returns when the container has exited; its event may follow later. No error if there is
    /// nothing to do.
    pub(crate) async fn stop_container(self: Arc<Self>, id: String, grace: Duration) -> Done {
        self.stop_program(&id, grace).await;
        let deleted = self.world().deleted_on_stop(&id);
        self.emit(Vec::from_iter(deleted)).await;
        Ok(())
    }

    /// Kills the container if it runs. It is gone before DELETED is sent. No error if there is
    /// nothing to do.
    pub(crate) async fn remove_container(self: Arc<Self>, id: String) -> Done {
        self.delete_container(&id, false).await;
        Ok(())
    }

    async fn delete_container(self: &Arc<Self>, id: &str, with_sandbox: bool) {
        self.stop_program(id, Duration::ZERO).await;
        self.wait_for_exit_event(id).await;
        self.delete(id, |world| world.delete_container(id, with_sandbox))
            .await;
    }

    /// Changes the limits of a container that has not exited.
    pub(crate) fn update_resources(
        &self,
        id: &str,
        resources: Option<v1::LinuxContainerResources>,
    ) -> Done {
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
