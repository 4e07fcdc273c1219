//! The engine: the state of the simulated runtime, and the checks that every call passes first.
//!
//! Its methods are split by subject: `pods` implements the calls that change something, `programs`
//! runs the containers, `events` creates events, `process` starts and stops the runtime's process.
//! `service` implements gRPC.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use pleg_runtime::clock::Clock;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::Status;

use crate::{
    delivery::{Context, Counts},
    error::CallError,
    events::HeldEvent,
    fault_profile::Injector,
    faults::{Call, CallFault, Faults},
    process::{Phase, Process, Sockets},
    profile::RuntimeProfile,
    programs::Program,
    world::World,
};

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) profile: RuntimeProfile,
    pub(crate) faults: Arc<dyn Faults>,
    pub(crate) injector: Arc<Injector>,
    /// What a new process of the runtime needs.
    pub(crate) context: Context,
    /// An event that is published after the next one (fault `swap`).
    pub(crate) held_event: Mutex<Option<HeldEvent>>,
    world: Mutex<World>,
    /// The running containers.
    pub(crate) programs: Mutex<HashMap<String, Program>>,
    /// Exits whose event has not been published yet.
    pub(crate) exit_events: Mutex<HashMap<String, CancellationToken>>,
    /// The runtime's process. The last one stays here until the next one starts.
    pub(crate) process: Mutex<Arc<Process>>,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) sockets: watch::Sender<Sockets>,
    pub(crate) counts: watch::Sender<Counts>,
    wall: Wall,
    pub(crate) clock: Clock,
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the simulator shuts down.
    pub(crate) stop: CancellationToken,
}

/// A wall clock: nanoseconds since 1970.
pub type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Gives the closure a `Debug` implementation.
pub(crate) struct Wall(pub(crate) WallClock);

impl std::fmt::Debug for Wall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wall")
    }
}

impl Engine {
    pub(crate) fn new(
        profile: RuntimeProfile,
        phase: Phase,
        seed: u64,
        wall: Wall,
        faults: Arc<dyn Faults>,
    ) -> Self {
        let stop = CancellationToken::new();
        let counts = watch::Sender::default();
        let (clock, tasks) = (Clock::start(), TaskTracker::new());
        let context = Context {
            injector: Arc::new(Injector::new(&profile, seed, clock)),
            counts: counts.clone(),
            clock,
            tasks: tasks.clone(),
            seed,
            stop: stop.clone(),
        };
        let process = Process::start(profile.node.delivery, context.clone());
        Self {
            faults,
            injector: Arc::clone(&context.injector),
            context,
            held_event: Mutex::default(),
            world: Mutex::new(World::new(seed, profile.node.clone())),
            programs: Mutex::default(),
            exit_events: Mutex::default(),
            process: Mutex::new(Arc::new(process)),
            phase: watch::Sender::new(phase),
            sockets: watch::Sender::default(),
            counts,
            wall,
            clock,
            tasks,
            stop,
            profile,
        }
    }

    /// The state of the node. Never hold this across an await.
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        let mut world = lock(&self.world);
        world.now = self.now();
        world
    }

    /// The wall clock, in nanoseconds.
    pub(crate) fn now(&self) -> i64 {
        (self.wall.0)()
    }

    /// Waits for that long, or until the simulator shuts down.
    pub(crate) async fn pause(&self, time: Duration) {
        if time.is_zero() {
            return;
        }
        tokio::select! {
            () = self.clock.sleep_until(self.clock.now().after(time)) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// The first step of every call. Calls are delayed and made to fail only here.
    pub(crate) async fn admit(&self, call: Call<'_>) -> Result<(), Status> {
        match self.phase() {
            Phase::Serving => {}
            // A process that is not ready does not read earlier requests either.
            Phase::Starting if self.profile.is_crio => self.wait_until_ready().await?,
            Phase::Starting => {
                let code = self.profile.startup_code;
                return Err(Status::new(code, "server is not initialized yet"));
            }
            Phase::Down => return Err(CallError::ShuttingDown.into()),
        }
        let pod = self.world().pod_of(call.id);
        tokio::select! {
            result = self.injector.intercept_call(call.method, pod.as_deref()) => result?,
            () = self.stop.cancelled() => return Err(CallError::ShuttingDown.into()),
        }
        match self.faults.before(call) {
            CallFault::None => Ok(()),
            CallFault::Delay(time) => {
                self.pause(time).await;
                Ok(())
            }
            CallFault::Fail(status) => Err(status),
            CallFault::Hang => {
                self.stop.cancelled().await;
                Err(CallError::ShuttingDown.into())
            }
        }
    }
}

/// Ignores poisoning: every change of the state is a single step, so a panic leaves it consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
