//! Measures a runtime's calls: durations, the time of the last answer, and, for `pleg doctor`, each call by its id.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pleg::core::{CallError, CallErrorKind, EventProfile, Id, Instant, Kind, Report};
use pleg::runtime::clock::Clock;
use pleg::runtime::{Row, Runtime, RuntimeVersion, Scope};

use crate::view::Calls;

pub(crate) const LIST_SANDBOXES: &str = "ListPodSandbox";
pub(crate) const LIST_CONTAINERS: &str = "ListContainers";
pub(crate) const SANDBOX_STATUS: &str = Kind::Sandbox.status_operation();
pub(crate) const CONTAINER_STATUS: &str = Kind::Container.status_operation();

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// All pods: a complete list.
    Node,
    /// One pod, one container or one sandbox.
    Pod,
    /// The runtime: `Version`.
    Runtime,
}

/// The key of a call about one pod: the operation, and the id that it reads (of a list: the uid of the pod).
pub(crate) type Key = (&'static str, String);
pub(crate) type Timings = BTreeMap<Key, Timing>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Timing {
    pub(crate) longest: Duration,
    /// The longest wait for a call that was not answered.
    pub(crate) unanswered: Option<Duration>,
}

/// The measurements of one runtime's calls. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    clock: Clock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    calls: Calls,
    /// Kept only for doctor: it grows with the number of ids.
    by_key: Option<Timings>,
}

impl Meter {
    pub(crate) fn new(clock: Clock) -> Self {
        let (calls, by_key) = (Calls::new(clock.now()), None);
        let state = Arc::new(Mutex::new(State { calls, by_key }));
        Self { clock, state }
    }

    /// From now on, keeps the time of each call about one pod, by the operation and the id that it reads.
    pub(crate) fn keep_each(&self) {
        self.state.lock().by_key.get_or_insert_default();
    }

    pub(crate) fn calls(&self) -> Calls {
        self.state.lock().calls.clone()
    }

    /// All calls that were kept, and have ended or were cancelled.
    pub(crate) fn each(&self) -> Timings {
        self.state.lock().by_key.clone().unwrap_or_default()
    }

    /// Instants of the measurements are of this clock.
    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }

    /// Measures a call, also one that is cancelled.
    async fn measure<T>(
        &self,
        operation: &'static str,
        (about, id): (About, &str),
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let mut in_flight = InFlight {
            meter: self,
            about,
            key: (operation, id.to_owned()),
            began: self.clock.now(),
            answered: None,
        };
        let result = call.await;
        in_flight.answered = Some(result.as_ref().err().is_none_or(is_answer));
        result
    }
}

fn is_answer(error: &CallError) -> bool {
    use CallErrorKind::{Cancelled, DeadlineExceeded, PermissionDenied, Unavailable};
    ![DeadlineExceeded, Unavailable, PermissionDenied, Cancelled].contains(&error.kind)
}

/// A call in flight. It is measured when it is dropped.
struct InFlight<'a> {
    meter: &'a Meter,
    about: About,
    key: Key,
    began: Instant,
    /// Whether the runtime answered the call. `None` if the call was cancelled.
    answered: Option<bool>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let now = self.meter.clock.now();
        let answered = self.answered == Some(true);
        let mut state = self.meter.state.lock();
        state.calls.ended(self.about, self.began, now, answered);
        if let Some(calls) = &mut state.by_key
            && self.about == About::Pod
        {
            let took = now.since(self.began);
            let timing = calls.entry(self.key.clone()).or_default();
            timing.longest = timing.longest.max(took);
            if self.answered.is_none() {
                timing.unanswered = timing.unanswered.max(Some(took));
            }
        }
    }
}

/// A runtime whose lists, statuses and `Version` are measured. A subscribe is not: it only makes a connection.
pub(crate) struct ObservedRuntime<R> {
    pub(crate) runtime: R,
    pub(crate) meter: Meter,
}

