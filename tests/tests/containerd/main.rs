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
mod sequences;
mod trouble;

use std::time::Duration;

use pleg::core::Mode;
use pleg::{Pleg, Subscription};
use pleg_cri::CriRuntime;
use pleg_tests::daemon::Daemon;
use pleg_tests::tap::{Ear, Tap};

/// How long anything may take that happens at once when all is well.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A generator under test, listened in on.
pub(crate) struct Subject {
    pub(crate) pleg: Pleg,
    pub(crate) events: Subscription,
    pub(crate) ear: Ear,
    /// A client of the same runtime, for the truth.
    pub(crate) truth: CriRuntime,
}

impl Subject {
    pub(crate) fn start(daemon: &Daemon, mode: Mode) -> anyhow::Result<Self> {
        let (runtime, ear) = Tap::new(daemon.runtime()?);
        let mut builder = Pleg::builder(runtime).mode(mode);
        let events = builder.subscribe();
        Ok(Self {
            pleg: builder.spawn()?,
            events,
            ear,
            truth: daemon.runtime()?,
        })
    }
}
