//! The recorder of one generator's metrics: several generators in one process need not share one.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::metrics::{Recorder, with_local_recorder};
use futures::future::Either;

/// A recorder that threads can share.
pub type SharedRecorder = Arc<dyn Recorder + Send + Sync>;

/// Where the metrics of a generator go: its own recorder, or otherwise the global one.
///
/// Metrics are recorded where the work is done, also by `pleg-evented`, `pleg-generic` and
/// `pleg-cri`, and a thread has one local recorder at a time. So each task of the generator sets it
/// whenever it runs.
#[derive(Clone, Default)]
pub(crate) struct Metrics(Option<SharedRecorder>);

impl Metrics {
    pub(crate) fn to(recorder: SharedRecorder) -> Self {
        Self(Some(recorder))
    }

    /// Runs `act`, and records its metrics.
    pub(crate) fn record<T>(&self, act: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(recorder) => with_local_recorder(&**recorder, act),
            None => act(),
        }
    }

    /// The same future, whose metrics are recorded, also those of its drop.
    pub(crate) fn of<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        match &self.0 {
            Some(recorder) => Either::Right(Recorded {
                recorder: recorder.clone(),
                work: Some(Box::pin(work)),
            }),
            None => Either::Left(work),
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let recorder = self.0.as_ref().map_or("global", |_| "own");
        f.debug_tuple("Metrics").field(&recorder).finish()
    }
}

/// A future that runs with a local recorder.
struct Recorded<F> {
    recorder: SharedRecorder,
    work: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Recorded<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        match &mut this.work {
            Some(work) => with_local_recorder(&*this.recorder, || work.as_mut().poll(cx)),
            None => Poll::Pending,
        }
    }
}

impl<F> Drop for Recorded<F> {
    fn drop(&mut self) {
        // A call that is cancelled also counts.
        let work = self.work.take();
        with_local_recorder(&*self.recorder, || drop(work));
    }
}
