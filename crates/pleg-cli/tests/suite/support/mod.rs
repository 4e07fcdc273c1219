//! The command as a person would run it, and a place for sockets.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// The command with these arguments, and an environment that names no runtime.
pub(crate) fn pleg(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pleg"));
    command
        .args(args)
        .env_remove("CONTAINER_RUNTIME_ENDPOINT")
        .env_remove("PLEG_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A directory that goes with the test.
pub(crate) struct Place {
    dir: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("pleg").tempdir();
        Self {
            dir: dir.expect("a directory"),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }
}
