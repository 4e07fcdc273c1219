//! Selects the runtime, and waits until it responds.

use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use pleg::core::{CallErrorKind, Instant, Mode, Settings};
use pleg::runtime::clock::Clock;
use pleg::{Pleg, Subscription};
use pleg_cri::{ConnectError, CriClient, CriConfig, CriRuntime, Endpoint, diagnose};
use tokio::net::UnixStream;

use crate::args::{EventsPolicy, Output, RuntimeArgs};
use crate::find::{self, Found, not_found};
use crate::kubelet::find_subscriber;
use crate::log::notice;
use crate::meter::{Meter, ObservedRuntime};
use crate::sim::{CONTROL, Embedded};

/// The time for which `watch` and `pods` wait for the runtime to respond.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
const NONE_YET: &str = "no runtime, as none was found yet";
/// The kinds of errors after which no later list can succeed either, so the command does not wait.
const PERMANENT: [CallErrorKind; 4] = {
    use CallErrorKind::{Malformed, PermissionDenied, TooLarge, Unimplemented};
    [TooLarge, PermissionDenied, Unimplemented, Malformed]
};

/// The runtime that a command uses. `pleg agent` may start before the runtime, and finds it later, for all clones.
#[derive(Clone, derive_more::Constructor, derive_more::Display)]
#[display("{}", found.get().map_or_else(|| NONE_YET.to_owned(), ToString::to_string))]
pub(crate) struct Chosen {
    found: Arc<OnceLock<Found>>,
    pub(crate) is_embedded: bool,
}

impl Chosen {
    fn found(&self) -> Result<&Found> {
        self.found.get().ok_or_else(not_found)
    }

    pub(crate) fn endpoint(&self) -> Result<&Endpoint> {
        Ok(&self.found()?.endpoint)
    }

    pub(crate) fn socket(&self) -> Option<PathBuf> {
        Some(self.endpoint().ok()?.path().to_owned())
    }

    /// Returns true for the embedded runtime, and for `pleg sim`, which has a control socket.
    pub(crate) fn is_simulated(&self) -> bool {
        let has_control = |socket: PathBuf| socket.with_added_extension(CONTROL).exists();
        self.is_embedded || self.socket().is_some_and(has_control)
    }
}

pub(crate) struct Target {
    pub(crate) runtime: Chosen,
    embedded: Option<Embedded>,
    started: Instant,
    pub(crate) meter: Meter,
}

impl Target {
    /// Selects the configured runtime, or the first one that is found.
    pub(crate) fn choose(runtime: &RuntimeArgs) -> Result<Self> {
        Self::search(runtime)?.ok_or_else(not_found)
    }

    /// Like [`Target::choose`], but simulates a runtime (returns true) if none is found and a terminal shows a table.
    pub(crate) fn choose_or_simulate(args: &RuntimeArgs, output: Output) -> Result<(Self, bool)> {
        match Self::search(args)? {
            Some(target) => Ok((target, false)),
            None if output == Output::Table && io::stdout().is_terminal() => {
                notice(&format!("{}; showing simulated pods", not_found()));
                Ok((Self::embedded(pleg_sim::Mode::default())?, true))
            }
            None => Err(not_found()),
        }
    }

    /// Like [`Target::choose`], but if no runtime is found, each new connection searches for one that started later.
    pub(crate) fn choose_or_wait(runtime: &RuntimeArgs) -> Result<Self> {
        Ok(Self::search(runtime)?.unwrap_or_else(|| Self::new(OnceLock::new(), None)))
    }

    fn search(runtime: &RuntimeArgs) -> Result<Option<Self>> {
        let root = Path::new("/");
        let found = match (runtime.sim, &runtime.runtime_endpoint) {
            (Some(mode), _) => return Ok(Some(Self::embedded(mode)?)),
            (None, Some(endpoint)) => {
                let origin = runtime.origin.as_deref().unwrap_or("set by -r");
                Some(Found::new(endpoint.clone(), origin.to_owned(), root))
            }
            (None, None) => match find::from_environment()? {
                None => find::search(root)?,
                set => set,
            },
        };
        Ok(found.map(|found| Self::new(found.into(), None)))
    }

    fn embedded(mode: pleg_sim::Mode) -> Result<Self> {
        let embedded = Embedded::start(mode).context("cannot start the embedded runtime")?;
        let found = Found {
            endpoint: embedded.endpoint.clone(),
            origin: "embedded, simulated".to_owned(),
            others: Vec::new(),
        };
        Ok(Self::new(found.into(), Some(embedded)))
    }

