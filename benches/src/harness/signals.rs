//! Handles termination signals.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail, ensure};
use tokio::signal::unix::{SignalKind, signal};

/// Whether a termination signal was received.
static TERMINATED: AtomicBool = AtomicBool::new(false);

/// Waits for a termination signal, and then fails.
pub(super) async fn terminated() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    bail!("terminated by a signal")
}

/// Handles termination signals, so that they do not end this process at once. A wait for a process calls
/// [`check_terminated`] and fails; destructors then stop processes and remove files.
pub(super) fn listen() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || {
        if let Err(error) = runtime.block_on(terminated()) {
            tracing::debug!("{error:#}");
            TERMINATED.store(true, Ordering::Relaxed);
        }
    });
    Ok(())
}

/// Fails after a termination signal.
pub(super) fn check_terminated() -> Result<()> {
    ensure!(
        !TERMINATED.load(Ordering::Relaxed),
        "terminated by a signal"
    );
    Ok(())
}
