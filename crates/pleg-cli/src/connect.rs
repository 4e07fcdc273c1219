//! Which runtime is meant, and what is said if it does not answer.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use pleg::core::{CallErrorKind, Instant, Mode, Settings};
use pleg::runtime::clock::Clock;
use pleg::{Builder, Pleg};
use pleg_cri::{ConnectError, CriConfig, CriRuntime, Endpoint, diagnose, find, well_known};

use crate::args::{self, Which};
use crate::sim::Embedded;

/// How long `watch` and `pods` wait for a runtime to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What to do where no runtime is named and none is found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Otherwise {
    /// Show the embedded simulated one: for people who look around.
    Embedded,
    /// Fail: whoever asks what exists must not be told of what does not.
    Fail,
    /// Wait on the most usual socket: a node's runtime may start after its agent.
    Wait,
}

/// A runtime to talk to, and what keeps it alive if it is our own.
pub(crate) struct Target {
    pub(crate) endpoint: Endpoint,
    embedded: Option<Embedded>,
    clock: Clock,
    started: Instant,
}

impl Target {
    /// The runtime that was asked for, or the one that is found; `otherwise` says what to do where
    /// there is none.
    pub(crate) async fn choose(runtime: &Which, otherwise: Otherwise) -> anyhow::Result<Self> {
        if let Some(mode) = runtime.sim {
            return Self::embedded(mode).await;
        }
        if let Some(endpoint) = runtime.runtime_endpoint.clone().or_else(find) {
            return Ok(Self::new(endpoint, None));
        }
        match (otherwise, well_known().first()) {
            (Otherwise::Wait, Some(usual)) => Ok(Self::new(usual.path.parse()?, None)),
            (Otherwise::Embedded, _) => {
                say(
                    "no container runtime found on its usual socket (use -r unix:///path to name \
                     one); showing the embedded simulated runtime",
                );
                Self::embedded(pleg_sim::Mode::default()).await
            }
            _ => anyhow::bail!(
                "no container runtime found on its usual socket: name it with -r unix:///path, or \
                 use --sim for a simulated one"
            ),
        }
    }

    async fn embedded(mode: pleg_sim::Mode) -> anyhow::Result<Self> {
        let embedded = Embedded::start(mode)
            .await
            .context("cannot start the embedded runtime")?;
        Ok(Self::new(embedded.endpoint()?, Some(embedded)))
    }

    /// A runtime on that socket; `embedded` keeps it alive if it is our own.
    pub(crate) fn new(endpoint: Endpoint, embedded: Option<Embedded>) -> Self {
        let clock = Clock::start();
        Self {
            endpoint,
            embedded,
            clock,
            started: clock.now(),
        }
    }

    /// What is left of the time in which somebody must have answered.
    fn patience(&self) -> Duration {
        PATIENCE.saturating_sub(self.clock.now().since(self.started))
    }

    /// A generator for it, not started yet.
    pub(crate) fn builder(
        &self,
        mode: args::Mode,
        mut settings: Settings,
    ) -> anyhow::Result<Builder<CriRuntime>> {
        settings.mode = match mode {
            args::Mode::Evented => Mode::Evented,
            args::Mode::Polling => Mode::Polling,
        };
        let runtime = CriRuntime::new(CriConfig::new(self.endpoint.clone()))?;
        Ok(Pleg::builder(runtime).settings(settings))
    }

    /// Waits until somebody answers there, for ten seconds at most; what cannot get better by
    /// waiting is told at once.
    pub(crate) async fn wait_until_it_answers(&self) -> anyhow::Result<()> {
        let mut last = None;
        let trying = async {
            let mut again = tokio::time::interval(Duration::from_millis(250));
            loop {
                again.tick().await;
                match diagnose(&self.endpoint).await {
                    Ok(_) => return Ok(()),
                    Err(error) if may_pass(&error) => {
                        if last.is_none() {
                            say(&format!("waiting for 10 s at most: {error}"));
                        }
                        last = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        match tokio::time::timeout(self.patience(), trying).await {
            Ok(outcome) => Ok(outcome?),
            Err(_) => match last {
                Some(error) => Err(error).context("no answer within 10 s"),
                None => anyhow::bail!("{} does not answer within 10 s", self.endpoint),
            },
        }
    }

    /// Waits until the runtime was listed once, for what is left of the ten seconds; a failure
    /// that the next list would meet again is told at once.
    pub(crate) async fn wait_until_listed(&self, pleg: &Pleg) -> anyhow::Result<()> {
        let mut health = pleg.health();
        let listing = async {
            loop {
                let now = health.current();
                match now.list_error {
                    _ if now.last_list.is_some() => return Ok(()),
                    Some(error) if !call_may_pass(error.kind) => return Err(error),
                    _ if health.changed().await => {}
                    _ => return Ok(()),
                }
            }
        };
        let cannot = || format!("{} cannot be listed", self.endpoint);
        match tokio::time::timeout(self.patience(), listing).await {
            Ok(outcome) => outcome.with_context(cannot),
            Err(_) => match pleg.health().current().list_error {
                Some(error) => Err(error).with_context(|| format!("{} within 10 s", cannot())),
                None => anyhow::bail!("{} within 10 s: its lists do not end", cannot()),
            },
        }
    }

    /// Ends the embedded runtime, if it is in use.
    pub(crate) async fn close(self) {
        if let Some(embedded) = self.embedded {
            embedded.stop().await;
        }
    }
}

/// Whether a runtime that starts, or comes back, would look like this.
const fn may_pass(error: &ConnectError) -> bool {
    matches!(
        error,
        ConnectError::Missing { .. }
            | ConnectError::NobodyListens { .. }
            | ConnectError::Silent { .. }
            | ConnectError::Unresponsive { .. }
            | ConnectError::Starting { .. }
    )
}

/// Whether a list that failed so may succeed the next time.
const fn call_may_pass(kind: CallErrorKind) -> bool {
    !matches!(
        kind,
        CallErrorKind::TooLarge
            | CallErrorKind::PermissionDenied
            | CallErrorKind::Unimplemented
            | CallErrorKind::Malformed
    )
}

/// Tells a person something that is no part of the output.
pub(crate) fn say(what: &str) {
    let style = crate::table::dim();
    // With nobody to read it there is nobody to tell.
    let _ = writeln!(
        anstream::stderr(),
        "{style}{}{style:#}",
        crate::text::safe(what)
    );
}
