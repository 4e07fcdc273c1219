//! A runtime whose calls are measured: how long they take, and when one was answered last.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pleg::core::{CallError, CallErrorKind, EventProfile, Id, Instant, Report};
use pleg::runtime::clock::Clock;
use pleg::runtime::{Row, Runtime, RuntimeVersion, Scope};

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

    /// Measures a call, also one that is cancelled.
    async fn measure<T>(
        &self,
        about: About,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let mut measured = Measured {
            meter: self,
            about,
            began: self.clock.now(),
            answered: false,
        };
        let result = call.await;
        measured.answered = result.as_ref().map_or_else(is_answer, |_| true);
        result
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

/// A call in flight. It is counted when it ends.
struct Measured<'a> {
    meter: &'a Meter,
    about: About,
    began: Instant,
    answered: bool,
}

impl Drop for Measured<'_> {
    fn drop(&mut self) {
        let now = self.meter.clock.now();
        let mut calls = self.meter.calls();
        calls.ended(self.about, self.began, now, self.answered);
    }
}

/// A runtime whose calls are measured.
pub(crate) struct Metered<R> {
    runtime: R,
    meter: Meter,
}

impl<R> Metered<R> {
    pub(crate) const fn new(runtime: R, meter: Meter) -> Self {
        Self { runtime, meter }
    }
}

const fn about(scope: &Scope) -> About {
    match scope {
        Scope::Node => About::Node,
        Scope::Pod(_) => About::Pod,
    }
}

impl<R: Runtime> Runtime for Metered<R> {
    type Events = R::Events;

    async fn list_sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        let call = self.runtime.list_sandboxes(scope, row);
        self.meter.measure(about(scope), call).await
    }

    async fn list_containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        let call = self.runtime.list_containers(scope, row);
        self.meter.measure(about(scope), call).await
    }

    async fn sandbox_status(&self, id: &Id) -> Result<Report, CallError> {
        let call = self.runtime.sandbox_status(id);
        self.meter.measure(About::Pod, call).await
    }

    async fn container_status(&self, id: &Id) -> Result<Report, CallError> {
        let call = self.runtime.container_status(id);
        self.meter.measure(About::Pod, call).await
    }

    /// It only makes a connection, which is no answer.
    fn subscribe(&self) -> impl Future<Output = Result<Self::Events, CallError>> + Send {
        self.runtime.subscribe()
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        let call = self.runtime.version();
        self.meter.measure(About::Runtime, call).await
    }

    fn event_profile(&self) -> impl Future<Output = Result<EventProfile, CallError>> + Send {
        self.runtime.event_profile()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
        let answered = |meter: &Meter| meter.calls().unanswered_since();
        let began = clock.now();
        let failing = call(Some(CallErrorKind::Unavailable));
        assert!(meter.measure(About::Node, failing).await.is_err());
        assert_eq!(answered(&meter), began);
        let unknown = call(Some(CallErrorKind::NotFound));
        assert!(meter.measure(About::Pod, unknown).await.is_err());
        let first = answered(&meter);
        assert_eq!(first, clock.now(), "an error of the runtime is an answer");
        let cancelled = meter.measure(About::Node, call(None));
        assert!(tokio::time::timeout(SECOND / 2, cancelled).await.is_err());
        assert_eq!(answered(&meter), first);
        assert!(meter.measure(About::Node, call(None)).await.is_ok());
        assert_eq!(answered(&meter), clock.now());
        let points = meter.calls().list_points(clock.now());
        let count: u64 = points.iter().map(|point| point.count).sum();
        assert_eq!(count, 3);
    }
}
