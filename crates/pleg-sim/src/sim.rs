//! The public API of the simulator.

use std::{collections::BTreeMap, fmt, sync::Arc};

use pleg_runtime::clock;

use crate::{
    delivery::Counts,
    engine::{Engine, WallClock},
    error::SimError,
    mode::Mode,
    process::Phase,
    profile::RuntimeProfile,
    programs::ExitStatus,
    service::CriService,
};

/// A simulated runtime. Dropping it ends everything that it serves, as [`Sim::shutdown`] does, but without waiting.
#[derive(Debug)]
pub struct Sim {
    pub(crate) engine: Arc<Engine>,
}

impl Sim {
    /// Creates a builder with the default configuration.
    pub fn builder() -> SimBuilder {
        SimBuilder::default()
    }

    /// The CRI services, for calls within the process.
    #[must_use]
    pub fn service(&self) -> CriService {
        CriService {
            engine: Arc::clone(&self.engine),
        }
    }

    /// Makes a running container exit with this exit code. Returns false if the container is not running.
    pub fn kill_container(&self, id: &str, code: i32) -> bool {
        self.engine.kill_container(id, ExitStatus::from_code(code))
    }

    /// Kills the pause process of a sandbox. The sandbox becomes not ready; its containers keep
    /// running unless they share its process namespace. Returns false if the sandbox is not ready
    /// or has no pause process (CRI-O usually has none).
    pub fn kill_sandbox(&self, id: &str) -> bool {
        self.engine.kill_sandbox(id)
    }

    /// Sets one knob from text, in the syntax of [`check_knob`](crate::check_knob). Other knobs stay unchanged.
    ///
    /// # Errors
    /// If the knob does not exist, the value is not valid for it, or it has no effect in the simulated runtime.
    pub fn set_knob(&self, knob: &str) -> Result<(), SimError> {
        self.engine.set_knobs(&[knob])
    }

    /// The number of times that each knob has fired, by name. A knob that never fired is absent.
    #[must_use]
    pub fn fired(&self) -> BTreeMap<String, u64> {
        self.engine.faults().fired.clone()
    }

    /// The number of sandboxes and containers that `ListPodSandbox`, `ListContainers` and their
    /// streaming variants have visited. Every list visits every item of the node, with or without
    /// a filter, as in containerd.
    #[must_use]
    pub fn visited_items(&self) -> u64 {
        self.engine.world().visited
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

    /// Returns when the runtime has exactly `count` subscribers, or when the simulator has ended.
    pub async fn wait_for_subscribers(&self, count: usize) {
        let mut counts = self.engine.counts.subscribe();
        let reached = counts.wait_for(|now| now.subscribers == count);
        self.engine.stop.run_until_cancelled(reached).await;
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
#[derive(Default)]
#[must_use]
pub struct SimBuilder {
    mode: Mode,
    seed: u64,
    version: Option<String>,
    wall: Option<WallClock>,
}

impl fmt::Debug for SimBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimBuilder({} {:?})", self.mode, self.version)
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

    /// The version that `Version` returns and that selects the behavior; [`Mode::default_version`] by default. If it
    /// does not belong to the mode ([`Mode::check_version`]), the nearest version of the mode selects the behavior.
    pub fn runtime_version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// The clock for timestamps; by default the clock of the host.
    pub fn wall_clock(mut self, wall: WallClock) -> Self {
        self.wall = Some(wall);
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
        let wall = self
            .wall
            .unwrap_or_else(|| Arc::new(|| clock::wall().as_nanos()));
        let engine = Arc::new(Engine::new(profile, phase, self.seed, wall));
        Sim { engine }
    }
}
