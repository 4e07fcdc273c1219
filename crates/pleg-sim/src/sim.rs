//! The simulator as its users hold it: built, served, prodded, shut down.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use pleg_runtime::clock;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    chaos::{Chaos, KnobError},
    control::{self, ControlError},
    delivery::Counts,
    engine::{Engine, WallClock},
    error::SimError,
    faults::{Faults, Healthy},
    habits::Habits,
    life::{self, LifeConfig, LifeHandle},
    mode::Mode,
    programs::End,
    run::{Ending, Phase, Restart},
    server::{self, Serving},
    service::CriService,
};

/// A simulated runtime. Dropping it ends everything it serves, as [`Sim::shutdown`] does, but
/// without waiting.
#[derive(Debug)]
pub struct Sim {
    mode: Mode,
    engine: Arc<Engine>,
}

impl Sim {
    /// A simulator to be configured.
    pub fn builder() -> SimBuilder {
        SimBuilder::default()
    }

    /// Which runtime it is.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The CRI, for calls within the process.
    #[must_use]
    pub fn service(&self) -> CriService {
        CriService::new(Arc::clone(&self.engine))
    }

    /// Serves a unix socket until `shutdown` completes, the returned handle stops it, or the
    /// simulator ends. A socket that nobody listens on is replaced. Must be called inside a tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// If somebody listens there, if something that is not a socket has that name, or if the
    /// operating system refuses.
    pub fn serve_unix(
        &self,
        path: impl AsRef<Path>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Serving, SimError> {
        server::serve_unix(&self.engine, path.as_ref(), shutdown)
    }

    /// Serves one connection, such as one end of a `tokio::io::duplex`, until either side ends
    /// it. Must be called inside a tokio runtime.
    pub fn serve_stream<IO>(&self, io: IO)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        server::serve_stream(&self.engine, io);
    }

    /// Pods come, crash, restart and go by themselves until the handle stops it or the simulator
    /// ends. Must be called inside a tokio runtime.
    pub fn spawn_life(&self, config: LifeConfig) -> LifeHandle {
        life::spawn(&self.engine, config)
    }

    /// Ends a running container as if its program had ended with that code. False if it does not
    /// run.
    pub fn kill_container(&self, id: &str, code: i32) -> bool {
        self.engine.kill_container(id, End::by_itself(code))
    }

    /// Ends a running container for its use of memory: 137, and `OOMKilled` in the event or only
    /// afterwards, as the runtime has it. False if it does not run.
    pub fn oom_kill_container(&self, id: &str) -> bool {
        self.engine.kill_container(id, End::OOM)
    }

    /// Returns when that container does not run (any more).
    pub async fn wait_for_exit(&self, id: &str) {
        self.engine.until_ended(id).await;
    }

    /// Ends a sandbox as if its pause process had been killed: it becomes not ready, its
    /// containers run on unless they share its process namespace. False if it is not ready, or
    /// has no such process (CRI-O drops it).
    pub fn kill_sandbox(&self, id: &str) -> bool {
        self.engine.kill_sandbox(id)
    }

    /// How it misbehaves now.
    #[must_use]
    pub fn chaos(&self) -> Chaos {
        self.engine.chaos.chaos()
    }

    /// Makes it misbehave so, and not as before. Calls that hang go on unless they are to hang
    /// anew.
    pub fn set_chaos(&self, chaos: Chaos) {
        self.engine.chaos.replace(chaos);
    }

    /// Sets one knob from text, as [`Chaos::set`]; the others stay as they are.
    ///
    /// # Errors
    ///
    /// If there is no such knob, or it takes other values.
    pub fn set_knob(&self, knob: &str) -> Result<(), KnobError> {
        self.engine.chaos.set(knob)
    }

    /// How often each knob has fired, by its name. What never fired is not there.
    #[must_use]
    pub fn fired(&self) -> BTreeMap<String, u64> {
        self.engine.chaos.fired()
    }

    /// Obeys a line of [`Sim::serve_control`]'s protocol, and returns the answer's lines.
    ///
    /// # Errors
    ///
    /// If it is not understood, or cannot be done now.
    pub async fn control(&self, line: &str) -> Result<String, ControlError> {
        control::obey(&self.engine, self.mode, line).await
    }

    /// Serves control on a unix socket of its own, until the returned handle stops it or the
    /// simulator ends. A line in is a command (`help` lists them); out come the lines of its
    /// answer, and then `ok`, or `error: ` and what is wrong. Must be called inside a tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// As [`Sim::serve_unix`].
    pub fn serve_control(&self, path: impl AsRef<Path>) -> Result<Serving, SimError> {
        control::serve(&self.engine, self.mode, path.as_ref())
    }

