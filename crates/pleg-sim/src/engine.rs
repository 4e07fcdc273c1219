//! The runtime itself: what it is made of, and what every call passes first.
//!
//! The rest of it is by subject: `pods` obeys calls, `programs` lets containers live and end,
//! `telling` makes events, `run` starts and ends the runtime's own process. gRPC is `service`'s
//! business.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use pleg_cri::v1;
use pleg_runtime::clock::Clock;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::Status;

use crate::{
    chaos::{Chaos, Mischief},
    delivery::Counts,
    error::Refusal,
    faults::{Call, CallFault, Faults},
    habits::{Habits, StartHabit},
    programs::Program,
    run::{Phase, Run, Sockets},
    world::World,
};

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) habits: Habits,
    pub(crate) faults: Arc<dyn Faults>,
    pub(crate) chaos: Mischief,
    /// An event that is to be told after its successor.
    pub(crate) swapped: Mutex<Option<(Arc<Run>, v1::ContainerEventResponse)>>,
    world: Mutex<World>,
    /// Containers that run.
    pub(crate) programs: Mutex<HashMap<String, Program>>,
    /// Exits that happened and are not told yet.
    pub(crate) untold: Mutex<HashMap<String, watch::Receiver<()>>>,
    /// The runtime's process, as long as it lives and until the next one.
    pub(crate) run: Mutex<Arc<Run>>,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) sockets: watch::Sender<Sockets>,
    pub(crate) counts: watch::Sender<Counts>,
    pub(crate) seed: u64,
    wall: Wall,
    pub(crate) clock: Clock,
    /// How many scripted lives have begun.
    pub(crate) lives: AtomicU64,
    pub(crate) tasks: TaskTracker,
    /// The end of everything.
    pub(crate) stop: CancellationToken,
}

/// A wall clock: nanoseconds since 1970.
pub type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// A wall clock has no other shape to show.
struct Wall(WallClock);

impl std::fmt::Debug for Wall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Wall")
    }
}

impl Engine {
    pub(crate) fn new(
        habits: Habits,
        phase: Phase,
        seed: u64,
        wall: WallClock,
        faults: Arc<dyn Faults>,
        chaos: Chaos,
    ) -> Self {
        let stop = CancellationToken::new();
        let counts = watch::Sender::default();
        let (clock, tasks) = (Clock::start(), TaskTracker::new());
        let run = Run::start(habits.stream, seed, counts.clone(), clock, &tasks, &stop);
        Self {
            habits,
            faults,
            chaos: Mischief::new(chaos, seed, clock),
            swapped: Mutex::default(),
            world: Mutex::new(World::new(seed)),
            programs: Mutex::default(),
            untold: Mutex::default(),
            run: Mutex::new(Arc::new(run)),
            phase: watch::Sender::new(phase),
            sockets: watch::Sender::default(),
            counts,
            seed,
            wall: Wall(wall),
            clock,
            lives: AtomicU64::new(0),
            tasks,
            stop,
        }
    }

    /// The state. Never held across an await.
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        lock(&self.world)
    }

    /// The wall clock, in nanoseconds.
    pub(crate) fn now(&self) -> i64 {
        (self.wall.0)()
    }

    /// For that long, or until everything ends.
    pub(crate) async fn pause(&self, time: Duration) {
        if time.is_zero() {
            return;
        }
        tokio::select! {
            () = self.clock.sleep_until(self.clock.now().after(time)) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// What every call passes first, and the one place where calls are made to fail.
    pub(crate) async fn admit(&self, call: Call<'_>) -> Result<(), Status> {
        match self.phase() {
            Phase::Serving => {}
            Phase::Starting => match self.habits.starting {
                StartHabit::Fails(code) => {
                    return Err(Status::new(code, "server is not initialized yet"));
                }
                // Nobody reads what came in before, either.
                StartHabit::Silent => self.until_ready().await?,
            },
            Phase::Down => return Err(Refusal::ShuttingDown.into()),
        }
        let pod = self.world().pod_of(call.id);
        tokio::select! {
            met = self.chaos.meet(call.method, pod.as_deref()) => met?,
            () = self.stop.cancelled() => return Err(Refusal::ShuttingDown.into()),
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
                Err(Refusal::ShuttingDown.into())
            }
        }
    }
}

/// A panic elsewhere does not make the state wrong: every change of it is one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
