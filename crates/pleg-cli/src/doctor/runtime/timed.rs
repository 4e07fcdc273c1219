//! A runtime whose calls are timed: doctor examines the calls that the generator makes anyway.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pleg::core::{CallError, EventProfile, Id, Instant, Kind, PodUid, Report};
use pleg::runtime::clock::Clock;
use pleg::runtime::{Row, Runtime, RuntimeVersion, Scope};

pub(super) const LIST_SANDBOXES: &str = "ListPodSandbox";
const LIST_CONTAINERS: &str = "ListContainers";

/// What a call reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Subject {
    Node,
    Pod(PodUid),
    Id(Id),
}

impl From<&Scope> for Subject {
    fn from(scope: &Scope) -> Self {
        match scope {
            Scope::Node => Self::Node,
            Scope::Pod(uid) => Self::Pod(uid.clone()),
        }
    }
}

/// An operation and what it reads.
pub(super) type Key = (&'static str, Subject);

/// All calls of one operation that read the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Timing {
    pub(super) ended: u64,
    /// The longest one, answered or not.
    pub(super) longest: Duration,
    /// How long the longest one was waited for that was not answered.
    pub(super) unanswered: Option<Duration>,
    /// The error of the last one.
    pub(super) error: Option<CallError>,
}

/// The calls so far, and those in flight.
#[derive(Debug)]
pub(super) struct CallLog {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    calls: BTreeMap<Key, Timing>,
    in_flight: HashMap<u64, (Key, Instant)>,
    next: u64,
}

impl CallLog {
    pub(super) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            state: Mutex::default(),
        })
    }

    /// All calls until now. A call in flight counts with the time that it has taken.
    pub(super) fn calls(&self) -> BTreeMap<Key, Timing> {
        let now = self.clock.now();
        let state = self.lock();
        let mut calls = state.calls.clone();
        for (key, began) in state.in_flight.values() {
            calls
                .entry(key.clone())
                .or_default()
                .waited(now.since(*began));
        }
        calls
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn time<T>(
        &self,
        key: Key,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let in_flight = InFlight::begin(self, key);
        let result = call.await;
        in_flight.end(result.as_ref().err());
        result
    }
}

impl Timing {
    /// A call was not answered in this time.
    fn waited(&mut self, time: Duration) {
        self.longest = self.longest.max(time);
        self.unanswered = self.unanswered.max(Some(time));
    }

    fn ended(&mut self, time: Duration, error: Option<&CallError>) {
        self.ended += 1;
        self.longest = self.longest.max(time);
        self.error = error.cloned();
    }
}

/// A call in flight. One that is dropped was cancelled at its deadline.
struct InFlight<'a> {
    log: &'a CallLog,
    number: u64,
}

impl<'a> InFlight<'a> {
    fn begin(log: &'a CallLog, key: Key) -> Self {
        let now = log.clock.now();
        let mut state = log.lock();
        let number = state.next;
        state.next += 1;
        state.in_flight.insert(number, (key, now));
        Self { log, number }
    }

    fn end(self, error: Option<&CallError>) {
        self.finish(|calls, time| calls.ended(time, error));
    }

    fn finish(&self, record: impl FnOnce(&mut Timing, Duration)) {
        let now = self.log.clock.now();
        let mut state = self.log.lock();
        if let Some((key, began)) = state.in_flight.remove(&self.number) {
            record(state.calls.entry(key).or_default(), now.since(began));
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.finish(Timing::waited);
    }
}

/// A runtime whose lists and statuses are timed.
pub(super) struct Timed<R> {
    runtime: R,
    log: Arc<CallLog>,
}

impl<R> Timed<R> {
    pub(super) fn new(runtime: R, log: Arc<CallLog>) -> Self {
        Self { runtime, log }
    }
}

impl<R: Runtime> Runtime for Timed<R> {
    type Events = R::Events;

    async fn list_sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        let call = self.runtime.list_sandboxes(scope, row);
        self.log.time((LIST_SANDBOXES, scope.into()), call).await
    }

    async fn list_containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        let call = self.runtime.list_containers(scope, row);
        self.log.time((LIST_CONTAINERS, scope.into()), call).await
    }

    async fn sandbox_status(&self, id: &Id) -> Result<Report, CallError> {
        let key = (Kind::Sandbox.status_operation(), Subject::Id(id.clone()));
        self.log.time(key, self.runtime.sandbox_status(id)).await
    }

    async fn container_status(&self, id: &Id) -> Result<Report, CallError> {
        let key = (Kind::Container.status_operation(), Subject::Id(id.clone()));
        self.log.time(key, self.runtime.container_status(id)).await
    }

    fn subscribe(&self) -> impl Future<Output = Result<Self::Events, CallError>> + Send {
        self.runtime.subscribe()
    }

    fn version(&self) -> impl Future<Output = Result<RuntimeVersion, CallError>> + Send {
        self.runtime.version()
    }

    fn event_profile(&self) -> impl Future<Output = Result<EventProfile, CallError>> + Send {
        self.runtime.event_profile()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use pleg::core::CallErrorKind;

    fn key() -> Key {
        ("ContainerStatus", Subject::Id("c1".into()))
    }

    #[tokio::test(start_paused = true)]
    async fn longest_call_and_last_error_are_kept() {
        let clock = Clock::start();
        let log = CallLog::new(clock);
        let error = CallError::new("ContainerStatus", CallErrorKind::Failed, "no");
        let slow = async {
            clock
                .sleep_until(clock.now().after(Duration::from_secs(2)))
                .await;
            Ok(())
        };
        log.time(key(), slow).await.unwrap();
        let failed = async { Err::<(), _>(error.clone()) };
        log.time(key(), failed).await.unwrap_err();
        let calls = log.calls().remove(&key()).unwrap();
        assert_eq!(calls.ended, 2);
        assert_eq!(calls.longest, Duration::from_secs(2));
        assert_eq!(calls.unanswered, None);
        assert_eq!(calls.error, Some(error));
    }

    #[tokio::test(start_paused = true)]
    async fn call_that_hangs_or_is_cancelled_is_unanswered() {
        let clock = Clock::start();
        let log = CallLog::new(clock);
        let hanging = || std::future::pending::<Result<(), CallError>>();
        let deadline = Duration::from_secs(5);
        let cancelled = tokio::time::timeout(deadline, log.time(key(), hanging())).await;
        assert!(cancelled.is_err());
        assert_eq!(log.calls()[&key()].unanswered, Some(deadline));
        let mut second = Box::pin(log.time(key(), hanging()));
        assert!((&mut second).now_or_never().is_none());
        clock.sleep_until(clock.now().after(2 * deadline)).await;
        assert_eq!(log.calls()[&key()].unanswered, Some(2 * deadline));
        assert_eq!(log.calls()[&key()].ended, 0);
    }
}
