//! Log lines of a test's thread.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::Dispatch;
use tracing::subscriber::{DefaultGuard, NoSubscriber};

#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Collects log lines until the returned guards are dropped.
    pub(crate) fn start() -> (Self, (DefaultGuard, Dispatch)) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        // With only one subscriber, the first thread at a log line would decide for all threads if the line is enabled.
        let second = Dispatch::new(NoSubscriber::new());
        (log, (tracing::subscriber::set_default(subscriber), second))
    }

    /// The lines since the last call.
    pub(crate) fn take(&self) -> String {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