type Rows<'a> = &'a mut (dyn FnMut(Row<'_>) + Send);

fn of(scope: &Scope) -> (About, &str) {
    match scope {
        Scope::Node => (About::Node, ""),
        Scope::Pod(uid) => (About::Pod, uid.as_str()),
    }
}

impl<R: Runtime> Runtime for ObservedRuntime<R> {
    type Events = R::Events;

    async fn list_sandboxes(&self, scope: &Scope, row: Rows<'_>) -> Result<(), CallError> {
        let call = self.runtime.list_sandboxes(scope, row);
        self.meter.measure(LIST_SANDBOXES, of(scope), call).await
    }

    async fn list_containers(&self, scope: &Scope, row: Rows<'_>) -> Result<(), CallError> {
        let call = self.runtime.list_containers(scope, row);
        self.meter.measure(LIST_CONTAINERS, of(scope), call).await
    }

    async fn sandbox_status(&self, id: &Id) -> Result<Report, CallError> {
        let (of, call) = ((About::Pod, id.as_str()), self.runtime.sandbox_status(id));
        self.meter.measure(SANDBOX_STATUS, of, call).await
    }

    async fn container_status(&self, id: &Id) -> Result<Report, CallError> {
        let (of, call) = ((About::Pod, id.as_str()), self.runtime.container_status(id));
        self.meter.measure(CONTAINER_STATUS, of, call).await
    }

    fn subscribe(&self) -> impl Future<Output = Result<Self::Events, CallError>> + Send {
        self.runtime.subscribe()
    }

    fn stream_hazard(&self) -> impl Future<Output = Result<Option<String>, CallError>> + Send {
        self.runtime.stream_hazard()
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        let (of, call) = ((About::Runtime, ""), self.runtime.version());
        self.meter.measure("Version", of, call).await
    }

    fn event_profile(&self) -> impl Future<Output = Result<EventProfile, CallError>> + Send {
        self.runtime.event_profile()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const STATUS: &str = "ContainerStatus";

    /// A call that takes a second, and fails if `kind` is given.
    async fn call(meter: &Meter, about: About, kind: Option<CallErrorKind>) {
        let call = async {
            let clock = meter.clock();
            clock.sleep_until(clock.now().after(SECOND)).await;
            kind.map_or(Ok(()), |kind| Err(CallError::new(STATUS, kind, "no")))
        };
        // Its error is what is measured.
        let _ = meter.measure(STATUS, (about, "c1"), call).await;
    }

    /// The same call, cancelled after half a second.
    async fn cancelled(meter: &Meter, about: About) {
        assert!(
            tokio::time::timeout(SECOND / 2, call(meter, about, None))
                .await
                .is_err()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_fail_or_are_cancelled_are_measured_too() {
        let meter = Meter::new(Clock::start());
        // The clock returns no instant twice.
        let millis = |instant: Instant| instant.as_nanos() / 1_000_000;
        let answered = || millis(meter.calls().unanswered_since);
        let now = || millis(meter.clock().now());
        let began = now();
        call(&meter, About::Node, Some(CallErrorKind::Unavailable)).await;
        assert_eq!(answered(), began);
        call(&meter, About::Runtime, Some(CallErrorKind::NotFound)).await;
        let first = answered();
        assert_eq!(first, now(), "an error of the runtime is an answer");
        cancelled(&meter, About::Node).await;
        assert_eq!(answered(), first);
        call(&meter, About::Node, None).await;
        assert_eq!(answered(), now());
        let points = meter.calls().lists.points(meter.clock().now());
        let count: u64 = points.iter().map(|point| point.count).sum();
        assert_eq!(count, 3);
        assert!(meter.each().is_empty(), "only doctor keeps them");
    }

    #[tokio::test(start_paused = true)]
    async fn longest_answered_and_unanswered_time_of_each_call_is_measured() {
        let meter = Meter::new(Clock::start());
        meter.keep_each();
        let halves = |time: Duration| (time.as_secs_f64() * 2.0).round();
        let timing = || {
            let timing = &meter.each()[&(STATUS, "c1".to_owned())];
            (halves(timing.longest), timing.unanswered.map(halves))
        };
        call(&meter, About::Pod, None).await;
        call(&meter, About::Pod, Some(CallErrorKind::DeadlineExceeded)).await;
        assert_eq!(timing(), (2.0, None));
        cancelled(&meter, About::Pod).await;
        assert_eq!(timing(), (2.0, Some(1.0)));
    }
}
