//! A runtime that is listened in on: every call is counted, every event is kept; events that are to
//! get lost on their way get lost, and full lists wait while they are to.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use pleg::core::{CallError, EventProfile, EventType, Id, Report, ReportedState, RuntimeEvent};
use pleg::runtime::{Row, Runtime, RuntimeVersion, Scope, clock};
use tokio::sync::watch;

/// Calls that were made, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Lists of the whole node: two calls each.
    pub full_lists: u64,
    /// Lists of one pod or sandbox, one call each.
    pub pod_lists: u64,
    /// Statuses of sandboxes and containers.
    pub statuses: u64,
    /// Event streams that were asked for.
    pub subscribes: u64,
}

/// One event as it arrived.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Its subject.
    pub id: Id,
    /// Its type.
    pub event: EventType,
    /// What its statuses show of each id.
    pub shown: Vec<(Id, ReportedState)>,
    /// From the runtime's stamp to its arrival here, by one wall clock.
    pub late: Duration,
}

impl Heard {
    /// Whether it names the id: as its subject, or in a status.
    pub fn is_about(&self, id: &Id) -> bool {
        self.id == *id || self.shown.iter().any(|(i, _)| i == id)
    }

    /// Whether one of its statuses shows the id so.
    pub fn shows(&self, id: &Id, how: ReportedState) -> bool {
        self.shown.iter().any(|(i, s)| i == id && *s == how)
    }
}

/// What was overheard.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// Calls that were made.
    pub calls: Calls,
    /// Events, in the order of their arrival.
    pub events: Vec<Heard>,
    /// What reads showed first of each id, running or ended, and how many events had been heard
    /// before.
    pub read_first: BTreeMap<Id, (ReportedState, usize)>,
    /// Events that are lost before they are heard.
    lose: BTreeSet<(Id, EventType)>,
    /// How many were.
    pub lost: u64,
}

impl Log {
    /// Whether such an event of that id has arrived.
    pub fn has(&self, id: &Id, what: EventType) -> bool {
        self.events.iter().any(|h| h.id == *id && h.event == what)
    }
}

/// A runtime with an ear on it.
#[derive(Debug)]
pub struct Tap<R> {
    inner: R,
    log: Arc<Mutex<Log>>,
    /// Whether full lists wait.
    held: watch::Receiver<bool>,
}

/// A look at what was overheard, and a hand on it.
#[derive(Clone, Debug)]
pub struct Ear {
    log: Arc<Mutex<Log>>,
    hold: watch::Sender<bool>,
}

impl Ear {
    /// What was overheard so far.
    pub fn log(&self) -> Log {
        self.log
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// From now on such events of that id never arrive.
    pub fn lose(&self, id: &Id, what: EventType) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.lose.insert((id.clone(), what));
    }

    /// Whether full lists that begin from now on wait until they need not.
    pub fn hold_lists(&self, hold: bool) {
        self.hold.send_replace(hold);
    }
}

impl<R: Runtime> Tap<R> {
    /// Listens in on `inner`.
    pub fn new(inner: R) -> (Self, Ear) {
        let log = Arc::new(Mutex::new(Log::default()));
        let (hold, held) = watch::channel(false);
        let ear = Ear {
            log: log.clone(),
            hold,
        };
        (Self { inner, log, held }, ear)
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
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            let first = (shown, log.events.len());
            log.read_first.entry(id.clone()).or_insert(first);
        }
    }

    fn note(&self, what: impl FnOnce(&mut Calls)) {
        what(
            &mut self
                .log
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .calls,
        );
    }
}

impl<R: Runtime> Runtime for Tap<R> {
    type Events = TappedEvents<R::Events>;

    async fn list_sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        self.note(|c| match scope {
            Scope::Node => c.full_lists += 1,
            Scope::Pod(_) => c.pod_lists += 1,
        });
        if *scope == Scope::Node {
            // When nobody is left to hold it, nothing does.
            let _ = self.held.clone().wait_for(|held| !held).await;
        }
        self.inner
            .list_sandboxes(scope, &mut self.noting(row))
            .await
    }

    async fn list_containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        self.note(|c| match scope {
            Scope::Node => c.full_lists += 1,
            Scope::Pod(_) => c.pod_lists += 1,
        });
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
        let inner = self.inner.subscribe().await?;
        Ok(TappedEvents {
            inner,
            log: self.log.clone(),
        })
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        self.inner.version().await
    }

    async fn event_profile(&self) -> Result<EventProfile, CallError> {
        self.inner.event_profile().await
    }
}

/// The event stream of a [`Tap`].
#[derive(Debug)]
pub struct TappedEvents<S> {
    inner: S,
    log: Arc<Mutex<Log>>,
}

impl<S: Stream<Item = Result<RuntimeEvent, CallError>> + Unpin> Stream for TappedEvents<S> {
    type Item = Result<RuntimeEvent, CallError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let polled = Pin::new(&mut self.inner).poll_next(cx);
            let Poll::Ready(Some(Ok(event))) = &polled else {
                return polled;
            };
            let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
            if log.lose.contains(&(event.id.clone(), event.event)) {
                log.lost += 1;
                continue;
            }
            log.events.push(heard(event));
            drop(log);
            return polled;
        }
    }
}

fn heard(event: &RuntimeEvent) -> Heard {
    let shown = event.sandbox.iter().chain(&event.containers);
    let late = clock::wall().as_nanos().saturating_sub(event.created_at);
    Heard {
        id: event.id.clone(),
        event: event.event,
        shown: shown.map(|r| (r.id.clone(), r.shown)).collect(),
        late: Duration::from_nanos(u64::try_from(late).unwrap_or(0)),
    }
}
