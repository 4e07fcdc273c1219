//! Tests of the whole system on real daemons: containerd 1.7 and containerd 2.
//!
//! Every test starts its own daemon. If this machine cannot run one (no root, no Linux, or missing packages), a test
//! prints a message and passes; with `CI=true` it fails.

#![allow(
    clippy::print_stdout,
    reason = "a test prints what it measured and why it skips"
)]
#![allow(
    clippy::large_futures,
    reason = "a CRI request is large; tests do not mind"
)]

/// Defines one test for each version of containerd: `name: function(arguments)`, with attributes before the name. Each
/// test has a daemon of its own.
macro_rules! on_both_versions {
    ($($(#[$attribute:meta])* $name:ident: $run:ident($($argument:expr)?);)*) => { $(
        mod $name {
            #[allow(unused_imports, reason = "for the arguments")]
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            $(#[$attribute])*
            async fn on_1_7() -> anyhow::Result<()> {
                let run = async |daemon: &_| super::$run(daemon $(, $argument)?).await;
                crate::with_daemon(pleg_tests::daemon::Version::V1_7, run).await
            }

            #[tokio::test(flavor = "multi_thread")]
            $(#[$attribute])*
            async fn on_2() -> anyhow::Result<()> {
                let run = async |daemon: &_| super::$run(daemon $(, $argument)?).await;
                crate::with_daemon(pleg_tests::daemon::Version::V2, run).await
            }
        }
    )* };
}

mod agent;
mod churn;
mod doctor;
mod image;
mod kep3386;
mod manifests;
mod outages;
mod second_subscriber;
mod sequences;
mod static_pods;

use std::time::Duration;

use pleg::core::{Mode, Settings};
use pleg_tests::daemon::{Daemon, Version};
use pleg_tests::generator::Generator;

/// The time limit of each wait for something that should happen at once.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Runs a test on a new daemon. If this machine cannot run one, prints a message instead.
pub(crate) async fn with_daemon(
    version: Version,
    test: impl AsyncFnOnce(&Daemon) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let Some(daemon) = Daemon::up(version)? else {
        return Ok(());
    };
    test(&daemon).await?;
    daemon.down()
}

/// Runs a test that needs no particular version: on `version`, or on both if `PLEG_BOTH_VERSIONS` is set.
pub(crate) async fn on_one_version(
    version: Version,
    test: impl AsyncFn(&Daemon) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let both = std::env::var_os("PLEG_BOTH_VERSIONS").is_some();
    for any in [Version::V1_7, Version::V2] {
        if both || any == version {
            with_daemon(any, &test).await?;
        }
    }
    Ok(())
}

/// Starts a generator on this daemon.
pub(crate) fn start(daemon: &Daemon, mode: Mode) -> anyhow::Result<Generator> {
    let mut settings = Settings::default();
    settings.mode = mode;
    start_with(daemon, settings)
}

pub(crate) fn start_with(daemon: &Daemon, settings: Settings) -> anyhow::Result<Generator> {
    let (builder, recorder) = Generator::builder(daemon.runtime()?);
    Generator::spawn(builder.settings(settings), recorder, daemon.runtime()?)
}