    fn new(found: OnceLock<Found>, embedded: Option<Embedded>) -> Self {
        let clock = Clock::start();
        Self {
            runtime: Chosen::new(found.into(), embedded.is_some()),
            embedded,
            started: clock.now(),
            meter: Meter::new(clock),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.meter.clock.now().since(self.started)
    }

    /// Starts a generator for this runtime. The calls that the generator makes are measured.
    pub(crate) fn spawn(
        &self,
        events: EventsPolicy,
        settings: Settings,
    ) -> Result<(Pleg, Subscription)> {
        let mode = match events {
            EventsPolicy::Never => Mode::Polling,
            // No kubelet uses the embedded runtime.
            EventsPolicy::Auto if !self.runtime.is_embedded => Mode::Auto,
            EventsPolicy::Auto | EventsPolicy::Always => Mode::Evented,
        };
        let (runtime, chosen) = (self.connect(CriConfig::new)?, self.runtime.clone());
        let subscriber = move || find_subscriber(Path::new("/"), chosen.socket().as_deref());
        let runtime = runtime.with_subscriber_check(subscriber);
        let (meter, clock) = (self.meter.clone(), self.meter.clock);
        let builder = Pleg::builder(ObservedRuntime { runtime, meter });
        let mut builder = builder.settings(settings).mode(mode).clock(clock);
        let events = builder.subscribe();
        Ok((builder.spawn()?, events))
    }

    pub(crate) fn client(&self, deadline: Duration) -> Result<CriClient> {
        let config = |endpoint| CriConfig::new(endpoint).with_call_deadline(deadline);
        Ok(self.connect(config)?.client())
    }

    /// A client that searches for a runtime before each connection until one is found.
    fn connect(&self, config: impl FnOnce(Endpoint) -> CriConfig) -> Result<CriRuntime> {
        let found = self.runtime.found.clone();
        let endpoint = match found.get() {
            Some(found) => return Ok(CriRuntime::new(config(found.endpoint.clone()))?),
            // Only messages show this endpoint: `connect` below searches this host for a socket, and connects to that.
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
                UnixStream::connect(found.get().ok_or_else(missing)?.endpoint.path()).await
            }
        };
        Ok(CriRuntime::with_connector(config(endpoint), connect)?)
    }

    /// Waits for the first list, for ten seconds or `limit`, whichever is shorter. Returns `PERMANENT` errors at once.
    pub(crate) async fn until_listed(&self, pleg: &Pleg, limit: Option<Duration>) -> Result<()> {
        let found = self.runtime.found()?;
        let (endpoint, origin) = (&found.endpoint, &found.origin);
        let advice = format!("start the runtime, or correct its endpoint ({origin})");
        let within = limit.unwrap_or(RESPONSE_TIMEOUT).min(RESPONSE_TIMEOUT);
        let mut waits_for = anyhow!("{endpoint} does not respond");
        let mut health = pleg.health();
        let listed = async {
            let mut interval = tokio::time::interval(Duration::from_millis(250));
            let mut is_first = true;
            while let Err(error) = diagnose(endpoint).await {
                // A runtime that starts or restarts may cause these errors.
                use ConnectError::{Missing, NotListening, Silent, Starting, Unresponsive};
                match error {
                    Missing { .. } | NotListening { .. } | Starting { .. } => {}
                    Silent { .. } | Unresponsive { .. } => {}
                    error => return Err(error).context(advice.clone()),
                }
                if std::mem::take(&mut is_first) {
                    notice(&format!("waiting at most {within:?}: {error}"));
                }
                waits_for = error.into();
                interval.tick().await;
            }
            loop {
                let current = health.current();
                waits_for = match current.list_error {
                    _ if current.last_list.is_some() => return Ok(()),
                    None => anyhow!("list calls to {endpoint} hang"),
                    Some(error) if !PERMANENT.contains(&error.kind) => error.into(),
                    Some(error) => {
                        return Err(error).with_context(|| format!("{endpoint} cannot be listed"));
                    }
                };
                if !health.changed().await {
                    return Ok(());
                }
            }
        };
        let listed = tokio::time::timeout(within.saturating_sub(self.elapsed()), listed).await;
        let failed = || format!("no complete list within {within:?}; {advice}");
        listed.unwrap_or_else(|_| Err(waits_for).with_context(failed))
    }

    pub(crate) async fn close(self) {
        if let Some(embedded) = self.embedded {
            embedded.stop().await;
        }
    }
}
