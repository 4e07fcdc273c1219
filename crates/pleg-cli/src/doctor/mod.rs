//! `pleg doctor`.

#[allow(dead_code, reason = "the rest of the command uses what is unused")]
mod finding;
pub(crate) mod host;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Asks one mount, and exits with 0 if it answers well.
pub(crate) fn ask_mount(path: &Path) -> ExitCode {
    ExitCode::from(u8::from(!host::mount_answers(path)))
}

/// Shows the host's evidence and findings as JSON.
pub(crate) async fn show_host(
    root: PathBuf,
    socket: Option<PathBuf>,
    duration: Duration,
) -> anyhow::Result<()> {
    let mut target = host::HostTarget::new(socket);
    target.root = root;
    let host = Box::pin(host::collect(&target, duration)).await;
    let mut findings = host::check(&host, &host::Calls::default());
    finding::sort(&mut findings);
    let shown = serde_json::json!({ "host": host, "findings": findings });
    anstream::println!("{shown:#}");
    Ok(())
}
