//! Selects the runtime, and waits until it responds.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, bail};
use pleg::core::{CallErrorKind, Instant, Mode, Settings};
use pleg::runtime::clock::Clock;
use pleg::{Builder, Pleg};
use pleg_cri::{ConnectError, CriClient, CriConfig, CriRuntime, Endpoint, diagnose};
use tokio::net::UnixStream;

use crate::args::{EventsPolicy, Output, RuntimeArgs};
use crate::find::{self, Found, not_found};
use crate::kubelet::find_subscriber;
use crate::log::notice;
use crate::meter::{Meter, ObservedRuntime};
use crate::sim::{Embedded, control_path};

/// `watch` and `pods` wait this long for the runtime to respond.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The selected runtime.
pub(crate) struct Target {
    /// Unset until a runtime is found.
    found: Arc<OnceLock<Found>>,
    embedded: Option<Embedded>,
    clock: Clock,
    started: Instant,
    timeout: Duration,
    meter: Meter,
}

impl Target {
    /// Selects the configured runtime, or the first one that is found.
    pub(crate) async fn choose(runtime: &RuntimeArgs) -> anyhow::Result<Self> {
        Self::search(runtime).await?.ok_or_else(not_found)
    }

    /// Selects as [`Target::choose`]. On a terminal, if nothing is found, starts the embedded simulated
    /// runtime, as a demonstration; then the second value is true.
    pub(crate) async fn choose_or_demonstrate(
        runtime: &RuntimeArgs,
        output: Output,
    ) -> anyhow::Result<(Self, bool)> {
        match Self::search(runtime).await? {
            Some(target) => Ok((target, false)),
            None if output == Output::Table && io::stdout().is_terminal() => {
                notice(&format!("{}; showing simulated pods", not_found()));
                Ok((Self::embedded(pleg_sim::Mode::default()).await?, true))
            }
            None => Err(not_found()),
        }
    }

    /// Selects as [`Target::choose`]. If nothing is found, searches whenever a connection is made: the
    /// runtime may start later.
    pub(crate) async fn choose_or_wait(runtime: &RuntimeArgs) -> anyhow::Result<Self> {
        let found = Self::search(runtime).await?;
        Ok(found.unwrap_or_else(|| Self::new(OnceLock::new(), None)))
    }

    async fn search(runtime: &RuntimeArgs) -> anyhow::Result<Option<Self>> {
        let found = match (runtime.sim, &runtime.runtime_endpoint) {
            (Some(mode), _) => return Ok(Some(Self::embedded(mode).await?)),
            (None, Some(endpoint)) => {
                let flag = || "set by -r".to_owned();
                let origin = runtime.origin.clone().unwrap_or_else(flag);
                Some(Found::new(endpoint.clone(), origin, Path::new("/")))
            }
            (None, None) => match find::from_environment()? {
                None => find::search(Path::new("/"))?,
                set => set,
            },
        };
        Ok(found.map(|found| Self::new(found.into(), None)))
    }

    async fn embedded(mode: pleg_sim::Mode) -> anyhow::Result<Self> {
        let embedded = Embedded::start(mode)
            .await
            .context("cannot start the embedded runtime")?;
        let found = Found::new(embedded.endpoint()?, String::new(), Path::new("/"));
        Ok(Self::new(found.into(), Some(embedded)))
    }

    fn new(found: OnceLock<Found>, embedded: Option<Embedded>) -> Self {
        let clock = Clock::start();
        Self {
            found: found.into(),
            embedded,
            clock,
            started: clock.now(),
            timeout: RESPONSE_TIMEOUT,
            meter: Meter::new(clock),
        }
    }

    /// Waits no longer than this for the runtime to respond.
    pub(crate) fn within(mut self, limit: Option<Duration>) -> Self {
        self.timeout = limit.map_or(RESPONSE_TIMEOUT, |limit| limit.min(RESPONSE_TIMEOUT));
        self
    }

    fn found(&self) -> anyhow::Result<&Found> {
        self.found.get().ok_or_else(not_found)
    }

    /// The socket of the runtime. An error if none was found.
    pub(crate) fn endpoint(&self) -> anyhow::Result<&Endpoint> {
        Ok(&self.found()?.endpoint)
    }

