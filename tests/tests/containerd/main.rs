//! The whole way on real containerd, 1.7 and 2: churn, trouble, read-your-writes.
//!
//! Every test has a daemon of its own. Without root, Linux or the packages it says so and skips;
//! with `CI=true` that is a failure.

#![allow(
    clippy::print_stdout,
    reason = "a test says what it measured and why it skips"
)]
#![allow(
    clippy::large_futures,
    reason = "a CRI request is large; tests do not mind"
)]

mod churn;
mod fresh;
mod kep3386;
mod second_subscriber;
mod sequences;
mod trouble;
mod workers;

use std::time::Duration;

use pleg::core::Mode;
use pleg_tests::daemon::Daemon;
use pleg_tests::generator::Generator;

/// How long anything may take that happens at once when all is well.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Starts a generator on that daemon.
pub(crate) fn start(daemon: &Daemon, mode: Mode) -> anyhow::Result<Generator> {
    let (builder, ear) = Generator::builder(daemon.runtime()?);
    Generator::spawn(builder.mode(mode), ear, daemon.runtime()?)
}
