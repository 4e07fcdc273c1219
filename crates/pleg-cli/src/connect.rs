//! Selects the runtime, and waits until it responds.

use std::fmt;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use pleg::core::{CallErrorKind, Instant, Mode, Settings};
use pleg::runtime::clock::Clock;
use pleg::{Builder, Pleg};
use pleg_cri::{ConnectError, CriClient, CriConfig, CriRuntime, Endpoint, diagnose};
use tokio::net::UnixStream;

use crate::args::{EventsPolicy, Output, RuntimeArgs};
use crate::find::{self, ENDPOINT_VARIABLE, NotFound};
use crate::kubelet::find_subscriber;
use crate::log::notice;
use crate::meter::Meter;
use crate::runtime_calls::ObservedRuntime;
use crate::sim::{Embedded, control_path};

/// How long `watch` and `pods` wait for the runtime to respond.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The selected runtime. Stops the embedded runtime, if it is in use.
pub(crate) struct Target {
    socket: Socket,
    embedded: Option<Embedded>,
    clock: Clock,
    started: Instant,
    timeout: Duration,
    meter: Meter,
}

/// Where the runtime listens.
enum Socket {
    At(Endpoint),
    /// Nothing is found yet. It is searched for whenever a connection is made.
    Searched(NotFound),
}

impl Target {
    /// Selects the configured runtime, or the first one that is found.
    pub(crate) async fn choose(runtime: &RuntimeArgs) -> anyhow::Result<Self> {
        let found = Self::search(runtime).await?;
        found.map_err(|not_found| {
            anyhow::anyhow!(
                "{not_found}; set its socket with -r unix:///path or {ENDPOINT_VARIABLE}, or use --sim \
                 for a simulated runtime"
            )
        })
    }

    /// The same. On a terminal, if nothing is found, the embedded simulated runtime, as a
    /// demonstration; then the second value is true.
    pub(crate) async fn choose_or_demonstrate(
        runtime: &RuntimeArgs,
        output: Output,
    ) -> anyhow::Result<(Self, bool)> {
        if output != Output::Table || !io::stdout().is_terminal() {
            return Ok((Self::choose(runtime).await?, false));
        }
        match Self::search(runtime).await? {
            Ok(target) => Ok((target, false)),
            Err(not_found) => {
                notice(&format!("{not_found}; showing simulated pods"));
                let target = Self::embedded(pleg_sim::Mode::default()).await?;
                Ok((target, true))
            }
        }
    }

    /// The same. If nothing is found, it is searched for whenever a connection is made: the runtime
    /// may start later.
    pub(crate) async fn choose_or_wait(runtime: &RuntimeArgs) -> anyhow::Result<Self> {
        let found = Self::search(runtime).await?;
        Ok(found.unwrap_or_else(|not_found| Self::new(Socket::Searched(not_found), None)))
    }

    async fn search(runtime: &RuntimeArgs) -> anyhow::Result<Result<Self, NotFound>> {
        match Self::configured(runtime).await? {
            Some(target) => Ok(Ok(target)),
            None => Ok(find::search(Path::new("/")).map(Self::at)),
        }
    }

    /// The runtime that the command line or the environment names.
    async fn configured(runtime: &RuntimeArgs) -> anyhow::Result<Option<Self>> {
        if let Some(mode) = runtime.sim {
            return Ok(Some(Self::embedded(mode).await?));
        }
        let endpoint = match &runtime.runtime_endpoint {
            Some(endpoint) => Some(endpoint.clone()),
            None => find::from_environment()?,
        };
        Ok(endpoint.map(Self::at))
    }

    async fn embedded(mode: pleg_sim::Mode) -> anyhow::Result<Self> {
        let embedded = Embedded::start(mode)
            .await
            .context("cannot start the embedded runtime")?;
        let endpoint = embedded.endpoint()?;
        Ok(Self::new(Socket::At(endpoint), Some(embedded)))
    }

    /// The runtime that listens there.
    pub(crate) fn at(endpoint: Endpoint) -> Self {
        Self::new(Socket::At(endpoint), None)
    }

