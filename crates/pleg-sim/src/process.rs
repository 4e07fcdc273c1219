//! The runtime's process: it starts, serves, is stopped or killed, and starts again.
//!
//! Sandboxes and containers outlive the process; subscribers and queued events do not. Changes that happen while the
//! runtime is down cause no events.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::Status;

use crate::{
    delivery::{Counts, Delivery},
    engine::{Engine, lock},
    error::shutting_down,
};

/// The maximum time for which a graceful stop waits for clients to disconnect.
const GRACEFUL_STOP: Duration = Duration::from_secs(2);

/// The state of the runtime's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// The process answers calls.
    Serving,
    /// The process has bound its socket, but has not loaded its state: calls fail with "server is not initialized yet"
    /// (containerd), or connections get no response (CRI-O).
    Starting,
    /// There is no process.
    Down,
}

/// One process of the runtime.
pub(crate) struct Process {
    pub(crate) delivery: Delivery,
    /// The tasks that serve the clients of the process.
    pub(crate) servers: TaskTracker,
    /// A token that is cancelled when the process ends. Then its streams end, and it accepts no more connections.
    pub(crate) ended: CancellationToken,
    /// True if the runtime's process was stopped with `SIGKILL`.
    pub(crate) was_killed: AtomicBool,
    /// A token whose cancellation breaks the current connections. A new token then replaces it.
    connections: Mutex<CancellationToken>,
}

impl Process {
    pub(crate) fn start(
        kind: pleg_node_model::Delivery,
        seed: u64,
        stop: &CancellationToken,
    ) -> Self {
        let ended = stop.child_token();
        Self {
            delivery: Delivery::new(kind, seed, ended.clone()),
            servers: TaskTracker::new(),
            ended,
            was_killed: AtomicBool::new(false),
            connections: Mutex::new(stop.child_token()),
        }
    }

    /// Cancelled when the current connections are cut.
    pub(crate) fn connections(&self) -> CancellationToken {
        lock(&self.connections).clone()
    }
}

impl Engine {
    pub(crate) fn process(&self) -> Arc<Process> {
        Arc::clone(&lock(&self.process))
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Waits until the runtime's process answers calls.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), Status> {
        let mut phase = self.phase.subscribe();
        let started = phase.wait_for(|p| *p != Phase::Starting);
        match self.stop.run_until_cancelled(started).await {
            Some(Ok(phase)) if *phase == Phase::Serving => Ok(()),
            _ => Err(shutting_down()),
        }
    }

    pub(crate) fn sever_connections(&self) {
        let new = self.stop.child_token();
        let process = self.process();
        std::mem::replace(&mut *lock(&process.connections), new).cancel();
    }

    /// Stops the process. With `SIGTERM`, the socket is removed, and CRI-O first ends its streams with OK. With
    /// `SIGKILL` (`kill`), connections break, and the socket file remains but refuses connections. Returns when the
    /// process serves no client any more.
    pub(crate) async fn go_down(&self, kill: bool) {
        if self.phase.send_replace(Phase::Down) == Phase::Down {
            return;
        }
        let process = self.process();
        process.was_killed.store(kill, Ordering::Relaxed);
        process.servers.close();
        if self.profile.is_crio && !kill {
            process.ended.cancel();
            let _ = tokio::time::timeout(GRACEFUL_STOP, process.servers.wait()).await;
        }
        self.sever_connections();
        process.ended.cancel();
        process.servers.wait().await;
    }

    /// Starts a new process without subscribers and queued events. Returns when the process has bound its sockets.
    pub(crate) async fn come_up(&self) {
        if self.phase() == Phase::Down && !self.stop.is_cancelled() {
            let kind = self.profile.node.delivery;
            *lock(&self.process) = Arc::new(Process::start(kind, self.seed, &self.stop));
            // The new process has no subscribers and no queued events. The counts of discarded and dropped events stay.
            let reset = |counts: &mut Counts| (counts.subscribers, counts.queued) = (0, 0);
            self.counts.send_modify(reset);
            self.phase.send_replace(Phase::Starting);
        }
        let mut unbound = self.unbound.subscribe();
        let all_bound = unbound.wait_for(|unbound| *unbound == 0);
        self.stop.run_until_cancelled(all_bound).await;
    }

    /// Ends the startup of the process, which answers calls from now on.
    pub(crate) fn ready(&self) {
        self.phase.send_if_modified(|phase| {
            let is_starting = *phase == Phase::Starting;
            *phase = if is_starting { Phase::Serving } else { *phase };
            is_starting
        });
    }
}
