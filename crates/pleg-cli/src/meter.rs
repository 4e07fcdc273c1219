//! Measures a runtime's calls: how long they take, when one was answered last, and, for doctor, each by what it reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pleg::core::{CallError, CallErrorKind, Id, Instant, PodUid};
use pleg::runtime::Scope;
use pleg::runtime::clock::Clock;

use crate::view::{About, Calls};

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

impl From<&Id> for Subject {
    fn from(id: &Id) -> Self {
        Self::Id(id.clone())
    }
}

/// An operation and what it reads.
pub(crate) type Key = (&'static str, Subject);

/// All calls of one operation that read the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timing {
    /// The longest one, answered or not.
    pub(crate) longest: Duration,
    /// How long the longest one was waited for that was not answered.
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
    by_key: Option<BTreeMap<Key, Timing>>,
}

impl Meter {
    pub(crate) fn new(clock: Clock) -> Self {
        let state = State {
            calls: Calls::new(clock.now()),
            by_key: None,
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

    /// All calls that were kept, and have ended or were cancelled.
    pub(crate) fn each(&self) -> BTreeMap<Key, Timing> {
        self.lock().by_key.clone().unwrap_or_default()
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
        let mut in_flight = InFlight {
            meter: self,
            key: (operation, subject),
            began: self.clock.now(),
            answered: None,
        };
        let result = call.await;
        in_flight.answered = Some(result.as_ref().err().is_none_or(is_answer));
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

/// A call in flight. It is measured when it is dropped.
struct InFlight<'a> {
    meter: &'a Meter,
    key: Key,
    began: Instant,
    /// Whether the runtime answered it. `None` if it was cancelled.
    answered: Option<bool>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let now = self.meter.clock.now();
        let about = match self.key.1 {
            Subject::Node => About::Node,
            Subject::Pod(_) | Subject::Id(_) => About::Pod,
            Subject::Runtime => About::Runtime,
        };
        let answered = self.answered == Some(true);
        let mut state = self.meter.lock();
        state.calls.ended(about, self.began, now, answered);
        if let Some(calls) = &mut state.by_key {
            let (timing, took) = (
                calls.entry(self.key.clone()).or_default(),
                now.since(self.began),
            );
            timing.longest = timing.longest.max(took);
            if self.answered.is_none() {
                timing.unanswered = timing.unanswered.max(Some(took));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const STATUS: &str = "ContainerStatus";

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

    /// The same call, cancelled after half a second.
    async fn cancelled(meter: &Meter, subject: Subject) {
        let cancelled = tokio::time::timeout(SECOND / 2, call(meter, subject, None)).await;
        assert!(cancelled.is_err());
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
        cancelled(&meter, Subject::Node).await;
        assert_eq!(answered(), first);
        call(&meter, Subject::Node, None).await;
        assert_eq!(answered(), now());
        let points = meter.calls().list_points(meter.clock().now());
        let count: u64 = points.iter().map(|point| point.count).sum();
        assert_eq!(count, 3);
        assert!(meter.each().is_empty(), "only doctor keeps them");
    }

    #[tokio::test(start_paused = true)]
    async fn each_call_has_its_longest_time_answered_and_not() {
        let meter = Meter::new(Clock::start());
        meter.keep_each();
        let subject = || Subject::Id("c1".into());
        let halves = |time: Duration| (time.as_secs_f64() * 2.0).round();
        let timing = || {
            let timing = &meter.each()[&(STATUS, subject())];
            (halves(timing.longest), timing.unanswered.map(halves))
        };
        call(&meter, subject(), None).await;
        call(&meter, subject(), Some(CallErrorKind::DeadlineExceeded)).await;
        assert_eq!(timing(), (2.0, None));
        cancelled(&meter, subject()).await;
        assert_eq!(timing(), (2.0, Some(1.0)));
    }
}
