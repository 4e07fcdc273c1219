//! A command that runs while the test does something, and a runtime for it.

use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use pleg::runtime::clock::Clock;
use pleg_tests::kubelet::Kubelet;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use crate::support::{Place, pleg};

/// How long anything may take that happens at once when all is well.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A running command; killed if the test forgets it.
pub(crate) struct Running {
    child: Child,
    /// `None` once it is closed.
    out: Option<BufReader<ChildStdout>>,
    err: BufReader<ChildStderr>,
}

/// How it ended, and what it had said that nobody had read.
pub(crate) struct End {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
    /// From when its end was awaited.
    pub(crate) took: Duration,
}

impl End {
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }
}

/// The word for a path on a command line.
pub(crate) fn word(path: &Path) -> &str {
    path.to_str().expect("a path that is text")
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

    /// The next line of its output; `None` at the end.
    pub(crate) async fn line(&mut self) -> Option<String> {
        line(self.out.as_mut().expect("it is open")).await
    }

    /// The next line that it says on standard error.
    pub(crate) async fn said(&mut self) -> Option<String> {
        line(&mut self.err).await
    }

    /// Nobody reads its output any more.
    pub(crate) fn close_output(&mut self) {
        self.out = None;
    }

    /// Sends it a signal, by its name.
    pub(crate) async fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().await;
        assert!(sent.is_ok_and(|s| s.success()), "{name} is sent");
    }

    /// Its end, which must come soon.
    pub(crate) async fn end(mut self) -> End {
        let clock = Clock::start();
        let asked = clock.now();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let ending = async {
            let reading = async {
                if let Some(open) = &mut self.out {
                    open.read_to_end(&mut out).await.expect("it is read");
                }
            };
            let hearing = self.err.read_to_end(&mut err);
            let ((), _, status) = tokio::join!(reading, hearing, self.child.wait());
            status.expect("it ends")
        };
        let ended = tokio::time::timeout(SOON, ending).await;
        let (out, err) = (text(&out), text(&err));
        let Ok(status) = ended else {
            panic!("it does not end; it said {out:?} and {err:?}");
        };
        End {
            status,
            out,
            err,
            took: clock.now().since(asked),
        }
    }
}

async fn line(from: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    let read = tokio::time::timeout(SOON, from.read_until(b'\n', &mut line)).await;
    read.expect("a line comes soon").expect("it is read");
    let line = text(&line);
    (!line.is_empty()).then(|| line.trim_end_matches('\n').to_owned())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("what it says is text")
}

/// `pleg sim --empty` at a socket of its own.
pub(crate) struct Sim {
    pub(crate) socket: PathBuf,
    pub(crate) kubelet: Kubelet,
    _running: Running,
    place: Place,
}

impl Sim {
    pub(crate) async fn up() -> Self {
        let place = Place::new();
        let socket = place.path("cri.sock");
        let running = serve(&socket).await;
        Self {
            kubelet: kubelet(&socket, place.dir()),
            socket,
            _running: running,
            place,
        }
    }

    /// A command that asks this runtime.
    pub(crate) fn ask(&self, args: &[&str]) -> Running {
        let args = [args, &["-r", word(&self.socket)]].concat();
        Running::start(&args)
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }
}

/// Runs `pleg sim --empty` there, and waits until it listens.
pub(crate) async fn serve(socket: &Path) -> Running {
    let mut running = Running::start(&["sim", "--empty", "--socket", word(socket)]);
    let said = running.said().await.expect("it says where it listens");
    assert!(said.contains(word(socket)), "{said}");
    running
}

pub(crate) fn kubelet(socket: &Path, logs: &Path) -> Kubelet {
    let endpoint = word(socket).parse().expect("an endpoint");
    Kubelet::at(&endpoint, "app:1", "", logs).expect("a kubelet")
}
