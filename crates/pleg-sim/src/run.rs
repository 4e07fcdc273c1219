//! The runtime's own process: it starts, serves, is stopped or killed, and starts again.
//!
//! What exists outlives it; who subscribed and what was queued for them does not, and what
//! happens while it is down is never told.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use pleg_runtime::clock::Clock;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::Status;

use crate::{
    delivery::{self, Counts, Delivery, Surroundings},
    engine::{Engine, lock},
    error::Refusal,
    habits::StreamHabit,
    programs::End,
};

/// How long a runtime that says goodbye waits for its clients to go.
const GOODBYE: Duration = Duration::from_secs(2);

/// Where the runtime's process is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// It obeys calls.
    Serving,
    /// It has its socket, and has not read its state yet: calls fail with "server is not
    /// initialized yet" (containerd), or connections stay silent (CRI-O).
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

/// How a runtime's process ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// By `SIGTERM`: the socket goes with it; CRI-O ends its streams with OK first.
    #[default]
    Term,
    /// By `SIGKILL`: connections break, the socket stays behind and refuses.
    Kill,
}

/// What becomes of the containers while the runtime is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Meanwhile {
    /// They run on.
    #[default]
    RunOn,
    /// They end with that exit code; the runtime learns of it as it starts, and tells nobody.
    End(i32),
    /// They end and nobody knows how: 255, `Unknown`.
    Lost,
}

/// A restart of the runtime's process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Restart {
    /// How the old one ends.
    pub ending: Ending,
    /// How long there is none.
    pub downtime: Duration,
    /// How long the new one starts before it obeys calls.
    pub starting: Duration,
    /// What the containers do in between.
    pub meanwhile: Meanwhile,
}

/// One process.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) delivery: Arc<dyn Delivery>,
    /// Everything that serves its clients.
    pub(crate) servers: TaskTracker,
    /// Its end: streams end, no connection is accepted any more.
    pub(crate) ends: CancellationToken,
    ending: Mutex<Ending>,
    /// Cut to break the connections of now, and replaced then.
    connections: Mutex<CancellationToken>,
}

/// How many sockets there are to be, and how many there are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sockets {
    pub(crate) wanted: usize,
    pub(crate) bound: usize,
}

impl Run {
    pub(crate) fn start(
        habit: StreamHabit,
        seed: u64,
        counts: watch::Sender<Counts>,
        clock: Clock,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> Self {
        let ends = stop.child_token();
        let around = Surroundings {
            counts,
            clock,
            tasks: tasks.clone(),
            seed,
            stop: ends.clone(),
        };
        Self {
            delivery: delivery::start(habit, around),
            servers: TaskTracker::new(),
            ends,
            ending: Mutex::default(),
            connections: Mutex::new(stop.child_token()),
        }
    }

    /// By `SIGKILL`.
    pub(crate) fn was_killed(&self) -> bool {
        *lock(&self.ending) == Ending::Kill
    }

    /// Ends when the connections of now are cut.
    pub(crate) fn connections(&self) -> CancellationToken {
        lock(&self.connections).clone()
    }
}

impl Engine {
    pub(crate) fn run(&self) -> Arc<Run> {
        Arc::clone(&lock(&self.run))
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// Until it obeys calls.
    pub(crate) async fn until_ready(&self) -> Result<(), Status> {
        let mut phase = self.phase.subscribe();
        tokio::select! {
            _ = phase.wait_for(|p| *p != Phase::Starting) => {}
            () = self.stop.cancelled() => {}
        }
        match self.phase() {
            Phase::Serving if !self.stop.is_cancelled() => Ok(()),
            _ => Err(Refusal::ShuttingDown.into()),
        }
    }

    pub(crate) fn sever_connections(&self) {
        let fresh = self.stop.child_token();
        let run = self.run();
        std::mem::replace(&mut *lock(&run.connections), fresh).cancel();
    }

    /// The process ends. Returns when nothing of it serves any more.
    pub(crate) async fn go_down(&self, ending: Ending) {
        if self.phase.send_replace(Phase::Down) == Phase::Down {
            return;
        }
        let run = self.run();
        *lock(&run.ending) = ending;
        run.servers.close();
        if ending == Ending::Term && self.habits.says_goodbye {
            run.ends.cancel();
            tokio::select! {
                () = run.servers.wait() => {}
                () = self.pause(GOODBYE) => {}
            }
        }
        self.sever_connections();
        run.ends.cancel();
        run.servers.wait().await;
    }

    /// A new process starts. Nobody has subscribed to it, and nothing is queued. Returns when it
    /// has its sockets.
    pub(crate) async fn come_up(&self) {
        if self.phase() == Phase::Down && !self.stop.is_cancelled() {
            let run = Run::start(
                self.habits.stream,
                self.seed,
                self.counts.clone(),
                self.clock,
                &self.tasks,
                &self.stop,
            );
            *lock(&self.run) = Arc::new(run);
            self.phase.send_replace(Phase::Starting);
        }
        let mut sockets = self.sockets.subscribe();
        tokio::select! {
            _ = sockets.wait_for(|s| s.bound >= s.wanted) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// One that starts obeys calls from now on.
    pub(crate) fn ready(&self) {
        self.phase.send_if_modified(|phase| {
            let starts = *phase == Phase::Starting;
            if starts {
                *phase = Phase::Serving;
            }
            starts
        });
    }

    pub(crate) async fn restart(self: &Arc<Self>, how: Restart) {
        self.go_down(how.ending).await;
        match how.meanwhile {
            Meanwhile::RunOn => {}
            Meanwhile::End(code) => self.end_all(End::by_itself(code)).await,
            Meanwhile::Lost => self.end_all(End::LOST).await,
        }
        self.pause(how.downtime).await;
        self.come_up().await;
        self.pause(how.starting).await;
        self.ready();
    }
}
