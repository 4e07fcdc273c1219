//! The runtime's process: it starts, serves, is stopped or killed, and starts again.
//!
//! Sandboxes and containers outlive the process. Its subscribers and queued events do not, and
//! changes while it is down cause no events.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::Status;

use crate::{
    delivery::{self, Context, Delivery},
    engine::{Engine, lock},
    error::CallError,
    programs::ExitStatus,
};

/// How long a graceful stop waits for clients to disconnect.
const GRACEFUL_STOP: Duration = Duration::from_secs(2);

/// The state of the runtime's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// It answers calls.
    Serving,
    /// It has its socket and has not loaded its state: calls fail with "server is not initialized
    /// yet" (containerd), or connections get no response (CRI-O).
    Starting,
    /// There is no process.
    Down,
}

impl Phase {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Starting => "starting",
            Self::Down => "down",
        }
    }
}

/// How the runtime's process is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Termination {
    /// With `SIGTERM`: the socket is removed; CRI-O first ends its streams with OK.
    #[default]
    Sigterm,
    /// With `SIGKILL`: connections break, and the socket file remains and refuses connections.
    Sigkill,
}

/// What happens to the containers while the runtime is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContainersWhileDown {
    /// They keep running.
    #[default]
    KeepRunning,
    /// They exit with that code. The runtime finds out during its start and sends no event.
    Exit(i32),
    /// They exit with an unknown result: 255, `Unknown`.
    Lost,
}

/// A restart of the runtime's process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Restart {
    /// How the old process is stopped.
    pub termination: Termination,
    /// How long there is no process.
    pub downtime: Duration,
    /// How long the new process starts before it answers calls.
    pub startup: Duration,
    /// What happens to the containers meanwhile.
    pub containers: ContainersWhileDown,
}

/// One process of the runtime.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) delivery: Arc<dyn Delivery>,
    /// The tasks that serve its clients.
    pub(crate) servers: TaskTracker,
    /// Cancelled when the process ends: streams end, and no connection is accepted.
    pub(crate) ended: CancellationToken,
    termination: Mutex<Termination>,
    /// Cancelled to break the current connections, and then replaced.
    connections: Mutex<CancellationToken>,
}

/// The number of sockets that should exist and the number that do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sockets {
    pub(crate) wanted: usize,
    pub(crate) bound: usize,
}

impl Process {
    pub(crate) fn start(kind: pleg_node_model::Delivery, context: Context) -> Self {
        let ended = context.stop.child_token();
        let connections = context.stop.child_token();
        let context = Context {
            stop: ended.clone(),
            ..context
        };
        Self {
            delivery: delivery::start(kind, context),
            servers: TaskTracker::new(),
            ended,
            termination: Mutex::default(),
            connections: Mutex::new(connections),
        }
    }

    /// Whether it was stopped with `SIGKILL`.
    pub(crate) fn was_killed(&self) -> bool {
        *lock(&self.termination) == Termination::Sigkill
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

    /// Waits until the process answers calls.
    pub(crate) async fn wait_until_ready(&self) -> Result<(), Status> {
        let mut phase = self.phase.subscribe();
        tokio::select! {
            _ = phase.wait_for(|p| *p != Phase::Starting) => {}
            () = self.stop.cancelled() => {}
        }
        match self.phase() {
            Phase::Serving if !self.stop.is_cancelled() => Ok(()),
            _ => Err(CallError::ShuttingDown.into()),
        }
    }

    pub(crate) fn sever_connections(&self) {
        let new = self.stop.child_token();
        let process = self.process();
        std::mem::replace(&mut *lock(&process.connections), new).cancel();
    }

    /// Stops the process. Returns when it serves nothing.
    pub(crate) async fn go_down(&self, termination: Termination) {
        if self.phase.send_replace(Phase::Down) == Phase::Down {
            return;
        }
        let process = self.process();
        *lock(&process.termination) = termination;
        process.servers.close();
        if termination == Termination::Sigterm && self.profile.is_crio {
            process.ended.cancel();
            tokio::select! {
                () = process.servers.wait() => {}
                () = self.pause(GRACEFUL_STOP) => {}
            }
        }
        self.sever_connections();
        process.ended.cancel();
        process.servers.wait().await;
    }

    /// Starts a new process without subscribers and queued events. Returns when it has its sockets.
    pub(crate) async fn come_up(&self) {
        if self.phase() == Phase::Down && !self.stop.is_cancelled() {
            let process = Process::start(self.profile.node.delivery, self.context.clone());
            *lock(&self.process) = Arc::new(process);
            self.phase.send_replace(Phase::Starting);
        }
        let mut sockets = self.sockets.subscribe();
        tokio::select! {
            _ = sockets.wait_for(|s| s.bound >= s.wanted) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// A starting process answers calls from now on.
    pub(crate) fn ready(&self) {
        self.phase.send_if_modified(|phase| {
            let is_starting = *phase == Phase::Starting;
            if is_starting {
                *phase = Phase::Serving;
            }
            is_starting
        });
    }

    pub(crate) async fn restart(self: &Arc<Self>, restart: Restart) {
        self.go_down(restart.termination).await;
        match restart.containers {
            ContainersWhileDown::KeepRunning => {}
            ContainersWhileDown::Exit(code) => self.exit_all(ExitStatus::from_code(code)).await,
            ContainersWhileDown::Lost => self.exit_all(ExitStatus::LOST).await,
        }
        self.pause(restart.downtime).await;
        self.come_up().await;
        self.pause(restart.startup).await;
        self.ready();
    }
}
