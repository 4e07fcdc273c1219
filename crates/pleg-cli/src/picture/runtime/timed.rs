//! Times the calls that a generator makes: doctor examines those that are made anyway.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pleg::core::{CallError, Instant};
use pleg::runtime::clock::Clock;

use crate::runtime_calls::{CallObserver, ObservedCall, Subject};

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
}

impl CallObserver for Arc<CallLog> {
    type Call = InFlight;

    fn begin(&self, operation: &'static str, subject: Subject) -> InFlight {
        let now = self.clock.now();
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.in_flight.insert(number, ((operation, subject), now));
        drop(state);
        InFlight {
            log: self.clone(),
            number,
        }
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
pub(super) struct InFlight {
    log: Arc<CallLog>,
    number: u64,
}

impl ObservedCall for InFlight {
    fn end(self, error: Option<&CallError>) {
        self.finish(|calls, time| calls.ended(time, error));
    }
}

impl InFlight {
    fn finish(&self, record: impl FnOnce(&mut Timing, Duration)) {
        let now = self.log.clock.now();
        let mut state = self.log.lock();
        if let Some((key, began)) = state.in_flight.remove(&self.number) {
            record(state.calls.entry(key).or_default(), now.since(began));
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.finish(Timing::waited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime_calls::observe;
    use futures::FutureExt as _;
    use pleg::core::CallErrorKind;

    fn subject() -> Subject {
        Subject::Id("c1".into())
    }

    fn key() -> Key {
        ("ContainerStatus", subject())
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
        observe(&log, "ContainerStatus", subject(), slow)
            .await
            .unwrap();
        let failed = async { Err::<(), _>(error.clone()) };
        observe(&log, "ContainerStatus", subject(), failed)
            .await
            .unwrap_err();
        let calls = log.calls().remove(&key()).unwrap();
        assert_eq!(calls.ended, 2);
        assert_eq!(calls.longest.as_secs(), 2);
        assert_eq!(calls.unanswered, None);
        assert_eq!(calls.error, Some(error));
    }

    #[tokio::test(start_paused = true)]
    async fn call_that_hangs_or_is_cancelled_is_unanswered() {
        let clock = Clock::start();
        let log = CallLog::new(clock);
        let hanging = || std::future::pending::<Result<(), CallError>>();
        let deadline = Duration::from_secs(5);
        let cancelled = tokio::time::timeout(
            deadline,
            observe(&log, "ContainerStatus", subject(), hanging()),
        )
        .await;
        assert!(cancelled.is_err());
        let unanswered = || log.calls()[&key()].unanswered.map(|time| time.as_secs());
        assert_eq!(unanswered(), Some(5));
        let mut second = Box::pin(observe(&log, "ContainerStatus", subject(), hanging()));
        assert!((&mut second).now_or_never().is_none());
        clock.sleep_until(clock.now().after(2 * deadline)).await;
        assert_eq!(unanswered(), Some(10));
        assert_eq!(log.calls()[&key()].ended, 0);
    }
}
