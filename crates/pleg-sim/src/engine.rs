//! The runtime itself: calls become changes of the world, changes become events.
//!
//! The order of what happens (state, then the statuses copied, then the stamp, then the queue;
//! exits from tasks of their own) is containerd's and is the point of this file. It touches the
//! world, the hub, the clock and tasks; gRPC is `service`'s business.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use pleg_cri::v1::{self, ContainerEventType as Kind, ContainerState};
use pleg_runtime::clock::Clock;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::Status;

use crate::{
    error::Refusal,
    events::EventHub,
    faults::{Call, CallFault, Delivery, Faults},
    script::{KILLED, Script},
    world::World,
};

/// How long taking a sandbox or container apart lasts at most.
const TEAR_DOWN: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Engine {
    world: Mutex<World>,
    /// Containers that run.
    processes: Mutex<HashMap<String, Process>>,
    pub(crate) events: EventHub,
    /// Exits that happened and are not told yet.
    untold: Mutex<HashMap<String, watch::Receiver<()>>>,
    faults: Arc<dyn Faults>,
    wall: Wall,
    clock: Clock,
    /// What `Version` says.
    pub(crate) version: String,
    /// How many scripted lives have begun.
    pub(crate) lives: AtomicU64,
    pub(crate) tasks: TaskTracker,
    /// The end of everything.
    pub(crate) stop: CancellationToken,
    /// Cut by `Sim::sever_connections`, and replaced then.
    connections: Mutex<CancellationToken>,
}

/// A handle on a running container.
#[derive(Clone, Debug)]
struct Process {
    order: watch::Sender<Order>,
    ended: watch::Receiver<bool>,
}

