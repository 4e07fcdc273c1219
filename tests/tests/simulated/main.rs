//! The whole system without a real runtime: `pleg-sim` behind a unix socket, reached by the same client as
//! containerd. Every test has a runtime of its own.

#![allow(clippy::print_stdout, reason = "a test prints what it measured")]
#![allow(
    clippy::large_futures,
    reason = "a CRI request is large; tests do not mind"
)]

mod churn;
mod connect;
mod fresh;
mod lagging;
mod parity;
mod rivals;

use std::time::Duration;

use pleg::Builder;
use pleg::core::{Mode, Settings, StreamState};
use pleg_cri::{CriConfig, CriRuntime, Endpoint};
use pleg_sim::Sim;
use pleg_tests::generator::Generator;
use pleg_tests::kubelet::Kubelet;
use pleg_tests::recording::{Recorder, RecordingRuntime};
use tempfile::TempDir;

/// The limit for anything that should happen at once.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A simulated runtime.
pub(crate) struct Node {
    pub(crate) sim: Sim,
    endpoint: Endpoint,
    dir: TempDir,
}

impl Node {
    pub(crate) fn up() -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("pleg").tempdir()?;
        let path = dir.path().join("cri.sock");
        let sim = Sim::builder().seed(2).build();
        let _serving = sim.serve_unix(&path, std::future::pending())?;
        Ok(Self {
            sim,
            endpoint: format!("unix://{}", path.display()).parse()?,
            dir,
        })
    }

    pub(crate) fn runtime(&self) -> anyhow::Result<CriRuntime> {
        Ok(CriRuntime::new(CriConfig::new(self.endpoint.clone()))?)
    }

    /// A generator that is not started.
    pub(crate) fn builder(
        &self,
        settings: Settings,
    ) -> anyhow::Result<(Builder<RecordingRuntime<CriRuntime>>, Recorder)> {
        let (builder, recorder) = Generator::builder(self.runtime()?);
        Ok((builder.settings(settings), recorder))
    }

    /// Starts a generator. It has synced and, in `Evented`, is subscribed.
    pub(crate) async fn start(&self, settings: Settings) -> anyhow::Result<Generator> {
        self.spawn(self.builder(settings)?).await
    }

    /// Starts that generator. It has synced and, in `Evented`, is subscribed.
    pub(crate) async fn spawn(
        &self,
        (builder, recorder): (Builder<RecordingRuntime<CriRuntime>>, Recorder),
    ) -> anyhow::Result<Generator> {
        let generator = Generator::spawn(builder, recorder, self.runtime()?)?;
        generator.pleg.wait_until_synced().await?;
        if generator.health().stream != StreamState::Off {
            self.sim.wait_for_subscribers(1).await;
        }
        Ok(generator)
    }

    pub(crate) fn kubelet(&self) -> anyhow::Result<Kubelet> {
        Kubelet::at(&self.endpoint, "app:1", "", self.dir.path())
    }

    pub(crate) async fn down(self) {
        self.sim.shutdown().await;
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
