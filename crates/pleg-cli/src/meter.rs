//! Measures a runtime's calls: how long they take, when one was answered last, and, for doctor, each by what it reads.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pleg::core::{CallError, CallErrorKind, Id, Instant, PodUid};
use pleg::runtime::Scope;
use pleg::runtime::clock::Clock;

use crate::view::Calls;

/// What a call reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// All pods.
    Node,
    Pod(PodUid),
    Id(Id),
    /// The runtime itself.
    Runtime,
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
pub(crate) type Key = (&'static str, Subject);

/// All calls of one operation that read the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timing {
    pub(crate) ended: u64,
    /// The longest one, answered or not.
    pub(crate) longest: Duration,
    /// How long the longest one was waited for that was not answered.
    pub(crate) unanswered: Option<Duration>,
    /// The error of the last one.
    pub(crate) error: Option<CallError>,
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
    by_key: Option<BTreeMap<Key, Timing>>,
    in_flight: HashMap<u64, (Key, Instant)>,
    next: u64,
}

impl Meter {
    pub(crate) fn new(clock: Clock) -> Self {
        let state = State {
            calls: Calls::new(clock.now()),
            by_key: None,
            in_flight: HashMap::new(),
            next: 0,
        };
        Self {
            clock,
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// From now on, each call is kept by what it reads.
    pub(crate) fn keep_each(&self) {
        self.lock().by_key.get_or_insert_default();
    }

    /// What was measured.
    pub(crate) fn calls(&self) -> Calls {
        self.lock().calls.clone()
    }

    /// All calls that were kept. A call in flight counts with the time that it has taken.
    pub(crate) fn each(&self) -> BTreeMap<Key, Timing> {
        let now = self.clock.now();
        let state = self.lock();
        let mut calls = state.by_key.clone().unwrap_or_default();
        for (key, began) in state.in_flight.values() {
            let timing = calls.entry(key.clone()).or_default();
            timing.waited(now.since(*began));
        }
        calls
    }

    /// Instants of the measurements are of this clock.
    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }

    /// Measures a call, also one that is cancelled.
    pub(crate) async fn measure<T>(
        &self,
        operation: &'static str,
        subject: Subject,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let in_flight = self.begin((operation, subject));
        let result = call.await;
        in_flight.end(result.as_ref().err());
        result
    }

    fn begin(&self, key: Key) -> InFlight {
        let now = self.clock.now();
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.in_flight.insert(number, (key, now));
        InFlight {
            meter: self.clone(),
            number,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Whether this error is an answer of the runtime.
const fn is_answer(error: &CallError) -> bool {
    !matches!(
        error.kind,
        CallErrorKind::DeadlineExceeded
            | CallErrorKind::Unavailable
            | CallErrorKind::PermissionDenied
            | CallErrorKind::Cancelled
    )
}

/// A call in flight. One that is dropped was cancelled.
struct InFlight {
    meter: Meter,
    number: u64,
}

impl InFlight {
    fn end(self, error: Option<&CallError>) {
        let answered = error.is_none_or(is_answer);
        self.finish(answered, |timing, time| timing.ended(time, error));
    }

    fn finish(&self, answered: bool, record: impl FnOnce(&mut Timing, Duration)) {
        let now = self.meter.clock.now();
        let mut state = self.meter.lock();
        let Some((key, began)) = state.in_flight.remove(&self.number) else {
            return;
        };
        state.calls.ended(&key.1, began, now, answered);
        if let Some(calls) = &mut state.by_key {
            record(calls.entry(key).or_default(), now.since(began));
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.finish(false, Timing::waited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const STATUS: &str = "ContainerStatus";

    fn subject() -> Subject {
        Subject::Id("c1".into())
    }

    /// A call that takes a second, and fails with this kind.
    async fn call(meter: &Meter, subject: Subject, kind: Option<CallErrorKind>) {
        let call = async {
            let clock = meter.clock();
            clock.sleep_until(clock.now().after(SECOND)).await;
            kind.map_or(Ok(()), |kind| Err(CallError::new(STATUS, kind, "no")))
        };
        // Its error is what is measured.
        let _ = meter.measure(STATUS, subject, call).await;
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_fail_or_are_cancelled_are_measured_too() {
        let meter = Meter::new(Clock::start());
        // The clock returns no instant twice.
        let millis = |instant: Instant| instant.as_nanos() / 1_000_000;
        let answered = || millis(meter.calls().unanswered_since());
        let now = || millis(meter.clock().now());
        let began = now();
        call(&meter, Subject::Node, Some(CallErrorKind::Unavailable)).await;
        assert_eq!(answered(), began);
        call(&meter, Subject::Runtime, Some(CallErrorKind::NotFound)).await;
        let first = answered();
        assert_eq!(first, now(), "an error of the runtime is an answer");
        let cancelled = call(&meter, Subject::Node, None);
        assert!(tokio::time::timeout(SECOND / 2, cancelled).await.is_err());
        assert_eq!(answered(), first);
        call(&meter, Subject::Node, None).await;
        assert_eq!(answered(), now());
        let points = meter.calls().lists.points(meter.clock().now());
        let count: u64 = points.iter().map(|point| point.count).sum();
        assert_eq!(count, 3);
        assert!(meter.each().is_empty(), "only doctor keeps them");
    }

    #[tokio::test(start_paused = true)]
    async fn each_call_has_its_longest_time_and_last_error() {
        let meter = Meter::new(Clock::start());
        meter.keep_each();
        let timing = || meter.each()[&(STATUS, subject())].clone();
        call(&meter, subject(), None).await;
        call(&meter, subject(), Some(CallErrorKind::Failed)).await;
        let two = timing();
        assert_eq!(
            (two.ended, two.longest.as_secs(), two.unanswered),
            (2, 1, None)
        );
        assert!(two.error.is_some());
        let cancelled = call(&meter, subject(), None);
        assert!(tokio::time::timeout(SECOND / 2, cancelled).await.is_err());
        let half = timing()
            .unanswered
            .map(|time| (time.as_secs_f64() * 2.0).round());
        assert_eq!(half, Some(1.0));
        let _hangs = meter.begin((STATUS, subject()));
        let clock = meter.clock();
        clock.sleep_until(clock.now().after(9 * SECOND)).await;
        assert_eq!(timing().unanswered.map(|time| time.as_secs()), Some(9));
        assert_eq!(timing().ended, 2);
    }
}
