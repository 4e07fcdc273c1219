//! A running command, and a simulated runtime for it.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use futures::future::OptionFuture;
use pleg::core::Id;
use pleg::runtime::clock::Clock;
use pleg_tests::kubelet::{Kubelet, Life, Pod};
use pleg_tests::lives;
use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use crate::support::{TestDir, pleg};

/// The timeout of all waits. Longer than any wait takes if the test passes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(40);

/// A command that gets a signal exits within this time: it does not wait for a call, whose deadline is longer.
pub(crate) const PROMPT: Duration = Duration::from_secs(4);

/// A running command. It is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
    /// `None` after it was closed.
    out: Option<BufReader<ChildStdout>>,
    err: BufReader<ChildStderr>,
}

/// The exit status of a command, and its output that the test has not read.
pub(crate) struct End {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
    /// The time between the call of [`Running::end`] and the exit.
    pub(crate) took: Duration,
}

impl End {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The exit code, and standard error after the line that names the runtime.
    pub(crate) fn outcome(&self) -> (Option<i32>, &str) {
        let (first, rest) = self.err.split_once('\n').unwrap_or_default();
        let names_runtime = first.starts_with("watching ") || first.starts_with("reading ");
        (self.code(), if names_runtime { rest } else { &self.err })
    }
}

/// The path as a command line argument.
pub(crate) fn arg(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

impl Running {
    pub(crate) fn start(args: &[&str]) -> Self {
        Self::spawn(pleg(args))
    }

    pub(crate) fn spawn(command: std::process::Command) -> Self {
        let mut command = Command::from(command);
        let mut child = command.kill_on_drop(true).spawn().expect("it starts");
        Self {
            out: child.stdout.take().map(BufReader::new),
            err: BufReader::new(child.stderr.take().expect("piped")),
            child,
        }
    }

    /// The next line of standard output; `None` at the end.
    pub(crate) async fn line(&mut self) -> Option<String> {
        line(self.out.as_mut().expect("standard output is open")).await
    }

    /// The next event of `pleg watch -o json`.
    pub(crate) async fn event(&mut self) -> Value {
        loop {
            let line = self.line().await.expect("an event");
            let record: Value = serde_json::from_str(&line).expect("JSON");
            // Health is not what such a test is about.
            if record.get("source").is_some() {
                return record;
            }
        }
    }

    /// The next line of standard error; `None` at the end.
    pub(crate) async fn message(&mut self) -> Option<String> {
        line(&mut self.err).await
    }

    /// Closes the reading end of standard output.
    pub(crate) fn close_output(&mut self) {
        self.out = None;
    }

    /// Sends a signal, such as `INT`.
    pub(crate) async fn signal(&self, name: &str) {
        let id = self.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().await;
        assert!(sent.is_ok_and(|s| s.success()), "{name} is sent");
    }

    /// The id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id().expect("the command runs")
    }

    /// Waits for the exit, with a timeout.
    pub(crate) async fn end(self) -> End {
        self.end_within(TIMEOUT).await
    }

    /// Waits for the exit of a command that takes longer.
    pub(crate) async fn end_within(mut self, timeout: Duration) -> End {
        let clock = Clock::start();
        let began = clock.now();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let ending = async {
            let open = OptionFuture::from(self.out.as_mut().map(|o| o.read_to_end(&mut out)));
            let (_, _, status) =
                tokio::join!(open, self.err.read_to_end(&mut err), self.child.wait());
            status.expect("an exit status")
        };
        let ended = tokio::time::timeout(timeout, ending).await;
        let (out, err) = (text(&out), text(&err));
        let Ok(status) = ended else {
            panic!("the command does not exit; its output is {out:?} and {err:?}");
        };
        End {
            status,
            out,
            err,
            took: clock.now().since(began),
        }
    }
}

async fn line(from: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    let read = tokio::time::timeout(TIMEOUT, from.read_until(b'\n', &mut line)).await;
    read.expect("a line in time").expect("the line");
    let line = text(&line);
    (!line.is_empty()).then(|| line.trim_end_matches('\n').to_owned())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the output is UTF-8")
}

/// A running `pleg sim --empty`, and a test kubelet for it.
pub(crate) struct Sim {
    pub(crate) socket: PathBuf,
    pub(crate) kubelet: Kubelet,
    _running: Running,
    dir: TestDir,
}

impl Sim {
    pub(crate) async fn start() -> Self {
        let dir = TestDir::new();
        let socket = dir.path("cri.sock");
        let running = serve(&socket).await;
        Self {
            kubelet: kubelet(&socket, dir.root()),
            socket,
            _running: running,
            dir,
        }
    }

    /// Runs a command with this runtime's endpoint.
    pub(crate) fn run(&self, args: &[&str]) -> Running {
        let args = [args, &["-r", arg(&self.socket)]].concat();
        Running::start(&args)
    }

    pub(crate) fn dir(&self) -> &TestDir {
        &self.dir
    }
}

/// Runs `pleg sim --empty` on the socket, and waits until it listens.
pub(crate) async fn serve(socket: &Path) -> Running {
    let mut running = Running::start(&["sim", "--empty", "--socket", arg(socket)]);
    let message = running.message().await.expect("the socket");
    assert!(message.contains(arg(socket)), "{message}");
    running
}

/// Sends a command to a simulated runtime, such as `drop=5%`.
pub(crate) async fn control(socket: &Path, command: &[&str]) {
    let args = ["sim", "ctl", "--socket", arg(socket)];
    let end = Running::start(&[&args[..], command].concat()).end().await;
    assert_eq!(end.code(), Some(0), "{}", end.err);
}

/// Runs a pod with the container `app`.
pub(crate) async fn run_pod(kubelet: &Kubelet, name: &str) -> (Pod, Id) {
    let pod = kubelet.run_pod(name).await.expect("run");
    let id = kubelet.run(&pod, "app", 0, Life::UntilStopped).await;
    (pod, id.expect("started"))
}

/// Runs a pod whose container `job` exits with this code, and waits for the exit.
pub(crate) async fn run_job(kubelet: &Kubelet, name: &str, code: i32) -> Pod {
    let pod = kubelet.run_pod(name).await.expect("run");
    let life = Life::Exit { code, after_ms: 30 };
    let id = kubelet.run(&pod, "job", 0, life).await.expect("started");
    lives::ended(kubelet, &id).await.expect("exited");
    pod
}

pub(crate) async fn remove_pod(kubelet: &Kubelet, pod: &Pod) {
    kubelet.stop_pod(pod).await.expect("stopped");
    kubelet.remove_pod(pod).await.expect("removed");
}

pub(crate) fn kubelet(socket: &Path, logs: &Path) -> Kubelet {
    let endpoint = arg(socket).parse().expect("an endpoint");
    Kubelet::at(&endpoint, "app:1", "", logs).expect("a kubelet")
}
