//! The simulator as its users hold it: built, served, prodded, shut down.

use std::{path::Path, sync::Arc};

use pleg_runtime::clock;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    engine::{Engine, WallClock},
    error::SimError,
    events::Counts,
    faults::{Faults, Healthy},
    life::{self, LifeConfig, LifeHandle},
    server::{self, Serving},
    service::CriService,
};

/// A simulated runtime. Dropping it ends everything it serves, as [`Sim::shutdown`] does, but
/// without waiting.
#[derive(Debug)]
pub struct Sim {
    engine: Arc<Engine>,
}

impl Sim {
    /// A simulator to be configured.
    pub fn builder() -> SimBuilder {
        SimBuilder::default()
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
        self.engine.kill_container(id, code)
    }

    /// Ends a sandbox as if its pause process had been killed: it becomes not ready, its
    /// containers run on.
    pub fn kill_sandbox(&self, id: &str) {
        self.engine.end_sandbox(id);
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

    /// How many events are held for a first subscriber.
    #[must_use]
    pub fn held_events(&self) -> usize {
        self.counts().held
    }

    /// How many held events were thrown away because nobody came for them within five minutes.
    #[must_use]
    pub fn discarded_events(&self) -> u64 {
        self.engine.events.discarded()
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
        *self.engine.events.counts().borrow()
    }

    async fn wait_for(&self, condition: impl Fn(&Counts) -> bool) {
        let mut counts = self.engine.events.counts();
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
    seed: u64,
    version: String,
    wall: WallClock,
    faults: Arc<dyn Faults>,
}

impl std::fmt::Debug for SimBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimBuilder")
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

impl Default for SimBuilder {
    fn default() -> Self {
        Self {
            seed: 0,
            version: "v2.4.0".to_owned(),
            wall: Arc::new(|| clock::wall().as_nanos()),
            faults: Arc::new(Healthy),
        }
    }
}

impl SimBuilder {
    /// From which ids are made and dice are thrown; 0 by default. Two simulators of one seed make
    /// the same ids.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// What `Version` gives as the version of containerd; `v2.4.0` by default. The behaviour stays
    /// the same.
    pub fn runtime_version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// The clock for what the runtime stamps; the host's by default.
    pub fn wall_clock(mut self, wall: WallClock) -> Self {
        self.wall = wall;
        self
    }

    /// How it misbehaves; not at all by default.
    pub fn faults(mut self, faults: Arc<dyn Faults>) -> Self {
        self.faults = faults;
        self
    }

    /// The simulator. Nothing runs yet.
    #[must_use]
    pub fn build(self) -> Sim {
        let engine = Engine::new(self.seed, self.version, self.wall, self.faults);
        Sim {
            engine: Arc::new(engine),
        }
    }
}
