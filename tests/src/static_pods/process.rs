//! Starts, ends and kills the process `static_pods`, and collects what all its runs write to standard output.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pleg::core::Mode;
use pleg_cri::Endpoint;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::daemon::Daemon;
use crate::environment::built;
use crate::wait::until;

/// The name of the node, which is the suffix of every pod's name.
pub const NODE: &str = "node";

/// The time limit from the start of the process until the mini-kubelet knows the existing pods.
const SYNCED_WITHIN: Duration = Duration::from_secs(90);
/// The time limit for the process to end after SIGTERM.
const ENDED_WITHIN: Duration = Duration::from_secs(10);

/// What a line of the standard output of `static_pods` reports.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "event", rename_all = "camelCase")]
pub enum Event {
    /// The mini-kubelet serves HTTP.
    Listening {
        /// The address on which the mini-kubelet serves HTTP.
        address: String,
    },
    /// The mini-kubelet knows the pods that existed when it started.
    Synced,
    /// A container has exited.
    Ended {
        /// The container's id.
        id: String,
        /// The container's exit code, if it is known.
        #[serde(rename = "exitCode")]
        exit_code: Option<i32>,
    },
    /// Anything else.
    #[serde(other)]
    Other,
}

/// A line of standard output.
#[derive(Clone, Debug)]
pub struct Line {
    /// The number of the run of the mini-kubelet that wrote this line; the first run is 1.
    pub run: u32,
    /// The event that the line reports.
    pub event: Event,
}

/// The mini-kubelet. Dropping this value kills its process, not its pods.
#[derive(Debug)]
pub struct StaticPods {
    /// The directory of the mini-kubelet's manifests.
    pub manifests: PathBuf,
    endpoint: Endpoint,
    cgroup: String,
    dir: PathBuf,
    mode: Mode,
    lines: Arc<Mutex<Vec<Line>>>,
    runs: u32,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    reader: JoinHandle<()>,
}

impl StaticPods {
    /// Creates the directories of the mini-kubelet. [`start`](Self::start) starts it.
    pub fn new(daemon: &Daemon, mode: Mode) -> anyhow::Result<Self> {
        let dir = daemon.dir.join("static-pods");
        std::fs::create_dir_all(dir.join("manifests"))?;
        std::fs::create_dir_all(dir.join("root"))?;
        Ok(Self {
            manifests: dir.join("manifests"),
            endpoint: daemon.endpoint.clone(),
            cgroup: daemon.cgroup.clone(),
            dir,
            mode,
            lines: Arc::default(),
            runs: 0,
            running: None,
        })
    }

    /// Starts the mini-kubelet, and waits until it knows the existing pods.
    pub async fn start(&mut self) -> anyhow::Result<()> {
        self.runs += 1;
        let log = OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.log())?;
        let mut child = self.command()?.stderr(log).spawn()?;
        let stdout = child.stdout.take().context("it has no standard output")?;
        let (lines, run) = (self.lines.clone(), self.runs);
        let reader = tokio::spawn(read(stdout, lines, run));
        self.running = Some(Running { child, reader });
        let synced = until(SYNCED_WITHIN, "static_pods is synced", || async {
            let ended = self.running.as_ref().is_none_or(|r| r.reader.is_finished());
            let synced = |l: &Line| l.run == run && matches!(l.event, Event::Synced);
            match self.lines().iter().any(synced) {
                false if ended => Some(false),
                true => Some(true),
                false => None,
            }
        })
        .await;
        match synced {
            Ok(true) => Ok(()),
            Ok(false) => bail!("static_pods has ended: {}", self.end_of_log()),
            Err(error) => Err(error.context(self.end_of_log())),
        }
    }

    fn command(&self) -> anyhow::Result<Command> {
        let mode = match self.mode {
            Mode::Polling => "polling",
            _ => "auto",
        };
        let mut command = Command::new(built("static_pods")?);
        command
            .args(["--endpoint", &self.endpoint.to_string(), "--manifests"])
            .arg(&self.manifests)
            .args(["--listen", "127.0.0.1:0", "--mode", mode, "--root"])
            .arg(self.dir.join("root"))
            .args(["--cgroup-parent", &self.cgroup, "--node", NODE])
            .args(["--back-off-initial", "200ms", "--back-off-max", "1s"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        Ok(command)
    }

    /// Kills the mini-kubelet with SIGKILL.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        let mut running = self.running.take().context("static_pods is not running")?;
        running.child.kill().await?;
        Ok(running.reader.await?)
    }

    /// Ends the mini-kubelet with SIGTERM.
    pub async fn terminate(&mut self) -> anyhow::Result<()> {
        let pid = self.pid()?;
        let mut running = self.running.take().context("static_pods is not running")?;
        kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGTERM)?;
        let ended = tokio::time::timeout(ENDED_WITHIN, running.child.wait()).await;
        let status = ended.with_context(|| format!("SIGTERM: {}", self.end_of_log()))??;
        if !status.success() {
            bail!("it ended with {status}: {}", self.end_of_log());
        }
        Ok(running.reader.await?)
    }

    /// The id of the mini-kubelet's process.
    pub fn pid(&self) -> anyhow::Result<u32> {
        let running = self.running.as_ref().and_then(|r| r.child.id());
        running.with_context(|| format!("static_pods is not running: {}", self.end_of_log()))
    }

    /// The lines of all runs so far.
    pub fn lines(&self) -> Vec<Line> {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The body of the response to GET `path`, even if the HTTP status is an error.
    pub async fn get(&self, path: &str) -> anyhow::Result<String> {
        let address = self.lines().into_iter().rev().find_map(|l| match l.event {
            Event::Listening { address } if l.run == self.runs => Some(address),
            _ => None,
        });
        let mut stream = TcpStream::connect(address.context("it does not listen")?).await?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {NODE}\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (_, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
        Ok(body.to_owned())
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Copies the log of the mini-kubelet.
    pub fn copy_log(&self, to: &Path) -> std::io::Result<u64> {
        std::fs::copy(self.log(), to)
    }

    /// The last lines of the mini-kubelet's log.
    pub fn end_of_log(&self) -> String {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let last = lines.get(lines.len().saturating_sub(30)..);
        format!(
            "the end of its log:\n{}",
            last.unwrap_or_default().join("\n")
        )
    }
}

async fn read(stdout: ChildStdout, lines: Arc<Mutex<Vec<Line>>>, run: u32) {
    let mut stdout = BufReader::new(stdout);
    let mut text = String::new();
    loop {
        text.clear();
        // If the process was killed, its last line may be incomplete.
        match stdout.read_line(&mut text).await {
            Ok(_) if text.ends_with('\n') => {}
            _ => return,
        }
        let event = match serde_json::from_str(&text) {
            Ok(event) => event,
            Err(error) => {
                println!("static_pods wrote {text:?}: {error}");
                Event::Other
            }
        };
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push(Line { run, event });
    }
}
