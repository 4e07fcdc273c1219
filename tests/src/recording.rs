//! A wrapper around a runtime that counts calls and records events. A test can make it drop events or pause the stream.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::Stream;
use pleg::core::{CallError, EventProfile, EventType, Id, Report, ReportedState, RuntimeEvent};
use pleg::runtime::{Row, Runtime, RuntimeVersion, Scope};

/// The number of calls, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// List calls for the whole node. A relist makes two: one for sandboxes, one for containers.
    pub full_lists: u64,
    /// List calls for one pod or sandbox.
    pub pod_lists: u64,
    /// Statuses of sandboxes and containers.
    pub statuses: u64,
    /// Subscribes.
    pub subscribes: u64,
    /// `Version` calls, except those that the generator makes to find out which events this runtime sends.
    pub versions: u64,
}

/// An event that the runtime has delivered.
#[derive(Clone, Debug)]
pub struct ReceivedEvent {
    /// The container or sandbox that the event is about.
    pub id: Id,
    /// The event's type.
    pub event: EventType,
    /// The states in the event's statuses.
    pub shown: Vec<(Id, ReportedState)>,
}

impl ReceivedEvent {
    /// Returns true if the event is about the id, or if one of the event's statuses is.
    pub fn mentions(&self, id: &Id) -> bool {
        self.id == *id || self.shown.iter().any(|(i, _)| i == id)
    }

    /// Returns true if one of the event's statuses shows the id in the state `how`.
    pub fn shows(&self, id: &Id, how: ReportedState) -> bool {
        self.shown.iter().any(|(i, s)| i == id && *s == how)
    }
}

/// The calls and events that a [`RecordingRuntime`] has recorded.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// The number of calls, by kind.
    pub calls: Calls,
    /// The delivered events, in the order of their arrival.
    pub events: Vec<ReceivedEvent>,
    /// By id: the first state that a read showed, running or exited (reads that show another state do not count), and
    /// the number of events that had arrived before that read.
    pub read_first: BTreeMap<Id, (ReportedState, usize)>,
    /// The ids and types of events that this wrapper drops.
    dropped: BTreeSet<(Id, EventType)>,
    /// The number of dropped events.
    pub lost: u64,
    /// True while the test pauses the event stream. `reader` is the task that waits to read the paused stream.
    paused: bool,
    reader: Option<Waker>,
}

impl Log {
    /// Returns true if an event of the type `what` about `id` has arrived.
    pub fn has(&self, id: &Id, what: EventType) -> bool {
        self.events.iter().any(|h| h.id == *id && h.event == what)
    }

    /// The number of STARTED and STOPPED events that have arrived. (The generator computes the share of lost events
    /// from only these types.)
    pub fn expected(&self) -> u64 {
        let counted =
            |e: &&ReceivedEvent| matches!(e.event, EventType::Started | EventType::Stopped);
        self.events.iter().filter(counted).count() as u64
    }
}

/// A runtime that passes calls to another runtime, and records them and the events.
#[derive(Debug)]
pub struct RecordingRuntime<R> {
    inner: R,
    /// The runtime that provides the event stream, if that is not `inner`.
    events: Option<R>,
    log: Arc<Mutex<Log>>,
}

/// The log of a [`RecordingRuntime`], and its controls.
#[derive(Clone, Debug)]
pub struct Recorder {
    log: Arc<Mutex<Log>>,
}

impl Recorder {
    /// A copy of the log.
    pub fn log(&self) -> Log {
        lock(&self.log).clone()
    }

    /// Empties the log.
    pub fn clear(&self) {
        *lock(&self.log) = Log::default();
    }

    /// From now on, drops events of the type `what` about `id`.
    pub fn drop_event(&self, id: &Id, what: EventType) {
        lock(&self.log).dropped.insert((id.clone(), what));
    }

    /// Stops reading the event stream, or resumes it.
    pub fn pause_events(&self, pause: bool) {
        let mut log = lock(&self.log);
        log.paused = pause;
        if let Some(reader) = log.reader.take() {
            reader.wake();
        }
    }
}

