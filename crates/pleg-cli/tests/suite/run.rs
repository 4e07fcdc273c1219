//! A running command, a simulated runtime for it, and directories for sockets.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use futures::future::OptionFuture;
use pleg::core::Id;
use pleg::runtime::clock::Clock;
use pleg_tests::kubelet::{Kubelet, Life, Pod};
use pleg_tests::lives;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{self, Child, ChildStderr, ChildStdout};

use super::agent::Agent;

/// The timeout of all waits. Longer than any wait takes if the test passes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(40);

/// The time within which a command exits after a signal: it does not wait for its calls, whose deadlines are longer.
pub(crate) const PROMPT: Duration = Duration::from_secs(4);

/// A running command. It is killed when this value is dropped.
pub(crate) struct Running {
    child: Child,
    pub(crate) out: Option<BufReader<ChildStdout>>,
    err: BufReader<ChildStderr>,
}

/// The exit code of a command, and its output that the test has not read.
pub(crate) struct End {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    /// The time between the call of [`Running::end`] and the exit.
    pub(crate) took: Duration,
}

impl End {
    /// The exit code, and standard error after the line that names the runtime.
    pub(crate) fn outcome(&self) -> (Option<i32>, &str) {
        let (first, rest) = self.err.split_once('\n').unwrap_or_default();
        let names_runtime = first.starts_with("watching ") || first.starts_with("reading ");
        (self.code, if names_runtime { rest } else { &self.err })
    }
}

