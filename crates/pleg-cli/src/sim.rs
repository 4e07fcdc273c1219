//! `pleg sim`, and the simulated runtime that `--sim` embeds: always behind a real socket, and
//! reached by the same client as any other runtime.

use anyhow::Context;
use pleg_cri::Endpoint;
use pleg_sim::{LifeConfig, LifeHandle, Serving, Sim};
use tempfile::TempDir;

use crate::args::SimArgs;
use crate::connect::say;
use crate::signals::Signal;

pub(crate) async fn run(
    args: SimArgs,
    signal: impl Future<Output = Signal>,
) -> anyhow::Result<Signal> {
    let sim = Sim::builder().seed(args.seed).build();
    let serving = sim.serve_unix(&args.socket, std::future::pending())?;
    let life = (!args.empty).then(|| sim.spawn_life(LifeConfig::default().seed(args.seed)));
    say(&format!(
        "a simulated runtime listens on unix://{}",
        serving.path().display()
    ));
    let signal = signal.await;
    if let Some(life) = life {
        life.stop().await;
    }
    // The socket goes with it.
    serving.stop().await;
    sim.shutdown().await;
    Ok(signal)
}

/// A simulated runtime of our own, with pods that come, crash and go.
pub(crate) struct Embedded {
    sim: Sim,
    life: LifeHandle,
    serving: Serving,
    _dir: TempDir,
}

impl Embedded {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("pleg-sim").tempdir()?;
        let sim = Sim::builder().build();
        let serving = sim.serve_unix(dir.path().join("cri.sock"), std::future::pending())?;
        let life = sim.spawn_life(LifeConfig::default());
        Ok(Self {
            sim,
            life,
            serving,
            _dir: dir,
        })
    }

    pub(crate) fn endpoint(&self) -> anyhow::Result<Endpoint> {
        let path = self
            .serving
            .path()
            .to_str()
            .context("the temporary directory is no text")?;
        Ok(path.parse()?)
    }

    pub(crate) async fn stop(self) {
        self.life.stop().await;
        self.serving.stop().await;
        self.sim.shutdown().await;
    }
}