impl<R: Runtime> RecordingRuntime<R> {
    /// Wraps `inner`: records the calls to `inner` and its events.
    pub fn new(inner: R) -> (Self, Recorder) {
        let log = Arc::new(Mutex::new(Log::default()));
        let recorder = Recorder { log: log.clone() };
        let events = None;
        (Self { inner, events, log }, recorder)
    }

    /// Takes the event stream from `events` instead of `inner`, for example from a client with its own connection.
    #[must_use]
    pub fn with_events(self, events: R) -> Self {
        let events = Some(events);
        Self { events, ..self }
    }

    fn noting<'a>(
        &'a self,
        hand_on: &'a mut (dyn FnMut(Row<'_>) + Send),
    ) -> impl FnMut(Row<'_>) + Send + 'a {
        move |row| {
            self.read(&row.id().into(), row.shown());
            hand_on(row);
        }
    }

    fn read(&self, id: &Id, shown: ReportedState) {
        if matches!(shown, ReportedState::Running | ReportedState::Exited) {
            let mut log = lock(&self.log);
            let first = (shown, log.events.len());
            log.read_first.entry(id.clone()).or_insert(first);
        }
    }

    fn note(&self, what: impl FnOnce(&mut Calls)) {
        what(&mut lock(&self.log).calls);
    }

    fn note_list(&self, scope: &Scope) {
        self.note(|c| match scope {
            Scope::Node => c.full_lists += 1,
            Scope::Pod(_) => c.pod_lists += 1,
        });
    }
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<R: Runtime> Runtime for RecordingRuntime<R> {
    type Events = RecordedEvents<R::Events>;

    async fn list_sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        self.note_list(scope);
        self.inner
            .list_sandboxes(scope, &mut self.noting(row))
            .await
    }

    async fn list_containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        self.note_list(scope);
        self.inner
            .list_containers(scope, &mut self.noting(row))
            .await
    }

    async fn sandbox_status(&self, id: &Id) -> Result<Report, CallError> {
        self.note(|c| c.statuses += 1);
        let status = self.inner.sandbox_status(id).await;
        status.inspect(|report| self.read(&report.id, report.shown))
    }

    async fn container_status(&self, id: &Id) -> Result<Report, CallError> {
        self.note(|c| c.statuses += 1);
        let status = self.inner.container_status(id).await;
        status.inspect(|report| self.read(&report.id, report.shown))
    }

    async fn subscribe(&self) -> Result<Self::Events, CallError> {
        self.note(|c| c.subscribes += 1);
        let inner = self
            .events
            .as_ref()
            .unwrap_or(&self.inner)
            .subscribe()
            .await?;
        Ok(RecordedEvents {
            inner,
            log: self.log.clone(),
        })
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        self.note(|c| c.versions += 1);
        self.inner.version().await
    }

    async fn event_profile(&self) -> Result<EventProfile, CallError> {
        self.inner.event_profile().await
    }
}

/// The event stream of a [`RecordingRuntime`].
#[derive(Debug)]
pub struct RecordedEvents<S> {
    inner: S,
    log: Arc<Mutex<Log>>,
}

impl<S: Stream<Item = Result<RuntimeEvent, CallError>> + Unpin> Stream for RecordedEvents<S> {
    type Item = Result<RuntimeEvent, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let log = self.log.clone();
            let mut log = lock(&log);
            if log.paused {
                log.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
            let polled = Pin::new(&mut self.inner).poll_next(cx);
            let Poll::Ready(Some(Ok(event))) = &polled else {
                return polled;
            };
            if log.dropped.contains(&(event.id.clone(), event.event)) {
                log.lost += 1;
                continue;
            }
            log.events.push(received(event));
            return polled;
        }
    }
}

fn received(event: &RuntimeEvent) -> ReceivedEvent {
    let shown = event.sandbox.iter().chain(&event.containers);
    ReceivedEvent {
        id: event.id.clone(),
        event: event.event,
        shown: shown.map(|r| (r.id.clone(), r.shown)).collect(),
    }
}
