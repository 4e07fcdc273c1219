//! Log lines of a test's thread.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;

use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};

/// Reads the file of log lines.
pub(crate) struct Log(File);

impl Log {
    /// Collects log lines until the returned guards are dropped.
    pub(crate) fn start() -> (Self, (DefaultGuard, Dispatch)) {
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
    pub(crate) fn take(&mut self) -> String {
        let mut lines = String::new();
        self.0.read_to_string(&mut lines).unwrap();
        lines
    }
}
