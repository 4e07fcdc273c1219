//! The tests of this crate, as one binary.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]

mod manifests;
mod running;
mod validation;

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;

use static_pods::manifest::{Manifest, ManifestError};
use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};

/// The only pod of a file without unknown fields.
fn parse(file: &str, contents: &str, node: &str) -> Result<Manifest, ManifestError> {
    let mut all = Manifest::parse_all(file.as_ref(), contents, node, true);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// Log lines of a test's thread, in a file.
struct Log(File);

impl Log {
    /// Collects log lines until the returned guards are dropped.
    fn start() -> (Self, (DefaultGuard, Dispatch)) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = Self(file.reopen().unwrap());
        let subscriber = tracing_subscriber::fmt().with_ansi(false);
        let subscriber = subscriber.with_writer(Arc::new(file.into_file()));
        // With one `Dispatch`, a line that a thread without a subscriber logs first would stay disabled in all threads.
        let second = Dispatch::new(NoSubscriber::new());
        let guard = tracing::subscriber::set_default(subscriber.finish());
        (log, (guard, second))
    }

    /// The lines since the last call.
    fn take(&mut self) -> String {
        let mut lines = String::new();
        self.0.read_to_string(&mut lines).unwrap();
        lines
    }
}
