//! `pleg sim`, and the simulated runtime that `--sim` embeds: always behind a real socket, and
//! reached by the same client as any other runtime.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use pleg_cri::Endpoint;
use pleg_sim::{Mode, Serving, Sim, WorkloadConfig, WorkloadHandle};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::args::{CtlArgs, SimArgs, SimCommand};
use crate::connect::say;
use crate::signals::Signal;

pub(crate) async fn run(
    args: SimArgs,
    signal: impl Future<Output = Signal>,
) -> anyhow::Result<ExitCode> {
    match args.command {
        Some(SimCommand::Ctl(ctl)) => tokio::select! {
            outcome = command(ctl) => outcome.map(|()| ExitCode::SUCCESS),
            signal = signal => Ok(signal.exit_code()),
        },
        None => Ok(serve(args, signal).await?.exit_code_of_service()),
    }
}

async fn serve(args: SimArgs, signal: impl Future<Output = Signal>) -> anyhow::Result<Signal> {
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
    let workload = WorkloadConfig::default().seed(args.seed);
    let workload = args
        .pods
        .map_or(workload.clone(), |pods| workload.pods(pods).full());
    let workload = (!args.empty).then(|| sim.spawn_workload(workload));
    let mut signal = std::pin::pin!(signal);
    if let Some(workload) = &workload {
        // A fault may make the creation of a pod hang.
        tokio::select! {
            () = workload.filled() => {}
            signal = &mut signal => {
                sim.shutdown().await;
                return Ok(signal);
            }
        }
    }
    let serving = sim.serve_unix(&socket, std::future::pending())?;
    let _control = sim.serve_control(control_of(&socket))?;
    say(&format!(
        "a simulated runtime ({}) listens on unix://{}",
        args.mode,
        serving.path().display()
    ));
    let signal = signal.await;
    // This also stops the workload and removes the sockets, without waiting for hanging calls.
    sim.shutdown().await;
    Ok(signal)
}

/// Where a simulated runtime takes its commands.
fn control_of(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".ctl");
    path.into()
}

/// Gives one command, and shows the answer.
async fn command(args: CtlArgs) -> anyhow::Result<()> {
    let path = control_of(&args.socket);
    let mut stream = UnixStream::connect(&path)
        .await
        .with_context(|| format!("no simulated runtime takes commands on {}", path.display()))?;
    let line = args.command.join(" ").replace('\n', " ");
    stream.write_all(format!("{line}\n").as_bytes()).await?;
    let mut answer = BufReader::new(stream).lines();
    let mut out = anstream::stdout();
    while let Some(line) = answer.next_line().await? {
        if line == "ok" {
            return Ok(());
        }
        if let Some(why) = line.strip_prefix("error: ") {
            anyhow::bail!("{why}");
        }
        writeln!(out, "{}", crate::text::safe(&line))?;
    }
    anyhow::bail!("the simulated runtime on {} has gone", path.display())
}

/// A simulated runtime of our own, with pods that come, crash and go.
pub(crate) struct Embedded {
    sim: Sim,
    workload: WorkloadHandle,
    serving: Serving,
    _dir: TempDir,
}

impl Embedded {
    pub(crate) async fn start(mode: Mode) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("pleg-sim").tempdir()?;
        let sim = Sim::builder().mode(mode).build();
        let serving = sim.serve_unix(dir.path().join("cri.sock"), std::future::pending())?;
        let workload = sim.spawn_workload(WorkloadConfig::default());
        Ok(Self {
            sim,
            workload,
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
        self.workload.stop().await;
        self.serving.stop().await;
        self.sim.shutdown().await;
    }
}
