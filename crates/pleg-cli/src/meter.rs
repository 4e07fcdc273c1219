//! Measures a runtime's calls: durations, the time of the last answer, and, for `pleg doctor`, each call by its id.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pleg::core::{CallError, CallErrorKind, EventProfile, Id, Instant, Kind, Report, WallTime};
use pleg::runtime::clock::Clock;
use pleg::runtime::{Row, Runtime, RuntimeVersion, Scope};

use crate::view::Series;

pub(crate) const LIST_SANDBOXES: &str = "ListPodSandbox";
pub(crate) const LIST_CONTAINERS: &str = "ListContainers";
pub(crate) const SANDBOX_STATUS: &str = Kind::Sandbox.status_operation();
pub(crate) const CONTAINER_STATUS: &str = Kind::Container.status_operation();
const VERSION: &str = "Version";

/// The key of a call: the operation, and the id that it reads; for a list the uid of the pod, or empty for all pods.
pub(crate) type Key = (&'static str, String);
pub(crate) type Timings = BTreeMap<Key, Timing>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Timing {
    pub(crate) longest: Duration,
    /// The duration of the longest call that was cancelled before the runtime answered.
    pub(crate) unanswered: Option<Duration>,
}

#[derive(Clone, Debug)]
pub(crate) struct Calls {
    /// The time of the last answer; before the first answer, the time of the start.
    pub(crate) unanswered_since: Instant,
    /// The calls of complete lists.
    pub(crate) lists: Series,
    /// Calls about one pod, one container or one sandbox.
    pub(crate) reads: Series,
    /// The calls of `reads` by key, only for `pleg doctor`: the map grows with the number of ids.
    each: Option<Timings>,
}

impl Calls {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            unanswered_since: now,
            lists: Series::new(now),
            reads: Series::new(now),
            each: None,
        }
    }

    /// Records a call that has ended. `answered`: true if the runtime answered; `None` if the call was cancelled.
    pub(crate) fn ended(&mut self, key: &Key, at: Instant, took: Duration, answered: Option<bool>) {
        match (key.0, &*key.1) {
            (VERSION, _) => {}
            (_, "") => self.lists.add(at, took),
            _ => self.reads.add(at, took),
        }
        if answered == Some(true) {
            self.unanswered_since = at;
        }
        if let Some(each) = &mut self.each
            && !key.1.is_empty()
        {
            let timing = each.entry(key.clone()).or_default();
            timing.longest = timing.longest.max(took);
            if answered.is_none() {
                timing.unanswered = timing.unanswered.max(Some(took));
            }
        }
    }
}

/// The measurements of one runtime's calls. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    /// The clock that all instants in the measurements are read from.
    pub(crate) clock: Clock,
    /// The wall clock's time at the origin of `clock`, computed when the meter was created.
    pub(crate) wall_at_origin: WallTime,
    calls: Arc<Mutex<Calls>>,
}

impl Meter {
    pub(crate) fn new(clock: Clock) -> Self {
        let calls = Arc::new(Mutex::new(Calls::new(clock.now())));
        Self {
            clock,
            wall_at_origin: clock.wall_at(Instant::ORIGIN),
            calls,
        }
    }

    /// From now on, also records each call about one pod separately, under its [`Key`]. Used by `pleg doctor`.
    pub(crate) fn keep_each(&self) {
        self.calls.lock().each.get_or_insert_default();
    }

    pub(crate) fn calls(&self) -> Calls {
        self.calls.lock().clone()
    }

    /// The calls about single pods that have ended or were cancelled since [`Self::keep_each`].
    pub(crate) fn each(&self) -> Timings {
        self.calls().each.unwrap_or_default()
    }

    /// Makes a call and measures it, even if the call is cancelled.
    async fn measure<T>(
        &self,
        operation: &'static str,
        id: &str,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let key = (operation, id.to_owned());
        let mut in_flight = InFlight::new(self, key, self.clock.now(), None);
        let result = call.await;
        in_flight.answered = Some(result.as_ref().err().is_none_or(is_answer));
        result
    }
}

pub(crate) fn is_answer(error: &CallError) -> bool {
    use CallErrorKind::{Cancelled, DeadlineExceeded, PermissionDenied, Unavailable};
    ![DeadlineExceeded, Unavailable, PermissionDenied, Cancelled].contains(&error.kind)
}

/// A call in flight. It is measured when it is dropped.
#[derive(derive_more::Constructor)]
struct InFlight<'a> {
    meter: &'a Meter,
    key: Key,
    began: Instant,
    answered: Option<bool>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let now = self.meter.clock.now();
        let (took, mut calls) = (now.since(self.began), self.meter.calls.lock());
        calls.ended(&self.key, now, took, self.answered);
    }
}

