//! The whole way without a real runtime: `pleg-sim` behind a unix socket, reached by the same
//! client as containerd is. Every test has a runtime of its own.

#![allow(clippy::print_stdout, reason = "a test says what it measured")]
#![allow(
    clippy::large_futures,
    reason = "a CRI request is large; tests do not mind"
)]

mod churn;
mod fresh;
mod lagging;
mod outage;
mod parity;
mod rivals;

use std::path::PathBuf;
use std::time::Duration;

use pleg::core::{Mode, Settings};
use pleg::{Builder, Pleg, Subscription};
use pleg_cri::{CriConfig, CriRuntime, Endpoint};
use pleg_sim::{Serving, Sim};
use pleg_tests::kubelet::Kubelet;
use pleg_tests::tap::{Ear, Tap};
use tempfile::TempDir;

/// How long anything may take that happens at once when all is well.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A simulated runtime.
pub(crate) struct Node {
    pub(crate) sim: Sim,
    serving: Option<Serving>,
    endpoint: Endpoint,
    dir: TempDir,
}

impl Node {
    pub(crate) fn up() -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("pleg").tempdir()?;
        let path = dir.path().join("cri.sock");
        let mut node = Self {
            sim: Sim::builder().seed(2).build(),
            serving: None,
            endpoint: format!("unix://{}", path.display()).parse()?,
            dir,
        };
        node.serve()?;
        Ok(node)
    }

    /// Serves its socket, for the first time or again.
    pub(crate) fn serve(&mut self) -> anyhow::Result<()> {
        let path: PathBuf = self.endpoint.path().to_owned();
        self.serving = Some(self.sim.serve_unix(path, std::future::pending())?);
        Ok(())
    }

    /// Cuts all connections and removes the socket. Its containers go on.
    pub(crate) async fn stop_serving(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.stop().await;
        }
    }

    pub(crate) fn runtime(&self) -> anyhow::Result<CriRuntime> {
        Ok(CriRuntime::new(CriConfig::new(self.endpoint.clone()))?)
    }

    pub(crate) fn kubelet(&self) -> anyhow::Result<Kubelet> {
        Kubelet::at(&self.endpoint, "app:1", "", self.dir.path())
    }

    pub(crate) async fn down(self) {
        self.sim.shutdown().await;
    }
}

/// A generator under test, listened in on.
pub(crate) struct Subject {
    pub(crate) pleg: Pleg,
    pub(crate) events: Subscription,
    pub(crate) ear: Ear,
    /// A client of the same runtime, for the truth.
    pub(crate) truth: CriRuntime,
}

impl Subject {
    /// One that has synced and, in `Evented`, has its subscription.
    pub(crate) async fn start(node: &Node, settings: Settings) -> anyhow::Result<Self> {
        let (subject, ()) = Self::start_with(node, settings, |_| ()).await?;
        Ok(subject)
    }

    /// The same, with something more asked of its builder.
    pub(crate) async fn start_with<T>(
        node: &Node,
        settings: Settings,
        more: impl FnOnce(&mut Builder<Tap<CriRuntime>>) -> T,
    ) -> anyhow::Result<(Self, T)> {
        let evented = settings.mode == Mode::Evented;
        let (runtime, ear) = Tap::new(node.runtime()?);
        let mut builder = Pleg::builder(runtime).settings(settings);
        let events = builder.subscribe();
        let more = more(&mut builder);
        let subject = Self {
            pleg: builder.spawn()?,
            events,
            ear,
            truth: node.runtime()?,
        };
        subject.pleg.wait_until_synced().await?;
        if evented {
            node.sim.wait_for_subscribers(1).await;
        }
        Ok((subject, more))
    }
}

/// The default, and polling with so short a period that a test of it is quick.
pub(crate) fn settings(mode: Mode) -> Settings {
    let mut settings = Settings::default();
    settings.mode = mode;
    if mode == Mode::Polling {
        settings.relist_period = Duration::from_millis(50);
    }
    settings
}
