//! The engine: the state of the simulated runtime, and the checks that every call passes first.
//!
//! The methods of the engine are split by subject: `pods` changes sandboxes and containers, `programs` runs the
//! containers, `events` creates events, `lists` answers lists, `process` starts and stops the runtime's process.
//! `service` implements gRPC.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use pleg_runtime::clock::Clock;
use tokio::{sync::watch, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::Status;

use crate::{
    delivery::Counts,
    error::shutting_down,
    events::DelayedEvent,
    faults::Faults,
    process::{Phase, Process},
    profile::RuntimeProfile,
    programs::Program,
    world::World,
};

pub(crate) struct Engine {
    pub(crate) profile: RuntimeProfile,
    pub(crate) seed: u64,
    faults: Mutex<Faults>,
    /// Is notified whenever a knob is set.
    pub(crate) knob_changes: watch::Sender<()>,
    /// An event that the fault `swap` delays until the next event is published, or until a timeout.
    pub(crate) delayed_event: Mutex<Option<DelayedEvent>>,
    world: Mutex<World>,
    /// The programs of the running containers, by container id.
    pub(crate) programs: Mutex<HashMap<String, Program>>,
    /// One token per exited sandbox or container, cancelled when the exit's event is published. Removals wait for this.
    pub(crate) exit_events: Mutex<HashMap<String, CancellationToken>>,
    /// The runtime's process. A process that has ended stays here until the next process starts.
    pub(crate) process: Mutex<Arc<Process>>,
    pub(crate) phase: watch::Sender<Phase>,
    /// The number of sockets that the ended process served and that its successor has not bound yet.
    pub(crate) unbound: watch::Sender<usize>,
    pub(crate) counts: watch::Sender<Counts>,
    wall: WallClock,
    pub(crate) clock: Clock,
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the simulator shuts down.
    pub(crate) stop: CancellationToken,
}

/// A wall clock: nanoseconds since 1970.
pub type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Engine")
    }
}

impl Engine {
    pub(crate) fn new(profile: RuntimeProfile, phase: Phase, seed: u64, wall: WallClock) -> Self {
        let stop = CancellationToken::new();
        let process = Process::start(profile.node.delivery, seed, &stop);
        Self {
            seed,
            faults: Mutex::new(Faults::new(seed)),
            knob_changes: watch::Sender::default(),
            delayed_event: Mutex::default(),
            world: Mutex::new(World::new(seed, profile.node.clone())),
            programs: Mutex::default(),
            exit_events: Mutex::default(),
            process: Mutex::new(Arc::new(process)),
            phase: watch::Sender::new(phase),
            unbound: watch::Sender::default(),
            counts: watch::Sender::default(),
            wall,
            clock: Clock::start(),
            tasks: TaskTracker::new(),
            stop,
            profile,
        }
    }

    /// Locks the state of the node. Never hold the guard across an await.
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        let mut world = lock(&self.world);
        world.now = self.now();
        world
    }

    /// Locks the knobs and the faults. Never hold the guard across an await.
    pub(crate) fn faults(&self) -> MutexGuard<'_, Faults> {
        lock(&self.faults)
    }

    /// The present instant, for timers.
    pub(crate) fn instant(&self) -> Instant {
        self.clock.tokio(self.clock.now())
    }

    /// The wall clock, in nanoseconds.
    pub(crate) fn now(&self) -> i64 {
        (self.wall)()
    }

    /// Waits for `time`, or until the simulator shuts down.
    pub(crate) async fn pause(&self, time: Duration) {
        if !time.is_zero() {
            let end = self.clock.sleep_until(self.clock.now().after(time));
            self.stop.run_until_cancelled(end).await;
        }
    }

    /// The first step of every call, and the only place that applies the knobs `hang`, `latency` and `fail`. `id` is
    /// the sandbox or container that the call names; empty if there is no id.
    pub(crate) async fn admit(&self, method: &str, id: &str) -> Result<(), Status> {
        match self.phase() {
            _ if self.stop.is_cancelled() => return Err(shutting_down()),
            Phase::Serving => {}
            // CRI-O reads no requests while it is starting, so the call waits.
            Phase::Starting if self.profile.is_crio => self.wait_until_ready().await?,
            Phase::Starting => {
                let code = self.profile.startup_code;
                return Err(Status::new(code, "server is not initialized yet"));
            }
            Phase::Down => return Err(shutting_down()),
        }
        let pod = self.world().node.object(id).map(|o| o.pod.uid.clone());
        let admitted = self.intercept_call(method, pod.as_deref());
        let admitted = self.stop.run_until_cancelled(admitted).await;
        admitted.unwrap_or_else(|| Err(shutting_down()))
    }
}

/// Ignores a poisoned lock: every change of the state is a single step, so a panic leaves the state consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
