//! `pleg sim`, and the simulated runtime that `--sim` embeds: always behind a real socket, and
//! reached by the same client as any other runtime.

use anyhow::Context;
use pleg_cri::Endpoint;
use pleg_sim::{LifeConfig, LifeHandle, Serving, Sim};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use crate::args::SimArgs;
use crate::connect::say;

pub(crate) async fn run(args: SimArgs) -> anyhow::Result<()> {
    let sim = Sim::builder().seed(args.seed).build();
    let mut terminate = signal(SignalKind::terminate())?;
    let serving = sim.serve_unix(&args.socket, std::future::pending())?;
    let life = (!args.empty).then(|| sim.spawn_life(LifeConfig::default().seed(args.seed)));
    say(&format!(
        "a simulated runtime listens on unix://{}",
        serving.path().display()
    ));
    tokio::select! {
        // main ends everything on Ctrl-C; the socket must go then, too.
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    if let Some(life) = life {
        life.stop().await;
    }
    serving.stop().await;
    sim.shutdown().await;
    Ok(())
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
