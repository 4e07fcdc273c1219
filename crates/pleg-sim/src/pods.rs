//! Changes of pods and containers that several CRI calls share. Each function changes the state and then sends events;
//! the node model decides which events a change causes.

use std::{sync::Arc, time::Duration};

use pleg_node_model::{Due, Step};

use crate::{engine::Engine, programs::ExitStatus, script::KILLED, world::World};

impl Engine {
    /// Kills the running containers, makes a ready sandbox not ready, and releases its network.
    pub(crate) async fn stop_sandbox(self: &Arc<Self>, id: &str) {
        let containers = self.world().node.containers_of(id);
        for container in containers {
            self.stop_program(&container, Duration::ZERO).await;
        }
        if self.profile.is_crio && !self.world().has_pause_process(id) {
            let events = self.world().step(&Step::StopSandbox(id.into()));
            self.emit(events).await;
        } else {
            self.end_sandbox(id);
        }
        if let Some(sandbox) = self.world().sandboxes.get_mut(id) {
            sandbox.ip = None;
        }
    }

    /// Makes the sandbox not ready, as the exit of its pause process does. A separate task sends the sandbox's STOPPED.
    fn end_sandbox(self: &Arc<Self>, id: &str) {
        let events = self.world().step(&Step::StopSandbox(id.into()));
        if !events.is_empty() {
            let (engine, pending) = (Arc::clone(self), self.exit_event(id));
            self.tasks.spawn(async move {
                engine.emit(events).await;
                drop(pending);
            });
        }
    }

    /// Kills the pause process, and with it everything in its process namespace. Returns false if the sandbox is not
    /// ready or has no pause process.
    pub(crate) fn kill_sandbox(self: &Arc<Self>, id: &str) -> bool {
        let (exists, shared, containers) = {
            let world = self.world();
            let exists = world.is_ready(id) && world.has_pause_process(id);
            (
                exists,
                world.shares_processes(id),
                world.node.containers_of(id),
            )
        };
        if exists {
            self.end_sandbox(id);
        }
        for container in containers.iter().filter(|_| exists && shared) {
            self.kill_container(container, ExitStatus::from_code(KILLED));
        }
        exists
    }

    /// Stops the sandbox, removes its containers, and then removes the sandbox. The runtime's profile decides whether
    /// DELETED is sent after the removal, before the removal (then a list still shows the sandbox for a short time), or
    /// never.
    pub(crate) async fn remove_sandbox(self: &Arc<Self>, id: &str) {
        self.stop_sandbox(id).await;
        self.wait_for_exit_event(id).await;
        let containers = self.world().node.containers_of(id);
        for container in containers {
            self.delete_container(&container, true).await;
        }
        let begun = self.world().begin_removal(id);
        if let Some(announced) = begun {
            self.emit(announced).await;
            self.delete(id, |world| world.delete_sandbox(id)).await;
        }
    }

    /// Removes a sandbox or container, sends the events of the removal, and drops the object from the node model.
    async fn delete(self: &Arc<Self>, id: &str, remove: impl FnOnce(&mut World) -> Vec<Due>) {
        let events = remove(&mut self.world());
        self.emit(events).await;
        self.world().node.forget(id);
    }

    /// Kills the container if it is running, removes it, and then sends DELETED (CRI-O: not if `with_sandbox`).
    pub(crate) async fn delete_container(self: &Arc<Self>, id: &str, with_sandbox: bool) {
        self.stop_program(id, Duration::ZERO).await;
        self.wait_for_exit_event(id).await;
        self.delete(id, |world| world.delete_container(id, with_sandbox))
            .await;
    }
}
