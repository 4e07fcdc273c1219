//! The calls that change pods and containers. Each changes the state and then sends events.
//!
//! The profile defines which events a change causes, and when.

use std::{sync::Arc, time::Duration};

use pleg_cri::v1::{self, ContainerEventType as Kind, ContainerState};

use crate::{
    engine::Engine, error::CallError, profile::SandboxDeleted, programs::ExitStatus, refusals,
    script::KILLED,
};

impl Engine {
    // === sandboxes ===

    /// The sandbox is ready before its events are sent, and they are sent before the call returns.
    pub(crate) async fn run_sandbox(
        self: &Arc<Self>,
        config: v1::PodSandboxConfig,
        handler: String,
    ) -> Result<String, CallError> {
        if self.profile.refuses_as_crio {
            refusals::check_sandbox(&config)?;
        }
        let now = self.now();
        let handler = if self.profile.reports_runtime_handler {
            handler
        } else {
            String::new()
        };
        let id = self.world().run_sandbox(config, handler, now)?;
        if self.profile.events.sandbox_created {
            self.emit(Kind::ContainerCreatedEvent, &id, &id).await;
        }
        self.emit(Kind::ContainerStartedEvent, &id, &id).await;
        Ok(id)
    }

    /// Kills the containers, stops the sandbox and releases its network. No error if there is
    /// nothing to do.
    pub(crate) async fn stop_sandbox(self: &Arc<Self>, id: &str) {
        let containers = self.world().containers_of(id);
        for container in containers {
            self.stop_program(&container, Duration::ZERO).await;
        }
        if self.profile.events.sandbox_stopped_in_call && !self.has_pause_process(id) {
            if self.world().sandbox_exited(id) {
                self.emit(Kind::ContainerStoppedEvent, id, id).await;
            }
        } else {
            self.end_sandbox(id);
        }
        self.world().release_address(id);
    }

    /// The pause process exits, for whatever reason. A separate task sends the event.
    fn end_sandbox(self: &Arc<Self>, id: &str) {
        if self.world().sandbox_exited(id) {
            let pending = self.begin_exit_event(id);
            let (engine, id) = (Arc::clone(self), id.to_owned());
            self.tasks.spawn(async move {
                engine.emit(Kind::ContainerStoppedEvent, &id, &id).await;
                engine.finish_exit_event(&id, pending);
            });
        }
    }

    /// Kills the pause process, and with it everything in its process namespace. Returns false if
    /// there is no such process.
    pub(crate) fn kill_sandbox(self: &Arc<Self>, id: &str) -> bool {
        let (ready, shares_processes) = {
            let world = self.world();
            let sandbox = world.sandbox(id);
            (sandbox.is_ok_and(|s| s.ready), world.shares_processes(id))
        };
        if !ready || !self.has_pause_process(id) {
            return false;
        }
        self.end_sandbox(id);
        if shares_processes {
            let containers = self.world().containers_of(id);
            for container in containers {
                self.kill_container(&container, ExitStatus::from_code(KILLED));
            }
        }
        true
    }

    fn has_pause_process(&self, id: &str) -> bool {
        !self.profile.drops_infra_container || self.world().shares_processes(id)
    }

    /// Stops everything, removes the containers and then the sandbox. DELETED is sent after the
    /// sandbox is gone, before it is gone (then a list still shows the sandbox for a moment), or
    /// never.
    pub(crate) async fn remove_sandbox(self: &Arc<Self>, id: &str) {
        self.stop_sandbox(id).await;
        self.wait_for_exit_event(id).await;
        let containers = self.world().containers_of(id);
        for container in containers {
            if self.profile.events.deleted_with_sandbox {
                self.remove_container(&container).await;
            } else {
                self.delete_container(&container).await;
            }
        }
        if !self.world().begin_removal(id) {
            return;
        }
        match self.profile.events.sandbox_deleted {
            SandboxDeleted::Never => self.world().delete_sandbox(id),
            SandboxDeleted::AfterRemoval => {
                self.world().delete_sandbox(id);
                self.emit(Kind::ContainerDeletedEvent, id, id).await;
            }
            SandboxDeleted::BeforeRemoval => {
                self.emit(Kind::ContainerDeletedEvent, id, id).await;
                self.world().delete_sandbox(id);
            }
        }
    }

    // === containers ===

    pub(crate) async fn create_container(
        self: &Arc<Self>,
        sandbox: &str,
        config: v1::ContainerConfig,
        of_sandbox: Option<v1::PodSandboxConfig>,
    ) -> Result<String, CallError> {
        if self.profile.refuses_as_crio {
            refusals::check_container(of_sandbox.as_ref(), &config)?;
        }
        let now = self.now();
        let id = self.world().create_container(sandbox, config, now)?;
        self.emit(Kind::ContainerCreatedEvent, sandbox, &id).await;
        Ok(id)
    }

    /// The program runs before STARTED is sent, so a short one may have exited by then. A failed
    /// start sends no event.
    pub(crate) async fn start_container(self: &Arc<Self>, id: &str) -> Result<(), CallError> {
        let now = self.now();
        let started = {
            let mut world = self.world();
            let script = world.start_container(id, now);
            if self.profile.removes_failed_starts
                && matches!(script, Err(CallError::StartFailed(_)))
            {
                world.delete_container(id);
            }
            script.and_then(|script| Ok((script, world.container(id)?.sandbox.clone())))
        };
        let (script, sandbox) = started?;
        self.spawn_program(id, script);
        self.emit(Kind::ContainerStartedEvent, &sandbox, id).await;
        Ok(())
    }

    /// Returns when the container has exited; its event may follow later. No error if there is
    /// nothing to do.
    pub(crate) async fn stop_container(self: &Arc<Self>, id: &str, grace: Duration) {
        self.stop_program(id, grace).await;
        if self.profile.events.deleted_on_stop {
            let sandbox = self.world().container(id).map(|c| c.sandbox.clone());
            if let Ok(sandbox) = sandbox {
                self.emit(Kind::ContainerDeletedEvent, &sandbox, id).await;
            }
        }
    }

    /// Kills the container if it runs. It is gone before DELETED is sent. No error if there is
    /// nothing to do.
    pub(crate) async fn remove_container(self: &Arc<Self>, id: &str) {
        if let Some(sandbox) = self.delete_container(id).await {
            self.emit(Kind::ContainerDeletedEvent, &sandbox, id).await;
        }
    }

    /// Removes the container without an event. Returns the sandbox it belonged to.
    async fn delete_container(&self, id: &str) -> Option<String> {
        self.stop_program(id, Duration::ZERO).await;
        self.wait_for_exit_event(id).await;
        self.world().delete_container(id)
    }

    /// Changes the limits of a container that has not exited.
    pub(crate) fn update_resources(
        &self,
        id: &str,
        resources: Option<v1::LinuxContainerResources>,
    ) -> Result<(), CallError> {
        let mut world = self.world();
        let container = world.container_mut(id)?;
        if container.state == ContainerState::ContainerExited {
            return Err(CallError::WrongState(container.state.as_str_name()));
        }
        container.resources = resources.or_else(|| container.resources.take());
        Ok(())
    }
}
