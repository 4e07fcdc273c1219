//! Calls that change something become changes of the world, and changes become events.
//!
//! What is told of each, and when, is the runtime's habit.

use std::{sync::Arc, time::Duration};

use pleg_cri::v1::{self, ContainerEventType as Kind, ContainerState};

use crate::{
    engine::Engine, error::Refusal, habits::SandboxDeleted, programs::End, script::KILLED,
};

impl Engine {
    // === sandboxes ===

    /// Ready before anything is told of it, and told before the call returns.
    pub(crate) async fn run_sandbox(
        self: &Arc<Self>,
        config: v1::PodSandboxConfig,
        handler: String,
    ) -> Result<String, Refusal> {
        let now = self.now();
        let handler = if self.habits.names_handlers {
            handler
        } else {
            String::new()
        };
        let id = self.world().run_sandbox(config, handler, now)?;
        if self.habits.told.sandbox_created {
            self.tell(Kind::ContainerCreatedEvent, &id, &id).await;
        }
        self.tell(Kind::ContainerStartedEvent, &id, &id).await;
        Ok(id)
    }

    /// Kills its containers, ends it, tears its network down. Nothing to do is no error.
    pub(crate) async fn stop_sandbox(self: &Arc<Self>, id: &str) {
        let containers = self.world().containers_of(id);
        for container in containers {
            self.end_container(&container, Duration::ZERO).await;
        }
        if self.habits.told.stop_in_call && !self.has_pause(id) {
            if self.world().sandbox_exited(id) {
                self.tell(Kind::ContainerStoppedEvent, id, id).await;
            }
        } else {
            self.end_sandbox(id);
        }
        self.world().release_address(id);
    }

    /// Its pause process ends, for whatever cause; a task of its own tells it.
    fn end_sandbox(self: &Arc<Self>, id: &str) {
        if self.world().sandbox_exited(id) {
            let untold = self.begin_telling(id);
            let (engine, id) = (Arc::clone(self), id.to_owned());
            self.tasks.spawn(async move {
                engine.tell(Kind::ContainerStoppedEvent, &id, &id).await;
                engine.end_telling(&id, untold);
            });
        }
    }

    /// Its pause process is killed, and with it everything in its process namespace. False if
    /// there is no such process.
    pub(crate) fn kill_sandbox(self: &Arc<Self>, id: &str) -> bool {
        let (ready, shares_processes) = {
            let world = self.world();
            let sandbox = world.sandbox(id);
            (sandbox.is_ok_and(|s| s.ready), world.shares_processes(id))
        };
        if !ready || !self.has_pause(id) {
            return false;
        }
        self.end_sandbox(id);
        if shares_processes {
            let containers = self.world().containers_of(id);
            for container in containers {
                self.kill_container(&container, End::by_itself(KILLED));
            }
        }
        true
    }

    fn has_pause(&self, id: &str) -> bool {
        !self.habits.drops_pause || self.world().shares_processes(id)
    }

    /// Stops what runs, removes the containers, and forgets it: before that is told, or only
    /// then (so that for an instant a list shows a sandbox whose removal was told), or untold.
    pub(crate) async fn remove_sandbox(self: &Arc<Self>, id: &str) {
        self.stop_sandbox(id).await;
        self.tear_down(id).await;
        let containers = self.world().containers_of(id);
        for container in containers {
            if self.habits.told.inner_deleted {
                self.remove_container(&container).await;
            } else {
                self.take_container_away(&container).await;
            }
        }
        if !self.world().begin_removal(id) {
            return;
        }
        match self.habits.told.sandbox_deleted {
            SandboxDeleted::Never => self.world().forget_sandbox(id),
            SandboxDeleted::Afterwards => {
                self.world().forget_sandbox(id);
                self.tell(Kind::ContainerDeletedEvent, id, id).await;
            }
            SandboxDeleted::Before => {
                self.tell(Kind::ContainerDeletedEvent, id, id).await;
                self.world().forget_sandbox(id);
            }
        }
    }

    // === containers ===

    pub(crate) async fn create_container(
        self: &Arc<Self>,
        sandbox: &str,
        config: v1::ContainerConfig,
    ) -> Result<String, Refusal> {
        let now = self.now();
        let id = self.world().create_container(sandbox, config, now)?;
        self.tell(Kind::ContainerCreatedEvent, sandbox, &id).await;
        Ok(id)
    }

    /// The program runs before its start is told, so a short one may have ended by then. A start
    /// that fails tells nothing.
    pub(crate) async fn start_container(self: &Arc<Self>, id: &str) -> Result<(), Refusal> {
        let now = self.now();
        let started = {
            let mut world = self.world();
            let script = world.start_container(id, now);
            if self.habits.removes_failed_starts && matches!(script, Err(Refusal::StartFailed(_))) {
                world.forget_container(id);
            }
            script.and_then(|script| Ok((script, world.container(id)?.sandbox.clone())))
        };
        let (script, sandbox) = started?;
        self.spawn_program(id, script);
        self.tell(Kind::ContainerStartedEvent, &sandbox, id).await;
        Ok(())
    }

    /// Returns when it has ended; its end may be told later. Nothing to do is no error.
    pub(crate) async fn stop_container(self: &Arc<Self>, id: &str, grace: Duration) {
        self.end_container(id, grace).await;
        if self.habits.told.stop_as_deleted {
            let sandbox = self.world().container(id).map(|c| c.sandbox.clone());
            if let Ok(sandbox) = sandbox {
                self.tell(Kind::ContainerDeletedEvent, &sandbox, id).await;
            }
        }
    }

    /// Kills it if it runs. It is forgotten before that is told. Nothing to do is no error.
    pub(crate) async fn remove_container(self: &Arc<Self>, id: &str) {
        if let Some(sandbox) = self.take_container_away(id).await {
            self.tell(Kind::ContainerDeletedEvent, &sandbox, id).await;
        }
    }

    /// The same, untold: the sandbox that it belonged to.
    async fn take_container_away(&self, id: &str) -> Option<String> {
        self.end_container(id, Duration::ZERO).await;
        self.tear_down(id).await;
        self.world().forget_container(id)
    }

    /// New limits for one that exists and has not ended.
    pub(crate) fn update_resources(
        &self,
        id: &str,
        resources: Option<v1::LinuxContainerResources>,
    ) -> Result<(), Refusal> {
        let mut world = self.world();
        let container = world.container_mut(id)?;
        if container.state == ContainerState::ContainerExited {
            return Err(Refusal::WrongState(container.state.as_str_name()));
        }
        container.resources = resources.or_else(|| container.resources.take());
        Ok(())
    }
}