    /// Returns true if this is the embedded simulated runtime.
    pub(crate) const fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }

    /// The path of the socket, if one was found.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        let found = self.found.get()?;
        Some(found.endpoint.path().to_owned())
    }

    /// Describes the runtime, which may be found later.
    pub(crate) fn describe(&self) -> impl Fn() -> String + Send + Sync + use<> {
        let (embedded, found) = (self.is_embedded(), self.found.clone());
        move || match found.get() {
            Some(found) if embedded => format!("{} (embedded, simulated)", found.endpoint),
            Some(found) => found.to_string(),
            None => "no runtime yet, until one is found".to_owned(),
        }
    }

    /// The measurements of the generator's calls. It has the same clock.
    pub(crate) fn meter(&self) -> Meter {
        self.meter.clone()
    }

    /// Finds out whether this is a simulated runtime: the embedded one, or `pleg sim`, which has a control
    /// socket.
    pub(crate) fn simulated(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let (embedded, found) = (self.is_embedded(), self.found.clone());
        let has_control = |found: &Found| control_path(found.endpoint.path()).exists();
        move || embedded || found.get().is_some_and(has_control)
    }

    /// The time since the runtime was selected.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.now().since(self.started)
    }

    /// The builder of a generator for this runtime, whose calls are measured.
    pub(crate) fn builder(
        &self,
        events: EventsPolicy,
        settings: Settings,
    ) -> anyhow::Result<Builder<ObservedRuntime<CriRuntime>>> {
        let mode = match events {
            EventsPolicy::Never => Mode::Polling,
            // No kubelet uses the embedded runtime.
            EventsPolicy::Auto if self.is_embedded() => Mode::Evented,
            EventsPolicy::Auto => Mode::Auto,
            EventsPolicy::Always => Mode::Evented,
        };
        let found = self.found.clone();
        let socket = move || Some(found.get()?.endpoint.path().to_owned());
        // It looks for a kubelet that subscribes to the events of the same socket.
        let runtime = self
            .runtime(CriConfig::new)?
            .with_subscriber_check(move || find_subscriber(Path::new("/"), socket().as_deref()));
        let meter = self.meter();
        let builder = Pleg::builder(ObservedRuntime { runtime, meter });
        Ok(builder.settings(settings).mode(mode).clock(self.clock))
    }

    /// A client for other calls, with this deadline.
    pub(crate) fn client(&self, deadline: Duration) -> anyhow::Result<CriClient> {
        let config = |endpoint| CriConfig::new(endpoint).with_call_deadline(deadline);
        Ok(self.runtime(config)?.client())
    }

    /// A client that searches for the socket whenever it connects, until it is found.
    fn runtime(&self, config: impl FnOnce(Endpoint) -> CriConfig) -> anyhow::Result<CriRuntime> {
        let found = self.found.clone();
        let endpoint = match found.get() {
            Some(found) => return Ok(CriRuntime::new(config(found.endpoint.clone()))?),
            // Only a name: the connector does not use it.
            None => "/run/containerd/containerd.sock".parse()?,
        };
        let connect = move || {
            let found = found.clone();
            async move {
                if found.get().is_none()
                    && let Some(new) = find::search(Path::new("/")).map_err(io::Error::other)?
                    && found.set(new.clone()).is_ok()
                {
                    notice(&format!("watching {new}"));
                }
                let missing = || io::Error::new(io::ErrorKind::NotFound, not_found());
                let found = found.get().ok_or_else(missing)?;
                UnixStream::connect(found.endpoint.path()).await
            }
        };
        Ok(CriRuntime::with_connector(config(endpoint), connect)?)
    }

    /// Waits for the first complete list. Returns permanent errors at once.
    pub(crate) async fn wait_until_listed(&self, pleg: &Pleg) -> anyhow::Result<()> {
        let Found {
            endpoint, origin, ..
        } = self.found()?;
        let advice = || format!("start the runtime, or correct its endpoint ({origin})");
        let within = self.timeout;
        let (mut last, mut answered) = (None, false);
        let mut health = pleg.health();
        let listed = async {
            let mut interval = tokio::time::interval(Duration::from_millis(250));
            while let Err(error) = diagnose(endpoint).await {
                if !is_temporary(&error) {
                    return Err(error).with_context(advice);
                }
                if last.is_none() {
                    notice(&format!("waiting at most {within:?}: {error}"));
                }
                last = Some(error);
                interval.tick().await;
            }
            (last, answered) = (None, true);
            loop {
                let current = health.current();
                match current.list_error {
                    _ if current.last_list.is_some() => return Ok(()),
                    Some(error) if !is_temporary_kind(error.kind) => {
                        return Err(error).with_context(|| format!("{endpoint} cannot be listed"));
                    }
                    _ if health.changed().await => {}
                    _ => return Ok(()),
                }
            }
        };
        let rest = within.saturating_sub(self.elapsed());
        if let Ok(result) = tokio::time::timeout(rest, listed).await {
            return result;
        }
        let failed = || format!("no complete list within {within:?}; {}", advice());
        match (last, pleg.health().current().list_error) {
            (Some(error), _) => Err(error).with_context(failed),
            (None, Some(error)) => Err(error).with_context(failed),
            (None, None) if answered => bail!("list calls to {endpoint} hang: {}", failed()),
            (None, None) => bail!("{endpoint} does not respond: {}", failed()),
        }
    }

    /// Stops the embedded runtime, if it is in use.
    pub(crate) async fn close(self) {
        if let Some(embedded) = self.embedded {
            embedded.stop().await;
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe()())
    }
}

/// Returns true if a runtime that starts or restarts may cause this error.
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

/// Returns true if a list may succeed after an error of this kind.
const fn is_temporary_kind(kind: CallErrorKind) -> bool {
    !matches!(
        kind,
        CallErrorKind::TooLarge
            | CallErrorKind::PermissionDenied
            | CallErrorKind::Unimplemented
            | CallErrorKind::Malformed
    )
}
