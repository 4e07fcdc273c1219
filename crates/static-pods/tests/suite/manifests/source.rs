//! Warnings of the source of manifests.

use std::fs;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pleg::runtime::clock::Clock;
use static_pods::manifest::ManifestSource;
use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

use super::WEB;

/// Log lines.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn take(&self) -> String {
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

#[tokio::test]
async fn ignored_fields_are_logged_once_for_a_file() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    // With one subscriber only, the first thread that reaches a log line decides for all whether it is enabled.
    let _second = Dispatch::new(NoSubscriber::new());
    let _default = tracing::subscriber::set_default(subscriber);
    let directory = tempfile::tempdir().unwrap();
    let write = |field: &str| {
        let contents = WEB.replacen("spec:", &format!("spec:\n  {field}: 1"), 1);
        fs::write(directory.path().join("web.yaml"), contents).unwrap();
    };
    let clock = Clock::start();
    let mut source = ManifestSource::new(directory.path(), "n1", Duration::from_secs(1), clock);
    // Each `wait` reads the directory once.
    write("hostname2");
    assert_eq!(source.wait().await.len(), 0, "refused by default");
    assert!(log.take().contains("ERROR"));
    let mut source = source.ignore_unknown_fields();
    assert_eq!(source.wait().await.len(), 1);
    let logged = log.take();
    assert!(
        logged.contains("WARN") && logged.contains("web.yaml: spec.hostname2: "),
        "{logged}"
    );
    source.wait().await;
    assert_eq!(log.take(), "");
    write("hostname3");
    source.wait().await;
    assert!(log.take().contains("spec.hostname3: "));
}
