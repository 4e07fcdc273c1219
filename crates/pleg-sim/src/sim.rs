//! The public API of the simulator.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use pleg_runtime::clock;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    control::{self, ControlError},
    delivery::Counts,
    engine::{Engine, Wall, WallClock},
    error::SimError,
    fault_profile::KnobError,
    faults::{Faults, Healthy},
    mode::Mode,
    process::Phase,
    profile::RuntimeProfile,
    programs::ExitStatus,
    server::{self, Serving},
    service::CriService,
    workload::{self, WorkloadConfig, WorkloadHandle},
};

/// A simulated runtime. Dropping it ends everything it serves, as [`Sim::shutdown`] does, without
/// waiting.
#[derive(Debug)]
pub struct Sim {
    engine: Arc<Engine>,
}

impl Sim {
    /// Creates a builder with the default configuration.
    pub fn builder() -> SimBuilder {
        SimBuilder::default()
    }

    /// The simulated runtime.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.engine.profile.mode
    }

    /// The CRI services, for calls within the process.
    #[must_use]
    pub fn service(&self) -> CriService {
        CriService::new(Arc::clone(&self.engine))
    }

    /// Serves a unix socket until `shutdown` completes, the returned handle stops it, or the
    /// simulator ends. Replaces a socket file that no process listens on. Must be called inside a
    /// tokio runtime.
    ///
    /// # Errors
    ///
    /// If another process listens on the socket, if the path exists and is not a socket, or if the
    /// operating system returns an error.
    pub fn serve_unix(
        &self,
        path: impl AsRef<Path>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Serving, SimError> {
        server::serve_unix(&self.engine, path.as_ref(), shutdown)
    }

    /// Serves one connection, such as one end of a `tokio::io::duplex`, until either side closes
    /// it. Must be called inside a tokio runtime.
    pub fn serve_stream<IO>(&self, io: IO)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        server::serve_stream(&self.engine, io);
    }

    /// Starts a workload: pods are created, crash, restart and are removed until the simulator ends.
    /// Must be called inside a tokio runtime.
    pub fn spawn_workload(&self, config: WorkloadConfig) -> WorkloadHandle {
        workload::spawn(&self.engine, config)
    }

    /// Makes a running container exit with that code. Returns false if it does not run.
    pub fn kill_container(&self, id: &str, code: i32) -> bool {
        self.engine.kill_container(id, ExitStatus::from_code(code))
    }

    /// Kills the pause process of a sandbox. The sandbox becomes not ready; its containers keep
    /// running unless they share its process namespace. Returns false if the sandbox is not ready
    /// or has no pause process (CRI-O usually has none).
    pub fn kill_sandbox(&self, id: &str) -> bool {
        self.engine.kill_sandbox(id)
    }

    /// Sets one knob from text, in the syntax of [`FaultProfile::set`](crate::FaultProfile::set). The
    /// others stay unchanged.
    ///
    /// # Errors
    ///
    /// If the knob does not exist, the value is not valid for it, or it has no effect in the
    /// simulated runtime.
    pub fn set_knob(&self, knob: &str) -> Result<(), KnobError> {
        self.engine.injector.set(&[knob])
    }

    /// How often each knob has fired, by name. A knob that never fired is absent.
    #[must_use]
    pub fn fired(&self) -> BTreeMap<String, u64> {
        self.engine.injector.fired()
    }

    /// The number of sandboxes and containers that `ListPodSandbox`, `ListContainers` and their
    /// streaming variants have visited. Every list visits every item of the node, with or without
    /// a filter, as in containerd.
    #[must_use]
    pub fn visited_items(&self) -> u64 {
        self.engine.world().visited
    }

    /// Executes one command of [`CONTROL_COMMANDS`](crate::CONTROL_COMMANDS) and returns the lines of
    /// the response.
    ///
    /// # Errors
    ///
    /// If the command is not valid, or not possible in the current state.
    pub async fn control(&self, line: &str) -> Result<String, ControlError> {
        control::execute(&self.engine, line).await
    }

    /// Serves control commands on a separate unix socket until the returned handle stops it or the
    /// simulator ends. A request is one line (`help` lists the commands). The response is any
    /// number of lines, followed by `ok` or by `error: ` and the reason. Must be called inside a
    /// tokio runtime.
    ///
    /// # Errors
    ///
    /// As [`Sim::serve_unix`].
    pub fn serve_control(&self, path: impl AsRef<Path>) -> Result<Serving, SimError> {
        control::serve(&self.engine, path.as_ref())
    }

    /// The state of the runtime's process.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.engine.phase()
    }

    /// The numbers of subscribers and of undelivered events.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *self.engine.counts.borrow()
    }

    /// Returns when the runtime has exactly that many subscribers, or has ended.
    pub async fn wait_for_subscribers(&self, count: usize) {
        let mut counts = self.engine.counts.subscribe();
        tokio::select! {
            _ = counts.wait_for(|now| now.subscribers == count) => {}
            () = self.engine.stop.cancelled() => {}
        }
    }

    /// Ends everything: cuts connections, cancels calls in progress and stops all tasks. Returns
    /// when no task is left. The simulator serves nothing afterwards.
    pub async fn shutdown(&self) {
        self.engine.stop.cancel();
        self.engine.tasks.close();
        self.engine.tasks.wait().await;
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.engine.stop.cancel();
    }
}

/// Configures a [`Sim`].
#[derive(Debug)]
#[must_use]
pub struct SimBuilder {
    mode: Mode,
    seed: u64,
    version: Option<String>,
    wall: Wall,
    faults: Arc<dyn Faults>,
}

impl Default for SimBuilder {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            seed: 0,
            version: None,
            wall: Wall(Arc::new(|| clock::wall().as_nanos())),
            faults: Arc::new(Healthy),
        }
    }
}

impl SimBuilder {
    /// The simulated runtime; containerd 2 by default.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The seed of ids and random decisions; 0 by default. Two simulators with the same seed create
    /// the same ids.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The version that `Version` returns; [`Mode::default_version`] by default. It also selects
    /// the behavior, if it belongs to the mode ([`Mode::check_version`]); otherwise the nearest
    /// version that does selects it.
    pub fn runtime_version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// The clock for timestamps; the host's by default.
    pub fn wall_clock(mut self, wall: WallClock) -> Self {
        self.wall = Wall(wall);
        self
    }

    /// Faults that are decided by code; none by default.
    pub fn faults(mut self, faults: Arc<dyn Faults>) -> Self {
        self.faults = faults;
        self
    }

    /// Creates the simulator. It runs nothing yet.
    #[must_use]
    pub fn build(self) -> Sim {
        let default = self.mode.default_version();
        let profile = RuntimeProfile::of(self.mode, self.version.as_deref().unwrap_or(default));
        let phase = match self.mode {
            Mode::Starting | Mode::Silent => Phase::Starting,
            _ => Phase::Serving,
        };
        let engine = Engine::new(profile, phase, self.seed, self.wall, self.faults);
        Sim {
            engine: Arc::new(engine),
        }
    }
}
