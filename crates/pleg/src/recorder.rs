//! Sets the recorder of one generator's metrics, so that a process can tell the metrics of several generators apart.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::metrics::{
    Counter, Gauge, Histogram, Key, KeyName, Label, Metadata, Recorder, SharedString, Unit,
    with_local_recorder, with_recorder,
};
use futures::future::Either;

/// A function that calls its argument once, usually while a local recorder is set: see [`crate::Builder::metrics`].
type Scope = dyn Fn(&mut dyn FnMut()) + Send + Sync;

/// Records the metrics of a generator with the recorder that `scope` sets; without a scope, with the global recorder.
///
/// `pleg-cri` records metrics in the tasks of the generator, and a thread has only one local recorder at a time. So
/// each task sets the recorder of its generator whenever it runs.
#[derive(Clone, Default)]
pub(crate) struct Metrics {
    /// The label `name`.
    pub(crate) name: Option<Arc<str>>,
    pub(crate) scope: Option<Arc<Scope>>,
}

impl Metrics {
    /// Runs `work`, and records its metrics.
    pub(crate) fn record(&self, work: &mut dyn FnMut()) {
        let is_done = Cell::new(false);
        let mut work = || {
            is_done.set(true);
            match &self.name {
                Some(name) => {
                    with_recorder(|to| with_local_recorder(&Named { name, to }, &mut *work));
                }
                None => work(),
            }
        };
        if let Some(scope) = &self.scope {
            scope(&mut work);
        }
        if !is_done.get() {
            work();
        }
    }

    /// Returns a future that runs `work` and records its metrics, including those from the drop of `work`.
    pub(crate) fn of<F: Future>(&self, work: F) -> impl Future<Output = F::Output> + use<F> {
        if self.name.is_none() && self.scope.is_none() {
            return Either::Left(work);
        }
        Either::Right(Recorded {
            metrics: self.clone(),
            work: Some(Box::pin(work)),
        })
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Metrics").field(&self.name).finish()
    }
}

/// A future that sets the generator's recorder while it runs and while it is dropped.
struct Recorded<F> {
    metrics: Metrics,
    work: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for Recorded<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { metrics, work } = &mut *self;
        let mut polled = Poll::Pending;
        if let Some(work) = work {
            metrics.record(&mut || {
                if polled.is_pending() {
                    polled = work.as_mut().poll(cx);
                }
            });
        }
        polled
    }
}

impl<F> Drop for Recorded<F> {
    fn drop(&mut self) {
        // Dropping `work` may cancel a call, and a cancelled call also records metrics.
        let mut work = self.work.take();
        self.metrics.record(&mut || drop(work.take()));
    }
}

/// A recorder that adds the label `name` and forwards to another recorder.
struct Named<'a> {
    name: &'a Arc<str>,
    to: &'a dyn Recorder,
}

impl Named<'_> {
    fn key(&self, key: &Key) -> Key {
        key.with_extra_labels(vec![Label::new("name", self.name.clone())])
    }
}

impl Recorder for Named<'_> {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.to.describe_counter(key, unit, text);
    }

    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.to.describe_gauge(key, unit, text);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.to.describe_histogram(key, unit, text);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.to.register_counter(&self.key(key), metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.to.register_gauge(&self.key(key), metadata)
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.to.register_histogram(&self.key(key), metadata)
    }
}
