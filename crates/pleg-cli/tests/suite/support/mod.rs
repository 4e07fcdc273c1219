//! Runs the command, and provides directories for sockets.

pub(crate) mod browser;
pub(crate) mod tmux;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

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
