//! The log of `ManifestSource`.

use std::fs;
use std::time::Duration;

use pleg::runtime::clock::Clock;
use static_pods::manifest::ManifestSource;

use super::WEB;
use crate::log::Log;

#[tokio::test]
async fn ignored_fields_are_logged_once_and_when_they_change() {
    let (mut log, _guards) = Log::start();
    let directory = tempfile::tempdir().unwrap();
    let write = |field: &str| {
        let contents = WEB.replacen("spec:", &format!("spec:\n  {field}: 1"), 1);
        fs::write(directory.path().join("web.yaml"), contents).unwrap();
    };
    let clock = Clock::start();
    let mut source = ManifestSource::new(directory.path(), "n1", Duration::from_secs(1), clock);
    // Each `wait` reads the directory once.
    write("hostname2");
    source.strict_fields = true;
    assert_eq!(source.wait().await.len(), 0);
    assert!(log.take().contains("ERROR"));
    source.strict_fields = false;
    assert_eq!(source.wait().await.len(), 1);
    let logged = log.take();
    let is_warning = logged.contains("WARN") && logged.contains("web.yaml: spec.hostname2: ");
    assert!(is_warning, "{logged}");
    source.wait().await;
    assert_eq!(log.take(), "");
    write("hostname3");
    source.wait().await;
    assert!(log.take().contains("spec.hostname3: "));
}