    /// Where the runtime's process is in its life.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.engine.phase()
    }

    /// Restarts the runtime's process. Returns when it serves again. The subscribers and the
    /// queue of the old one are forgotten, and what happens while there is none is never told.
    /// Connections of [`Sim::serve_stream`] end with the old process.
    pub async fn restart(&self, how: Restart) {
        self.engine.restart(how).await;
    }

    /// The first part of a restart: the process ends. Returns when nothing serves any more.
    pub async fn go_down(&self, ending: Ending) {
        self.engine.go_down(ending).await;
    }

    /// The second part: a new process starts, and has its sockets as this returns.
    pub async fn come_up(&self) {
        self.engine.come_up().await;
    }

    /// The last part: a process that starts obeys calls from now on.
    pub fn ready(&self) {
        self.engine.ready();
    }

    /// Cuts all connections of now without a goodbye. New ones are accepted.
    pub fn sever_connections(&self) {
        self.engine.sever_connections();
    }

    /// How many subscribers the runtime believes in, dead ones included.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        self.counts().subscribers
    }

    /// How many events wait for a subscriber.
    #[must_use]
    pub fn held_events(&self) -> usize {
        self.counts().held
    }

    /// How many held events were thrown away because nobody came for them within five minutes.
    #[must_use]
    pub fn discarded_events(&self) -> u64 {
        self.counts().discarded
    }

    /// How many events were thrown away because the queue was full, or nobody listened any more.
    #[must_use]
    pub fn dropped_events(&self) -> u64 {
        self.counts().dropped
    }

    /// Returns when the runtime believes in exactly that many subscribers, or has ended.
    pub async fn wait_for_subscribers(&self, count: usize) {
        self.wait_for(|now| now.subscribers == count).await;
    }

    /// Returns when at least that many events are held, or the simulator has ended.
    pub async fn wait_for_held_events(&self, count: usize) {
        self.wait_for(|now| now.held >= count).await;
    }

    /// Ends everything: cuts connections, ends containers' tasks, and returns when no task is
    /// left. The simulator serves nothing afterwards.
    pub async fn shutdown(&self) {
        self.engine.stop.cancel();
        self.engine.tasks.close();
        self.engine.tasks.wait().await;
    }

    fn counts(&self) -> Counts {
        *self.engine.counts.borrow()
    }

    async fn wait_for(&self, condition: impl Fn(&Counts) -> bool) {
        let mut counts = self.engine.counts.subscribe();
        tokio::select! {
            _ = counts.wait_for(|now| condition(now)) => {}
            () = self.engine.stop.cancelled() => {}
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.engine.stop.cancel();
    }
}

/// How a [`Sim`] is to be.
#[must_use]
pub struct SimBuilder {
    mode: Mode,
    seed: u64,
    version: Option<String>,
    wall: WallClock,
    faults: Arc<dyn Faults>,
    chaos: Chaos,
}

impl std::fmt::Debug for SimBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimBuilder")
            .field("mode", &self.mode)
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl Default for SimBuilder {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            seed: 0,
            version: None,
            wall: Arc::new(|| clock::wall().as_nanos()),
            faults: Arc::new(Healthy),
            chaos: Chaos::default(),
        }
    }
}

impl SimBuilder {
    /// Which runtime it is; containerd 2 by default.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// From which ids are made and dice are thrown; 0 by default. Two simulators of one seed make
    /// the same ids.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The runtime's version, as `Version` gives it; [`Mode::default_version`] by default. Its
    /// behaviour follows, as far as the mode knows that version ([`Mode::check_version`] tells);
    /// otherwise that of the nearest one that it knows.
    pub fn runtime_version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// The clock for what the runtime stamps; the host's by default.
    pub fn wall_clock(mut self, wall: WallClock) -> Self {
        self.wall = wall;
        self
    }

    /// How it misbehaves; not at all by default.
    pub fn chaos(mut self, chaos: Chaos) -> Self {
        self.chaos = chaos;
        self
    }

    /// What it does to each call and event, decided by code; nothing by default.
    pub fn faults(mut self, faults: Arc<dyn Faults>) -> Self {
        self.faults = faults;
        self
    }

    /// The simulator. Nothing runs yet.
    #[must_use]
    pub fn build(self) -> Sim {
        let default = self.mode.default_version();
        let habits = Habits::of(self.mode, self.version.as_deref().unwrap_or(default));
        let phase = match self.mode {
            Mode::Starting | Mode::Silent => Phase::Starting,
            _ => Phase::Serving,
        };
        let engine = Engine::new(habits, phase, self.seed, self.wall, self.faults, self.chaos);
        Sim {
            mode: self.mode,
            engine: Arc::new(engine),
        }
    }
}
