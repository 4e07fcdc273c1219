//! Being told to end.

use std::path::PathBuf;

use anyhow::{Result, bail};
use tokio::signal::unix::{SignalKind, signal};

/// Fails when a signal tells us to end.
pub(super) async fn told_to_end() -> Result<()> {
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

/// From now on that directory goes with us if a signal ends us. The processes that we started end
/// by themselves, for nobody tells them anything any more.
pub(super) fn remove_when_told_to_end(directory: PathBuf) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || {
        if let Err(error) = runtime.block_on(told_to_end()) {
            let _ = std::fs::remove_dir_all(directory);
            tracing::error!("{error:#}");
            std::process::exit(1);
        }
    });
    Ok(())
}
