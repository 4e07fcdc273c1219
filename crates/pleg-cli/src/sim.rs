//! `pleg sim`, and the embedded simulated runtime of `--sim`. It serves a unix socket and is used
//! with the same client as any other runtime.

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
use crate::log::notice;
use crate::signals::Signal;

pub(crate) async fn run(
    args: SimArgs,
    signal: impl Future<Output = Signal>,
) -> anyhow::Result<ExitCode> {
    match args.command {
        Some(SimCommand::Ctl(ctl)) => tokio::select! {
            result = send_command(ctl) => result.map(|()| ExitCode::SUCCESS),
            signal = signal => Ok(signal.exit_code()),
        },
        None => Ok(serve(args, signal).await?.service_exit_code()),
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
        // A configured fault may make the creation of a pod hang.
        tokio::select! {
            () = workload.filled() => {}
            signal = &mut signal => {
                sim.shutdown().await;
                return Ok(signal);
            }
        }
    }
    let serving = sim.serve_unix(&socket, std::future::pending())?;
    let _control = sim.serve_control(control_path(&socket))?;
    notice(&format!(
        "a simulated runtime ({}) listens on unix://{}",
        args.mode,
        serving.path().display()
    ));
    let signal = signal.await;
    // This also stops the workload and removes the sockets, without waiting for hanging calls.
    sim.shutdown().await;
    Ok(signal)
}

/// The control socket of a simulated runtime.
pub(crate) fn control_path(socket: &Path) -> PathBuf {
    let mut path = socket.as_os_str().to_owned();
    path.push(".ctl");
    path.into()
}

/// Sends a command and prints the response.
async fn send_command(args: CtlArgs) -> anyhow::Result<()> {
    let path = control_path(&args.socket);
    let mut stream = UnixStream::connect(&path)
        .await
        .with_context(|| format!("no simulated runtime listens on {}", path.display()))?;
    let line = args.command.join(" ").replace('\n', " ");
    stream.write_all(format!("{line}\n").as_bytes()).await?;
    let mut response = BufReader::new(stream).lines();
    let mut out = anstream::stdout();
    while let Some(line) = response.next_line().await? {
        if line == "ok" {
            return Ok(());
        }
        if let Some(reason) = line.strip_prefix("error: ") {
            anyhow::bail!("{reason}");
        }
        writeln!(out, "{}", crate::text::safe(&line))?;
    }
    anyhow::bail!("the simulated runtime on {} has stopped", path.display())
}

/// The embedded simulated runtime, with a workload of pods that are created, crash and are removed.
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
            .context("the path of the temporary directory is not UTF-8")?;
        Ok(path.parse()?)
    }

    pub(crate) async fn stop(self) {
        self.workload.stop().await;
        self.serving.stop().await;
        self.sim.shutdown().await;
    }
}
