//! Being told to end.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, bail, ensure};
use tokio::signal::unix::{SignalKind, signal};

/// Whether a signal has told us to end.
static TERMINATED: AtomicBool = AtomicBool::new(false);

/// Fails when a signal tells us to end.
pub(super) async fn terminated() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    bail!("told to end")
}

/// From now on signals do not end us at once: whoever waits for a process asks [`check_terminated`], and
/// what is dropped on the way out takes processes and files along.
pub(super) fn listen() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || {
        if let Err(why) = runtime.block_on(terminated()) {
            tracing::debug!("{why:#}");
            TERMINATED.store(true, Ordering::Relaxed);
        }
    });
    Ok(())
}

/// Fails once a signal has told us to end.
pub(super) fn check_terminated() -> Result<()> {
    ensure!(!TERMINATED.load(Ordering::Relaxed), "told to end");
    Ok(())
}
