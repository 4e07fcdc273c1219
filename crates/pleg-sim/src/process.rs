//! The runtime's process: it starts, serves, is stopped or killed, and starts again.
//!
//! Sandboxes and containers outlive the process. Its subscribers and queued events do not, and
//! changes while it is down cause no events.

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

/// A restart of the runtime's process.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Restart {
    /// The old process is stopped with `SIGKILL`: connections break, and the socket file remains and
    /// refuses connections. Otherwise with `SIGTERM`: the socket is removed; CRI-O first ends its streams
    /// with OK.
    pub(crate) kill: bool,
    /// How long there is no process.
    pub(crate) downtime: Duration,
    /// How long the new process starts before it answers calls.
    pub(crate) startup: Duration,
    /// How the containers exit meanwhile; `None`: they keep running. The runtime finds out during its
    /// start and sends no event.
    pub(crate) exit: Option<ExitStatus>,
}

/// One process of the runtime.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) delivery: Arc<dyn Delivery>,
    /// The tasks that serve its clients.
    pub(crate) servers: TaskTracker,
    /// Cancelled when the process ends: streams end, and no connection is accepted.
    pub(crate) ended: CancellationToken,
    /// It was stopped with `SIGKILL`.
    pub(crate) was_killed: AtomicBool,
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
            was_killed: AtomicBool::new(false),
            connections: Mutex::new(connections),
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
    pub(crate) async fn go_down(&self, kill: bool) {
        if self.phase.send_replace(Phase::Down) == Phase::Down {
            return;
        }
        let process = self.process();
        process.was_killed.store(kill, Ordering::Relaxed);
        process.servers.close();
        if self.profile.is_crio && !kill {
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
        self.go_down(restart.kill).await;
        if let Some(exit) = restart.exit {
            self.exit_all(exit).await;
        }
        self.pause(restart.downtime).await;
        self.come_up().await;
        self.pause(restart.startup).await;
        self.ready();
    }
}
