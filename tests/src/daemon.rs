//! A containerd for one test, which `scripts/containerd.sh` starts.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};
use pleg_cri::{CriConfig, CriRuntime, Endpoint};

/// The tested containerd versions. 1.7 sends each event to only one of its subscribers. 2 sends every event to all
/// subscribers, and waits for slow ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// containerd 1.7
    V1_7,
    /// containerd 2
    V2,
}

impl Version {
    const fn as_str(self) -> &'static str {
        match self {
            Self::V1_7 => "1.7",
            Self::V2 => "2",
        }
    }
}

/// A running containerd that belongs to one test. Dropping this value removes its pods, processes and files.
#[derive(Debug)]
pub struct Daemon {
    /// The daemon's version.
    pub version: Version,
    /// The daemon's socket.
    pub endpoint: Endpoint,
    /// The image that the tests use for pods and containers on this daemon.
    pub image: String,
    /// The parent cgroup of the daemon's pods.
    pub cgroup: String,
    /// The daemon's directory, which also contains the logs of containers.
    pub dir: PathBuf,
    _parent: tempfile::TempDir,
}

impl Daemon {
    /// Starts a daemon. If this machine cannot run it, prints why and returns `None`; with `CI=true` it
    /// returns an error.
    pub fn up(version: Version) -> anyhow::Result<Option<Self>> {
        let can = script()
            .args(["can", "--version", version.as_str()])
            .output()?;
        if !can.status.success() {
            let why = text(&can);
            if std::env::var_os("CI").is_some_and(|ci| ci == "true") {
                bail!("in CI no test may be skipped: {why}");
            }
            println!("skipped: {why}");
            return Ok(None);
        }
        let parent = tempfile::Builder::new().prefix("pleg").tempdir_in("/tmp")?;
        let dir = parent.path().join("c");
        let up = run(script()
            .args(["up", "--version", version.as_str()])
            .arg(&dir))?;
        let facts: HashMap<&str, &str> = up.lines().filter_map(|l| l.split_once('=')).collect();
        let fact = |name: &str| {
            facts
                .get(name)
                .map(|v| (*v).to_owned())
                .with_context(|| format!("no {name} in {up}"))
        };
        Ok(Some(Self {
            version,
            endpoint: fact("ENDPOINT")?.parse()?,
            image: fact("IMAGE")?,
            cgroup: fact("CGROUP")?,
            dir,
            _parent: parent,
        }))
    }

    /// A client of the daemon.
    pub fn runtime(&self) -> anyhow::Result<CriRuntime> {
        // The tests record all statuses of each event, so the client must not drop any.
        let config = CriConfig::new(self.endpoint.clone()).with_whole_events();
        Ok(CriRuntime::new(config)?)
    }

    /// Sends SIGKILL to the daemon. Its containers keep running.
    pub fn kill(&self) -> anyhow::Result<()> {
        run(script().arg("kill").arg(&self.dir)).map(drop)
    }

    /// Starts a killed daemon again.
    pub fn start(&self) -> anyhow::Result<()> {
        run(script().arg("start").arg(&self.dir)).map(drop)
    }

    /// Sends SIGSTOP or SIGCONT to the daemon.
    pub fn signal(&self, signal: &str) -> anyhow::Result<()> {
        run(script().args(["stop-signal", signal]).arg(&self.dir)).map(drop)
    }

    /// Imports an image from an archive.
    pub fn import(&self, archive: &Path, image: &str) -> anyhow::Result<()> {
        let mut command = script();
        command.arg("import").arg(archive).arg(image).arg(&self.dir);
        run(&mut command).map(drop)
    }

    /// The ids of the daemon's tasks, from containerd's task API instead of the CRI service.
    pub fn tasks(&self) -> anyhow::Result<BTreeSet<String>> {
        let tasks = run(script().arg("tasks").arg(&self.dir))?;
        Ok(tasks.lines().map(str::to_owned).collect())
    }

    /// Removes the daemon's processes and files.
    pub fn down(&self) -> anyhow::Result<()> {
        run(script().arg("down").arg(&self.dir)).map(drop)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.dir.exists()
            && let Err(error) = self.down()
        {
            println!("left behind: {error:#}");
        }
    }
}

fn script() -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Command::new(root.join("scripts/containerd.sh"));
    command.stdin(Stdio::null());
    command
}

fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", text(&output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn text(output: &Output) -> String {
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    format!("{out}{err}").trim().to_owned()
}