    fn new(socket: Socket, embedded: Option<Embedded>) -> Self {
        let clock = Clock::start();
        Self {
            socket,
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

    /// The socket of the runtime. An error if none was found.
    pub(crate) fn endpoint(&self) -> anyhow::Result<&Endpoint> {
        match &self.socket {
            Socket::At(endpoint) => Ok(endpoint),
            Socket::Searched(not_found) => Err(not_found.clone().into()),
        }
    }

    /// Whether the runtime is the embedded simulated one.
    pub(crate) const fn is_embedded(&self) -> bool {
        self.embedded.is_some()
    }

    /// The path of the socket, if one was found.
    pub(crate) fn socket(&self) -> Option<PathBuf> {
        self.endpoint()
            .ok()
            .map(|endpoint| endpoint.path().to_owned())
    }

    /// The measurements of the generator's calls. It has the same clock.
    pub(crate) fn meter(&self) -> Meter {
        self.meter.clone()
    }

    /// Whether this is a simulated runtime: the embedded one, or `pleg sim`, whose control socket is
    /// beside its socket.
    pub(crate) fn simulated(&self) -> impl Fn() -> bool + Send + Sync + 'static {
        let embedded = self.embedded.is_some();
        let control = self.socket().map(|socket| control_path(&socket));
        move || embedded || control.as_ref().is_some_and(|path| path.exists())
    }

    /// The time since the runtime was selected.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.now().since(self.started)
    }

    /// The rest of the time to wait for the runtime.
    fn remaining_time(&self) -> Duration {
        self.timeout.saturating_sub(self.elapsed())
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
        let runtime = self.beside_a_kubelet(self.runtime(CriConfig::new)?);
        let builder = Pleg::builder(ObservedRuntime::new(runtime, self.meter()));
        Ok(builder.settings(settings).mode(mode).clock(self.clock))
    }

    /// The client, which looks for a kubelet that subscribes to the events of the same socket.
    fn beside_a_kubelet(&self, runtime: CriRuntime) -> CriRuntime {
        let socket = self.socket();
        runtime.with_subscriber_check(move || find_subscriber(Path::new("/"), socket.as_deref()))
    }

    /// A client for other calls, with this deadline.
    pub(crate) fn client(&self, deadline: Duration) -> anyhow::Result<CriClient> {
        let config = |endpoint| CriConfig::new(endpoint).with_call_deadline(deadline);
        Ok(self.runtime(config)?.client())
    }

    fn runtime(&self, config: impl FnOnce(Endpoint) -> CriConfig) -> anyhow::Result<CriRuntime> {
        match &self.socket {
            Socket::At(endpoint) => Ok(CriRuntime::new(config(endpoint.clone()))?),
            Socket::Searched(_) => searching(config),
        }
    }

    /// Waits until the runtime responds. Returns permanent errors at once.
    pub(crate) async fn wait_until_responding(&self) -> anyhow::Result<()> {
        let endpoint = self.endpoint()?;
        let mut last = None;
        let attempts = async {
            let mut interval = tokio::time::interval(Duration::from_millis(250));
            loop {
                interval.tick().await;
                match diagnose(endpoint).await {
                    Ok(_) => return Ok(()),
                    Err(error) if is_temporary(&error) => {
                        if last.is_none() {
                            notice(&format!("waiting at most {:?}: {error}", self.timeout));
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
                Some(error) => {
                    Err(error).with_context(|| format!("no response within {:?}", self.timeout))
                }
                None => anyhow::bail!("{endpoint} does not respond within {:?}", self.timeout),
            },
        }
    }

    /// Waits for the first complete list, for the rest of the time. Returns permanent errors at once.
    pub(crate) async fn wait_until_listed(&self, pleg: &Pleg) -> anyhow::Result<()> {
        let endpoint = self.endpoint()?;
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
        let message = || format!("{endpoint} cannot be listed");
        let within = self.timeout;
        match tokio::time::timeout(self.remaining_time(), first_list).await {
            Ok(result) => result.with_context(message),
            Err(_) => match pleg.health().current().list_error {
                Some(error) => {
                    Err(error).with_context(|| format!("{} within {within:?}", message()))
                }
                None => anyhow::bail!("{} within {within:?}: list calls hang", message()),
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

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Socket::At(endpoint) => endpoint.fmt(f),
            Socket::Searched(_) => f.write_str("no runtime yet, until one is found"),
        }
    }
}

/// A client that searches for the socket whenever it connects.
fn searching(config: impl FnOnce(Endpoint) -> CriConfig) -> anyhow::Result<CriRuntime> {
    // Only a name: the connector does not use it.
    let config = config("/run/containerd/containerd.sock".parse()?);
    let connect = || async {
        let endpoint = find::search(Path::new("/"))
            .map_err(|not_found| io::Error::new(io::ErrorKind::NotFound, not_found))?;
        UnixStream::connect(endpoint.path()).await
    };
    Ok(CriRuntime::with_connector(config, connect)?)
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
