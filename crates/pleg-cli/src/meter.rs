//! Measures a runtime's calls: how long they take, and when one was answered last.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pleg::core::{CallError, CallErrorKind, Instant};
use pleg::runtime::clock::Clock;

use crate::runtime_calls::{CallObserver, ObservedCall, Subject};
use crate::view::{About, Calls};

/// The measurements of one runtime's calls. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    clock: Clock,
    calls: Arc<Mutex<Calls>>,
}

impl Meter {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            calls: Arc::new(Mutex::new(Calls::new(clock.now()))),
        }
    }

    /// What was measured.
    pub(crate) fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Instants of the measurements are of this clock.
    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }
}

impl CallObserver for Meter {
    type Call = Measured;

    fn begin(&self, _: &'static str, subject: Subject) -> Measured {
        let about = match subject {
            Subject::Node => About::Node,
            Subject::Pod(_) | Subject::Id(_) => About::Pod,
            Subject::Runtime => About::Runtime,
        };
        Measured {
            meter: self.clone(),
            about,
            began: self.clock.now(),
            answered: false,
        }
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

/// A call in flight. It is counted when it ends, also if it is cancelled.
pub(crate) struct Measured {
    meter: Meter,
    about: About,
    began: Instant,
    answered: bool,
}

impl ObservedCall for Measured {
    fn end(mut self, error: Option<&CallError>) {
        self.answered = error.is_none_or(is_answer);
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        let now = self.meter.clock.now();
        let mut calls = self.meter.calls();
        calls.ended(self.about, self.began, now, self.answered);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::runtime_calls::observe;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn calls_that_fail_or_are_cancelled_are_measured_too() {
        let clock = Clock::start();
        let meter = Meter::new(clock);
        let call = |kind: Option<CallErrorKind>| async move {
            clock.sleep_until(clock.now().after(SECOND)).await;
            let error = |kind| CallError::new("ListContainers", kind, "no");
            kind.map_or(Ok(()), |kind| Err(error(kind)))
        };
        // The clock returns no instant twice.
        let answered = |meter: &Meter| {
            let since = meter.calls().unanswered_since();
            since.as_nanos() / 1_000_000
        };
        let now = || clock.now().as_nanos() / 1_000_000;
        let began = now();
        let failing = call(Some(CallErrorKind::Unavailable));
        assert!(
            observe(&meter, "ListContainers", Subject::Node, failing)
                .await
                .is_err()
        );
        assert_eq!(answered(&meter), began);
        let unknown = call(Some(CallErrorKind::NotFound));
        assert!(
            observe(&meter, "ContainerStatus", Subject::Runtime, unknown)
                .await
                .is_err()
        );
        let first = answered(&meter);
        assert_eq!(first, now(), "an error of the runtime is an answer");
        let cancelled = observe(&meter, "ListContainers", Subject::Node, call(None));
        assert!(tokio::time::timeout(SECOND / 2, cancelled).await.is_err());
        assert_eq!(answered(&meter), first);
        assert!(
            observe(&meter, "ListContainers", Subject::Node, call(None))
                .await
                .is_ok()
        );
        assert_eq!(answered(&meter), now());
        let points = meter.calls().list_points(clock.now());
        let count: u64 = points.iter().map(|point| point.count).sum();
        assert_eq!(count, 3);
    }
}