pub(crate) fn arg(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

pub(crate) fn parse(line: &str) -> Value {
    serde_json::from_str(line).expect("JSON")
}

/// Requires that the text has each of these parts, which ` | ` separates.
#[track_caller]
pub(crate) fn assert_has(text: &str, parts: &str) {
    for part in parts.split(" | ") {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[track_caller]
pub(crate) fn assert_time(time: &Value) {
    let time = time.as_str().expect("a time");
    time.parse::<jiff::Timestamp>().expect("RFC 3339");
}

impl Running {
    pub(crate) fn start(args: &str) -> Self {
        Self::spawn(pleg(args))
    }

    pub(crate) fn spawn(command: Command) -> Self {
        let mut command = process::Command::from(command);
        let mut child = command.kill_on_drop(true).spawn().expect("it starts");
        Self {
            out: child.stdout.take().map(BufReader::new),
            err: BufReader::new(child.stderr.take().expect("piped")),
            child,
        }
    }

    pub(crate) async fn line(&mut self) -> String {
        line(self.out.as_mut().expect("standard output is open")).await
    }

    pub(crate) async fn record(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let record = parse(&self.line().await);
            if is_it(&record) {
                return record;
            }
        }
    }

    pub(crate) async fn event(&mut self) -> Value {
        self.record(|record| record["source"].is_string()).await
    }

    pub(crate) async fn message(&mut self) -> String {
        line(&mut self.err).await
    }

    pub(crate) async fn message_with(&mut self, text: &str) -> String {
        loop {
            let message = self.message().await;
            if message.contains(text) {
                return message;
            }
        }
    }

    pub(crate) async fn signal(&self, name: &str) {
        signal(&self.id().to_string(), name).await;
    }

    /// Sends a signal, after which the command must exit soon and with this code.
    pub(crate) async fn stop(self, signal: &str, code: i32) -> End {
        self.signal(signal).await;
        let end = self.end().await;
        assert_eq!(end.code, Some(code), "{}", end.err);
        assert!(end.took < PROMPT, "{:?}", end.took);
        end
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id().expect("the command runs")
    }

    pub(crate) async fn end(self) -> End {
        self.end_within(TIMEOUT).await
    }

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
        let (out, err) = (text(out), text(err));
        let Ok(status) = ended else {
            panic!("the command does not exit; its output is {out:?} and {err:?}");
        };
        let took = clock.now().since(began);
        End {
            code: status.code(),
            out,
            err,
            took,
        }
    }
}

pub(crate) async fn signal(pid: &str, name: &str) {
    let mut kill = process::Command::new("kill");
    let sent = kill.args(["-s", name, pid]).status().await;
    assert!(sent.is_ok_and(|s| s.success()), "{name} is sent");
}

async fn line(from: &mut (impl AsyncBufRead + Unpin)) -> String {
    let mut line = Vec::new();
    let read = tokio::time::timeout(TIMEOUT, from.read_until(b'\n', &mut line)).await;
    read.expect("a line in time").expect("the line");
    let line = text(line);
    assert!(!line.is_empty(), "the output has ended");
    line.trim_end_matches('\n').to_owned()
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("the output is UTF-8")
}

/// A running `pleg sim`, and a test kubelet for it.
pub(crate) struct Sim {
    pub(crate) socket: PathBuf,
    pub(crate) kubelet: Kubelet,
    pub(crate) running: Option<Running>,
    pub(crate) dir: TestDir,
}

impl Sim {
    pub(crate) async fn start() -> Self {
        Self::with("--empty").await
    }

    pub(crate) async fn with(args: &str) -> Self {
        let mut sim = Self::down();
        sim.serve(args).await;
        sim
    }

    pub(crate) fn down() -> Self {
        let dir = TestDir::new();
        let socket = dir.path("cri.sock");
        let endpoint = arg(&socket).parse().expect("an endpoint");
        Self {
            socket,
            kubelet: Kubelet::at(&endpoint, "app:1", "", dir.root()).expect("a kubelet"),
            running: None,
            dir,
        }
    }

    pub(crate) async fn serve(&mut self, args: &str) {
        let socket = arg(&self.socket);
        let mut running = Running::start(&format!("sim --socket {socket} {args}"));
        running.message_with(socket).await;
        self.running = Some(running);
    }

    pub(crate) async fn stop(&mut self) {
        self.running.take().expect("it runs").stop("TERM", 0).await;
    }

    pub(crate) fn run(&self, args: &str) -> Running {
        Running::start(&format!("{args} -r {}", arg(&self.socket)))
    }

    pub(crate) async fn agent(&self, args: &str) -> Agent {
        Agent::start(&format!("-r {} {args}", arg(&self.socket))).await
    }

    pub(crate) async fn confirmed_agent(&self, args: &str) -> Agent {
        let agent = self.agent(args).await;
        agent.until_confirmed().await;
        agent
    }

    pub(crate) async fn control(&self, command: &str) {
        let end = self.ctl(command).end().await;
        assert_eq!(end.code, Some(0), "{}", end.err);
    }

    pub(crate) fn ctl(&self, command: &str) -> Running {
        let socket = arg(&self.socket);
        Running::start(&format!("sim ctl --socket {socket} {command}"))
    }

    pub(crate) async fn run_pod(&self, name: &str) -> (Pod, Id) {
        self.run_container(name, "app", Life::UntilStopped).await
    }

    pub(crate) async fn run_container(&self, pod: &str, name: &str, life: Life) -> (Pod, Id) {
        let pod = self.kubelet.run_pod(pod).await.expect("run");
        let id = self.kubelet.run(&pod, name, 0, life).await;
        (pod, id.expect("started"))
    }

    /// Runs a pod whose container `job` exits with this code, and waits for the exit.
    pub(crate) async fn run_job(&self, name: &str, code: i32) -> Pod {
        let life = Life::Exit { code, after_ms: 30 };
        let (pod, id) = self.run_container(name, "job", life).await;
        lives::ended(&self.kubelet, &id).await.expect("exited");
        pod
    }

    pub(crate) async fn remove_pod(&self, pod: &Pod) {
        self.kubelet.stop_pod(pod).await.expect("stopped");
        self.kubelet.remove_pod(pod).await.expect("removed");
    }
}

/// The path of the program under test: the one of this build, or `PLEG_PROGRAM`, to measure another build.
pub(crate) fn program() -> PathBuf {
    let own = env!("CARGO_BIN_EXE_pleg");
    std::env::var_os("PLEG_PROGRAM").map_or_else(|| own.into(), PathBuf::from)
}

pub(crate) fn pleg(args: &str) -> Command {
    let mut command = piped(program());
    command.args(args.split_whitespace());
    command
}

/// A program whose output the test reads. `variables` of the test's own environment are removed: they would change it.
pub(crate) fn piped(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    let variables = "CONTAINER_RUNTIME_ENDPOINT PLEG_LOG NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID";
    for variable in variables.split(' ') {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// SHA-256 of `secret`, as in the token file of an agent.
pub(crate) const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// A temporary directory of a test. Its path has no spaces.
pub(crate) struct TestDir(TempDir);

impl TestDir {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("pleg").tempdir();
        Self(dir.expect("a directory"))
    }

    pub(crate) fn root(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).expect("written");
        self.path(name)
    }
}
