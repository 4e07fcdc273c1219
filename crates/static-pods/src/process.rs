//! The process of a kubelet: its tokio runtime, its log and the signals that end it.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Runs the kubelet on a tokio runtime of its own until the future completes.
///
/// # Errors
/// Fails with the error of the kubelet, or if the tokio runtime cannot be created.
pub fn block_on(kubelet: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    let result = runtime.block_on(kubelet);
    // Hung file operations cannot be cancelled, so the process waits for them for at most 1 s before it exits.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Writes the log to standard error, filtered by `PLEG_LOG`.
///
/// # Errors
/// If `PLEG_LOG` is not a valid log filter.
pub fn init_log() -> anyhow::Result<()> {
    let filter = match std::env::var("PLEG_LOG") {
        Ok(filter) => EnvFilter::try_new(filter).context("PLEG_LOG is not a filter")?,
        Err(_) => EnvFilter::new("info"),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    Ok(())
}

/// A future that completes on SIGINT or SIGTERM.
///
/// # Errors
/// If the handlers of the signals cannot be installed.
pub fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
