//! `pleg sim`, and the embedded simulated runtime of `--sim`. Both serve CRI on a unix socket, as a real runtime does.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use pleg_cri::Endpoint;
use pleg_sim::{Mode, Sim, WorkloadConfig};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::Outcome;
use crate::args::SimArgs;
use crate::log::notice;

pub(crate) const CONTROL: &str = "ctl";

pub(crate) async fn run(args: SimArgs, signal: impl Future<Output = ExitCode>) -> Outcome {
    let socket = args.socket.context("--socket is required")?;
    let mut builder = Sim::builder().seed(args.seed).mode(args.mode);
    if let Some(version) = args.runtime_version {
        args.mode.check_version(&version)?;
        builder = builder.runtime_version(version);
    }
    let sim = builder.build();
    for knob in &args.chaos {
        sim.set_knob(knob)?;
    }
    let workload = WorkloadConfig {
        seed: args.seed,
        pods: args.pods.unwrap_or(WorkloadConfig::default().pods),
        full: args.pods.is_some(),
    };
    let serve = async {
        if !args.empty {
            sim.spawn_workload(workload).filled().await;
        }
        let serving = sim.serve_unix(&socket, std::future::pending())?;
        let _control = sim.serve_control(socket.with_added_extension(CONTROL))?;
        let (mode, path) = (args.mode, serving.path().display());
        let listens = format!("a simulated runtime ({mode}) listens on unix://{path}");
        notice(&listens);
        std::future::pending().await
    };
    // SIGINT and SIGTERM must end this process even if the creation of a pod hangs because of a configured fault.
    let ended = tokio::select! {
        code = signal => Ok(code),
        failed = serve => failed,
    };
    // `shutdown` also stops the workload and removes the sockets, without waiting for hanging calls.
    sim.shutdown().await;
    ended
}

pub(crate) async fn control(socket: &Path, command: &[String]) -> anyhow::Result<ExitCode> {
    let path = socket.with_added_extension(CONTROL);
    let stream = UnixStream::connect(&path).await;
    let silent = || format!("no simulated runtime listens on {}", path.display());
    let mut stream = stream.with_context(silent)?;
    let line = command.join(" ").replace('\n', " ");
    stream.write_all(format!("{line}\n").as_bytes()).await?;
    let mut response = BufReader::new(stream).lines();
    let mut out = anstream::stdout();
    while let Some(line) = response.next_line().await? {
        if line == "ok" {
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(reason) = line.strip_prefix("error: ") {
            anyhow::bail!("{reason}");
        }
        writeln!(out, "{}", crate::text::safe(&line))?;
    }
    anyhow::bail!("the simulated runtime on {} has stopped", path.display())
}

/// The embedded simulated runtime, with a workload of pods that are created, crash and are removed.
#[derive(derive_more::Constructor)]
pub(crate) struct Embedded {
    sim: Sim,
    pub(crate) endpoint: Endpoint,
    _dir: TempDir,
}

impl Embedded {
    pub(crate) fn start(mode: Mode) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("pleg-sim").tempdir()?;
        let socket = dir.path().join("cri.sock");
        let path = socket.to_str();
        let path = path.context("the path of the temporary directory is not UTF-8")?;
        let (sim, endpoint) = (Sim::builder().mode(mode).build(), path.parse()?);
        let _serving = sim.serve_unix(&socket, std::future::pending())?;
        let _workload = sim.spawn_workload(WorkloadConfig::default());
        Ok(Self::new(sim, endpoint, dir))
    }

    pub(crate) async fn stop(self) {
        self.sim.shutdown().await;
    }
}
