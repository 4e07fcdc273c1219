//! Selects the runtime, and waits until it responds.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use pleg::core::{CallErrorKind, Instant, Mode, Settings};
use pleg::runtime::clock::Clock;
use pleg::{Builder, Pleg};
use pleg_cri::{ConnectError, CriConfig, CriRuntime, Endpoint, diagnose, find, well_known};

use crate::args::{self, RuntimeArgs};
use crate::sim::Embedded;

/// How long `watch` and `pods` wait for the runtime to respond.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// What to do if no runtime is configured and none is found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IfNotFound {
    /// Use the embedded simulated runtime, as a demonstration.
    UseEmbedded,
    /// Fail, because simulated pods would be wrong output.
    Fail,
    /// Wait for the first well-known socket: the runtime may start after the agent.
    Wait,
}

/// The selected runtime. Stops the embedded runtime, if it is in use.
pub(crate) struct Target {
    pub(crate) endpoint: Endpoint,
    embedded: Option<Embedded>,
    clock: Clock,
    started: Instant,
}

impl Target {
    /// Selects the configured runtime, or the first one that is found.
    pub(crate) async fn choose(
        runtime: &RuntimeArgs,
        if_not_found: IfNotFound,
    ) -> anyhow::Result<Self> {
        if let Some(mode) = runtime.sim {
            return Self::embedded(mode).await;
        }
        if let Some(endpoint) = runtime.runtime_endpoint.clone().or_else(find) {
            return Ok(Self::new(endpoint, None));
        }
        match (if_not_found, well_known().first()) {
            (IfNotFound::Wait, Some(first)) => Ok(Self::new(first.path.parse()?, None)),
            (IfNotFound::UseEmbedded, _) => {
                notice(
                    "no container runtime found on the well-known sockets (set one with -r \
                     unix:///path); using the embedded simulated runtime",
                );
                Self::embedded(pleg_sim::Mode::default()).await
            }
            _ => anyhow::bail!(
                "no container runtime found on the well-known sockets: set one with -r \
                 unix:///path, or use --sim for a simulated runtime"
            ),
        }
    }

    async fn embedded(mode: pleg_sim::Mode) -> anyhow::Result<Self> {
        let embedded = Embedded::start(mode)
            .await
            .context("cannot start the embedded runtime")?;
        Ok(Self::new(embedded.endpoint()?, Some(embedded)))
    }

    /// A runtime on that socket. `embedded` is the embedded runtime, if it serves the socket.
    pub(crate) fn new(endpoint: Endpoint, embedded: Option<Embedded>) -> Self {
        let clock = Clock::start();
        Self {
            endpoint,
            embedded,
            clock,
            started: clock.now(),
        }
    }

    /// The rest of [`RESPONSE_TIMEOUT`].
    fn remaining_time(&self) -> Duration {
        RESPONSE_TIMEOUT.saturating_sub(self.clock.now().since(self.started))
    }

    /// The builder of a generator for this runtime.
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

    /// Waits until the runtime responds, at most ten seconds. Returns permanent errors at once.
    pub(crate) async fn wait_until_responding(&self) -> anyhow::Result<()> {
        let mut last = None;
        let attempts = async {
            let mut interval = tokio::time::interval(Duration::from_millis(250));
            loop {
                interval.tick().await;
                match diagnose(&self.endpoint).await {
                    Ok(_) => return Ok(()),
                    Err(error) if is_temporary(&error) => {
                        if last.is_none() {
                            notice(&format!("waiting at most 10 s: {error}"));
                        }
                        last = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
        };
        match tokio::time::timeout(self.remaining_time(), attempts).await {
            Ok(result) => Ok(result?),
            Err(_) => match last {
                Some(error) => Err(error).context("no response within 10 s"),
                None => anyhow::bail!("{} does not respond within 10 s", self.endpoint),
            },
        }
    }

    /// Waits for the first complete list, for the rest of the ten seconds. Returns permanent errors
    /// at once.
    pub(crate) async fn wait_until_listed(&self, pleg: &Pleg) -> anyhow::Result<()> {
        let mut health = pleg.health();
        let first_list = async {
            loop {
                let current = health.current();
                match current.list_error {
                    _ if current.last_list.is_some() => return Ok(()),
                    Some(error) if !is_temporary_kind(error.kind) => return Err(error),
                    _ if health.changed().await => {}
                    _ => return Ok(()),
                }
            }
        };
        let message = || format!("{} cannot be listed", self.endpoint);
        match tokio::time::timeout(self.remaining_time(), first_list).await {
            Ok(result) => result.with_context(message),
            Err(_) => match pleg.health().current().list_error {
                Some(error) => Err(error).with_context(|| format!("{} within 10 s", message())),
                None => anyhow::bail!("{} within 10 s: list calls hang", message()),
            },
        }
    }

    /// Stops the embedded runtime, if it is in use.
    pub(crate) async fn close(self) {
        if let Some(embedded) = self.embedded {
            embedded.stop().await;
        }
    }
}

/// Whether a runtime that starts or restarts may cause this error.
const fn is_temporary(error: &ConnectError) -> bool {
    matches!(
        error,
        ConnectError::Missing { .. }
            | ConnectError::NotListening { .. }
            | ConnectError::Silent { .. }
            | ConnectError::Unresponsive { .. }
            | ConnectError::Starting { .. }
    )
}

/// Whether a list may succeed after an error of this kind.
const fn is_temporary_kind(kind: CallErrorKind) -> bool {
    !matches!(
        kind,
        CallErrorKind::TooLarge
            | CallErrorKind::PermissionDenied
            | CallErrorKind::Unimplemented
            | CallErrorKind::Malformed
    )
}

/// Prints a message for the user to standard error.
pub(crate) fn notice(message: &str) {
    let style = crate::table::dim();
    // Ignore the error if standard error is closed.
    let _ = writeln!(
        anstream::stderr(),
        "{style}{}{style:#}",
        crate::text::safe(message)
    );
}
