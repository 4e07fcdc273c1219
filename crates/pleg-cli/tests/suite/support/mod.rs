//! Runs the command, and provides directories for sockets.

pub(crate) mod browser;
pub(crate) mod tmux;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pleg_cri::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use tempfile::TempDir;
use tokio_stream::wrappers::UnixListenerStream;

/// Copies a program by another process. A file that this process writes may be open in a child that another test has
/// just forked, and then it cannot be executed.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").args([from, to]).status();
    assert!(copied.is_ok_and(|s| s.success()), "{}", from.display());
}

/// The program under test: of the same build, or `PLEG_PROGRAM`, to measure another build of it.
pub(crate) fn program() -> PathBuf {
    let own = env!("CARGO_BIN_EXE_pleg");
    std::env::var_os("PLEG_PROGRAM").map_or_else(|| own.into(), PathBuf::from)
}

/// The command with these arguments. The environment does not configure a runtime.
pub(crate) fn pleg(args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command
        .args(args)
        .env_remove("CONTAINER_RUNTIME_ENDPOINT")
        .env_remove("PLEG_LOG")
        .env_remove("NOTIFY_SOCKET")
        .env_remove("WATCHDOG_USEC")
        .env_remove("WATCHDOG_PID")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// SHA-256 of `secret`, as in the token file of an agent.
pub(crate) const SECRET: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

/// A temporary directory of a test.
pub(crate) struct TestDir {
    dir: TempDir,
}

impl TestDir {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("pleg").tempdir();
        Self {
            dir: dir.expect("a directory"),
        }
    }

    pub(crate) fn root(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }
}

/// Serves the runtime until the tokio runtime ends. Its replies may be large.
pub(crate) fn serve(runtime: impl RuntimeService, socket: &Path) {
    let listener = tokio::net::UnixListener::bind(socket).expect("bound");
    let service = RuntimeServiceServer::new(runtime).max_encoding_message_size(64 << 20);
    let server = tonic::transport::Server::builder()
        .add_service(service)
        .serve_with_incoming(UnixListenerStream::new(listener));
    tokio::spawn(server);
}