/// What a process is told; a later one overrules an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Live,
    Stop,
    Kill(i32),
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
        seed: u64,
        version: String,
        wall: WallClock,
        faults: Arc<dyn Faults>,
    ) -> Self {
        let stop = CancellationToken::new();
        let clock = Clock::start();
        Self {
            world: Mutex::new(World::new(seed)),
            processes: Mutex::new(HashMap::new()),
            untold: Mutex::new(HashMap::new()),
            events: EventHub::new(seed, clock, stop.clone()),
            faults,
            wall: Wall(wall),
            clock,
            version,
            lives: AtomicU64::new(0),
            tasks: TaskTracker::new(),
            connections: Mutex::new(stop.child_token()),
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

    // === sandboxes ===

    /// Ready before anything is told of it, and told before the call returns.
    pub(crate) async fn run_sandbox(
        self: &Arc<Self>,
        config: v1::PodSandboxConfig,
        handler: String,
    ) -> Result<String, Refusal> {
        let now = self.now();
        let id = self.world().run_sandbox(config, handler, now)?;
        self.tell(Kind::ContainerCreatedEvent, &id, &id).await;
        self.tell(Kind::ContainerStartedEvent, &id, &id).await;
        Ok(id)
    }

    /// Kills its containers, ends it, tears its network down. Nothing to do is no error.
    pub(crate) async fn stop_sandbox(self: &Arc<Self>, id: &str) {
        let containers = self.world().containers_of(id);
        for container in containers {
            self.stop_container(&container, Duration::ZERO).await;
        }
        self.end_sandbox(id);
        self.world().release_address(id);
    }

    /// Its pause process ends, for whatever cause; a task of its own tells it.
    pub(crate) fn end_sandbox(self: &Arc<Self>, id: &str) {
        if self.world().sandbox_exited(id) {
            let untold = self.begin_telling(id);
            let (engine, id) = (Arc::clone(self), id.to_owned());
            self.tasks.spawn(async move {
                engine.tell(Kind::ContainerStoppedEvent, &id, &id).await;
                engine.end_telling(&id, untold);
            });
        }
    }

    /// Stops what runs, removes the containers, tells, and only then forgets it: for an instant a
    /// list shows a sandbox whose removal was told.
    pub(crate) async fn remove_sandbox(self: &Arc<Self>, id: &str) {
        self.stop_sandbox(id).await;
        self.tear_down(id).await;
        let containers = self.world().containers_of(id);
        for container in containers {
            self.remove_container(&container).await;
        }
        if self.world().begin_removal(id) {
            self.tell(Kind::ContainerDeletedEvent, id, id).await;
            self.world().forget_sandbox(id);
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

    /// The process runs before its start is told, so a short one may have ended by then. A start
    /// that fails tells nothing.
    pub(crate) async fn start_container(self: &Arc<Self>, id: &str) -> Result<(), Refusal> {
        let now = self.now();
        let (script, sandbox) = {
            let mut world = self.world();
            let script = world.start_container(id, now)?;
            (script, world.container(id)?.sandbox.clone())
        };
        self.spawn_process(id, script);
        self.tell(Kind::ContainerStartedEvent, &sandbox, id).await;
        Ok(())
    }

    /// Returns when it has ended; its end may be told later. Nothing to do is no error.
    pub(crate) async fn stop_container(&self, id: &str, grace: Duration) {
        let Some(mut process) = lock(&self.processes).get(id).cloned() else {
            return;
        };
        if !grace.is_zero() {
            process.give(Order::Stop);
            tokio::select! {
                () = process.wait() => return,
                () = self.pause(grace) => {}
            }
        }
        process.give(Order::Kill(KILLED));
        process.wait().await;
    }

    /// Ends a running container as if by itself. False if it does not run.
    pub(crate) fn kill_container(&self, id: &str, code: i32) -> bool {
        let process = lock(&self.processes).get(id).cloned();
        process.is_some_and(|p| {
            p.give(Order::Kill(code));
            true
        })
    }

    /// Kills it if it runs. It is forgotten before that is told. Nothing to do is no error.
    pub(crate) async fn remove_container(self: &Arc<Self>, id: &str) {
        self.stop_container(id, Duration::ZERO).await;
        self.tear_down(id).await;
        let sandbox = self.world().forget_container(id);
        if let Some(sandbox) = sandbox {
            self.tell(Kind::ContainerDeletedEvent, &sandbox, id).await;
        }
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

    // === processes ===

    /// A container's life, in a task of its own.
    fn spawn_process(self: &Arc<Self>, id: &str, script: Script) {
        let (order, orders) = watch::channel(Order::Live);
        let (end, ended) = watch::channel(false);
        lock(&self.processes).insert(id.to_owned(), Process { order, ended });
        let (engine, id) = (Arc::clone(self), id.to_owned());
        self.tasks.spawn(async move {
            let code = tokio::select! {
                biased;
                () = engine.stop.cancelled() => return,
                code = engine.live(script, orders) => code,
            };
            let now = engine.now();
            let sandbox = engine.world().container_exited(&id, code, now);
            lock(&engine.processes).remove(&id);
            let untold = engine.begin_telling(&id);
            // Whoever waits for the end goes on before it is told.
            end.send_replace(true);
            if let Some(sandbox) = sandbox {
                engine
                    .tell(Kind::ContainerStoppedEvent, &sandbox, &id)
                    .await;
            }
            engine.end_telling(&id, untold);
        });
    }

    /// Until it ends; the exit code.
    async fn live(&self, script: Script, mut orders: watch::Receiver<Order>) -> i32 {
        let by_itself = async {
            match script {
                Script::Exit { code, after } => {
                    self.pause(after).await;
                    code
                }
                Script::Run | Script::IgnoreTerm | Script::FailStart => {
                    std::future::pending().await
                }
            }
        };
        let ordered = async {
            loop {
                let order = *orders.borrow_and_update();
                match (order, script.on_term()) {
                    (Order::Kill(code), _) | (Order::Stop, Some(code)) => return code,
                    (Order::Live, _) | (Order::Stop, None) => {}
                }
                if orders.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            code = by_itself => code,
            code = ordered => code,
        }
    }

    fn begin_telling(&self, id: &str) -> watch::Sender<()> {
        let (untold, told) = watch::channel(());
        lock(&self.untold).insert(id.to_owned(), told);
        untold
    }

    fn end_telling(&self, id: &str, untold: watch::Sender<()>) {
        lock(&self.untold).remove(id);
        drop(untold);
    }

    /// What containerd does between an end and a removal takes longer than telling the end does;
    /// so a removal is told first only if something holds the telling up.
    async fn tear_down(&self, id: &str) {
        let told = lock(&self.untold).get(id).cloned();
        if let Some(mut told) = told {
            tokio::select! {
                _ = told.changed() => {}
                () = self.pause(TEAR_DOWN) => {}
            }
        }
    }

    // === events ===

    /// Copies the statuses as they are now, stamps, and queues; waits for a subscriber that does
    /// not read. Here, and only here, are events made to lie.
    async fn tell(self: &Arc<Self>, kind: Kind, sandbox: &str, subject: &str) {
        let (pod_sandbox_status, containers_statuses) = self.world().snapshot(sandbox);
        self.pause(self.faults.pause_before_stamp(subject, kind))
            .await;
        let mut event = v1::ContainerEventResponse {
            container_id: subject.to_owned(),
            container_event_type: kind.into(),
            created_at: self.now(),
            pod_sandbox_status,
            containers_statuses,
        };
        match self.faults.event(&mut event) {
            Delivery::Once => self.publish(event).await,
            Delivery::Drop => {}
            Delivery::Twice => {
                self.publish(event.clone()).await;
                self.publish(event).await;
            }
            Delivery::Later(time) => {
                let engine = Arc::clone(self);
                self.tasks.spawn(async move {
                    engine.pause(time).await;
                    engine.publish(event).await;
                });
            }
        }
    }

    async fn publish(&self, event: v1::ContainerEventResponse) {
        tracing::debug!(
            id = event.container_id,
            kind = event.container_event_type().as_str_name(),
            "event"
        );
        self.events.publish(event).await;
    }

    // === connections ===

    /// Ends when the connections of now are cut.
    pub(crate) fn connections(&self) -> CancellationToken {
        lock(&self.connections).clone()
    }

    pub(crate) fn sever_connections(&self) {
        let fresh = self.stop.child_token();
        std::mem::replace(&mut *lock(&self.connections), fresh).cancel();
    }
}

impl Process {
    fn give(&self, order: Order) {
        self.order.send_if_modified(|current| {
            let news = matches!(
                (*current, order),
                (Order::Live, _) | (Order::Stop, Order::Kill(_))
            );
            if news {
                *current = order;
            }
            news
        });
    }

    async fn wait(&mut self) {
        // An error means that its task is gone: it has ended, or everything has.
        let _ = self.ended.wait_for(|ended| *ended).await;
    }
}

/// A panic elsewhere does not make the state wrong: every change of it is one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
