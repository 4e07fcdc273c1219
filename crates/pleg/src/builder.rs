//! Configures and starts a generator.

use std::fmt;
use std::sync::Arc;

use pleg_core::{Mode, Reconciler, Settings};
use pleg_evented::{ReconnectPolicy, ReconnectSettings, handover};
use pleg_generic::Reader;
use pleg_runtime::Runtime;
use pleg_runtime::clock::Clock;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::cache::Published;
use crate::consumer::Consumer;
use crate::driver::Driver;
use crate::error::StartError;
use crate::exit_records::ExitRecords;
use crate::fifo::{Fifo, FifoSender, fifo};
use crate::handle::{Pleg, Shared};
use crate::log::HealthLog;
use crate::outputs::Outputs;
use crate::reads::Reads;
use crate::recorder::Metrics;
use crate::requests::{Command, Requests};
use crate::subscription::{Announcer, Subscription};
use crate::sync::{mpsc, watch};

/// The capacity of the queue of consumers' requests to the driver; when it is full, callers wait.
const COMMAND_QUEUE: usize = 256;

/// A generator that has not been started.
#[must_use = "nothing runs before `spawn`"]
pub struct Builder<R> {
    runtime: Arc<R>,
    settings: Settings,
    mode: Option<Mode>,
    reconnect: ReconnectSettings,
    clock: Option<Clock>,
    subscribers: Announcer,
    fifo: Option<FifoSender>,
    metrics: Metrics,
    requests: Requests,
    commands: (mpsc::Sender<Command>, mpsc::Receiver<Command>),
}

impl<R> fmt::Debug for Builder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl Pleg {
    /// A builder for a generator of the pods of `runtime`.
    pub fn builder<R: Runtime>(runtime: R) -> Builder<R> {
        Builder {
            runtime: Arc::new(runtime),
            settings: Settings::default(),
            mode: None,
            reconnect: ReconnectSettings::default(),
            clock: None,
            subscribers: Announcer::default(),
            fifo: None,
            metrics: Metrics::default(),
            requests: Requests::default(),
            commands: mpsc::channel(COMMAND_QUEUE),
        }
    }
}

impl<R: Runtime> Builder<R> {
    /// Sets the mode: events checked by lists, or lists alone. Overrides the mode in [`settings`](Self::settings). By
    /// default `Auto`: while [`Runtime::stream_hazard`] returns a reason not to subscribe, the generator polls, and its
    /// health shows the reason ([`StreamState::declined`](pleg_core::StreamState::declined)).
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// Replaces all settings.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The delays and the limits with which the stream reader subscribes again after it lost the stream.
    pub fn reconnect(mut self, reconnect: ReconnectSettings) -> Self {
        self.reconnect = reconnect;
        self
    }

    /// The clock of the generator. A test on paused time needs a clock whose wall clock advances with the paused
    /// time ([`Clock::start_at`]).
    pub const fn clock(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The name of the generator: the label `name` of all its metrics, even those of runtime calls. Several generators
    /// in one process need different names, because their metrics have the same names. By default no label.
    pub fn name(mut self, name: &str) -> Self {
        self.metrics.name = Some(name.into());
        self
    }

    /// Runs within `scope` all work that records metrics. `scope` must call its argument once. To set a local recorder:
    /// `|work| metrics::with_local_recorder(&recorder, work)`. By default the metrics go to the global recorder.
    pub fn metrics(mut self, scope: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Self {
        self.metrics.scope = Some(Arc::new(scope));
        self
    }

    /// A subscription from the generator's start. Containers and sandboxes that already exist are announced first,
    /// marked as [`initial`](pleg_core::PodLifecycleEvent::initial).
    pub fn subscribe(&mut self) -> Subscription {
        self.subscribers.subscribe()
    }

    /// Registers a consumer that acknowledges exit records, from the generator's start. Health and logs report the
    /// consumer under `name` if it does not acknowledge an exit within ten minutes.
    pub fn register_consumer(&mut self, name: &str) -> Consumer {
        let registered = self.requests.consumers.add(name.into());
        Consumer::new(registered, self.commands.0.clone())
    }

    /// A queue that gets announcements as the event channel of upstream's kubelet does, from the generator's start.
    /// There is only one queue: a second call replaces the first queue.
    pub fn upstream_fifo(&mut self) -> Fifo {
        let (sender, queue) = fifo();
        self.fifo = Some(sender);
        queue
    }

    /// Starts the generator on the current tokio runtime. The container runtime need not be running: the generator
    /// waits for it indefinitely.
    ///
    /// # Errors
    /// If a setting is invalid, or if this is called outside of a tokio runtime.
    pub fn spawn(self) -> Result<Pleg, StartError> {
        let tokio = Handle::try_current().map_err(|_| StartError::NoRuntime)?;
        let metrics = self.metrics;
        metrics.record(&mut crate::metrics::describe_metrics);
        if self.fifo.is_some() {
            metrics.record(&mut crate::metrics::describe_queue);
        }
        let clock = self.clock.unwrap_or_else(Clock::start);
        let mut settings = self.settings;
        settings.mode = self.mode.unwrap_or(settings.mode);
        let mode = settings.mode;
        let machine = Reconciler::new(settings, clock.now())?;
        let policy = ReconnectPolicy::new(self.reconnect)?.avoid_harm(mode == Mode::Auto);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (observe, hints) = handover();
        let (commands, received) = self.commands;
        let mut requests = self.requests;
        let mut records = ExitRecords::default();
        requests.consumers.update(&mut records, || true);
        let (health, watched) = watch::channel(machine.health(clock.now()));
        let (counted, counters) = watch::channel(machine.counters());
        let gauges = hints.gauges();
        let published = Arc::new(Published::default());
        let renew = Arc::new(Notify::new());
        if mode != Mode::Polling {
            let (runtime, stop) = (self.runtime.clone(), stop.clone());
            let renew = renew.clone();
            let read = pleg_evented::run(runtime, clock, policy, observe, renew, stop);
            tasks.spawn(metrics.of(read.instrument(tracing::debug_span!("event_stream"))));
        } else {
            drop(observe);
        }
        let subscribers = self.subscribers.subscribers();
        let to = Outputs {
            published: published.clone(),
            subscribers: self.subscribers,
            fifo: self.fifo,
            health,
            counters: counted,
            requests,
            log: HealthLog::default(),
            records,
        };
        let reader = Reader::new(self.runtime, clock);
        let reads = Reads::new(metrics.clone());
        let driver = Driver::new(machine, reader, reads, clock, to, gauges.clone(), renew);
        let problems = driver.problems();
        let run = driver.run(hints, received, stop.clone());
        tasks.spawn(metrics.of(run.instrument(tracing::debug_span!("pleg"))));
        tasks.close();
        let shared = Shared {
            clock,
            published,
            subscribers,
            health: watched,
            problems,
            gauges,
            counters,
            commands,
            metrics,
            tasks,
            stop: stop.clone(),
            tokio: Some(tokio),
        };
        Ok(Pleg {
            shared: Arc::new(shared),
            _running: Some(Arc::new(stop.drop_guard())),
        })
    }
}