/// A runtime whose lists, statuses and `Version` are measured. Subscribing is not measured: it only makes a connection.
pub(crate) struct ObservedRuntime<R> {
    pub(crate) runtime: R,
    pub(crate) meter: Meter,
}

type Rows<'a> = &'a mut (dyn FnMut(Row<'_>) + Send);

fn uid(scope: &Scope) -> &str {
    match scope {
        Scope::Node => "",
        Scope::Pod(uid) => uid.as_str(),
    }
}

impl<R: Runtime> Runtime for ObservedRuntime<R> {
    type Events = R::Events;

    async fn list_sandboxes(&self, scope: &Scope, row: Rows<'_>) -> Result<(), CallError> {
        let call = self.runtime.list_sandboxes(scope, row);
        self.meter.measure(LIST_SANDBOXES, uid(scope), call).await
    }

    async fn list_containers(&self, scope: &Scope, row: Rows<'_>) -> Result<(), CallError> {
        let call = self.runtime.list_containers(scope, row);
        self.meter.measure(LIST_CONTAINERS, uid(scope), call).await
    }

    async fn sandbox_status(&self, id: &Id) -> Result<Report, CallError> {
        let call = self.runtime.sandbox_status(id);
        self.meter.measure(SANDBOX_STATUS, id.as_str(), call).await
    }

    async fn container_status(&self, id: &Id) -> Result<Report, CallError> {
        let (call, id) = (self.runtime.container_status(id), id.as_str());
        self.meter.measure(CONTAINER_STATUS, id, call).await
    }

    fn subscribe(&self) -> impl Future<Output = Result<Self::Events, CallError>> + Send {
        self.runtime.subscribe()
    }

    fn stream_hazard(&self) -> impl Future<Output = Result<Option<String>, CallError>> + Send {
        self.runtime.stream_hazard()
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        let call = self.runtime.version();
        self.meter.measure(VERSION, "", call).await
    }

    fn event_profile(&self) -> impl Future<Output = Result<EventProfile, CallError>> + Send {
        self.runtime.event_profile()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LIST: (&str, &str) = (LIST_SANDBOXES, "");
    const STATUS: (&str, &str) = (CONTAINER_STATUS, "c1");

    /// Measures a call that takes a second, and fails if `kind` is given.
    async fn call(meter: &Meter, of: (&'static str, &str), kind: Option<CallErrorKind>) {
        let call = async {
            let clock = meter.clock;
            clock.sleep_until(clock.now().after(SECOND)).await;
            kind.map_or(Ok(()), |kind| Err(CallError::new(of.0, kind, "no")))
        };
        let _ = meter.measure(of.0, of.1, call).await;
    }

    async fn cancelled(meter: &Meter, of: (&'static str, &str)) {
        let call = call(meter, of, None);
        assert!(tokio::time::timeout(SECOND / 2, call).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_fail_or_are_cancelled_are_measured() {
        let meter = Meter::new(Clock::start());
        // The clock returns no instant twice.
        let millis = |instant: Instant| instant.as_nanos() / 1_000_000;
        let answered = || millis(meter.calls().unanswered_since);
        let now = || millis(meter.clock.now());
        let began = now();
        call(&meter, LIST, Some(CallErrorKind::Unavailable)).await;
        assert_eq!(answered(), began);
        call(&meter, (VERSION, ""), Some(CallErrorKind::NotFound)).await;
        let first = answered();
        assert_eq!(first, now(), "an error of the runtime is an answer");
        cancelled(&meter, LIST).await;
        assert_eq!(answered(), first);
        call(&meter, LIST, None).await;
        assert_eq!(answered(), now());
        let points = meter.calls().lists.points(meter.clock.now());
        let count: u64 = points.iter().map(|point| point.count).sum();
        assert_eq!(count, 3);
        assert!(meter.each().is_empty(), "only doctor keeps them");
        meter.keep_each();
        let halves = |time: Duration| (time.as_secs_f64() * 2.0).round();
        let timing = || {
            let timing = &meter.each()[&(CONTAINER_STATUS, "c1".to_owned())];
            (halves(timing.longest), timing.unanswered.map(halves))
        };
        call(&meter, STATUS, None).await;
        call(&meter, STATUS, Some(CallErrorKind::DeadlineExceeded)).await;
        assert_eq!(timing(), (2.0, None));
        cancelled(&meter, STATUS).await;
        assert_eq!(timing(), (2.0, Some(1.0)));
    }
}
