//! A runtime whose event stream is not always read: what a reader does to its runtime that waits
//! for its consumer. It is the counter-example to law 8, for tests that must be able to fail.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use pleg::core::{CallError, EventProfile, Id, Report};
use pleg::runtime::{Row, Runtime, RuntimeVersion, Scope};
use tokio::sync::watch;

/// Reads events only while the switch is on.
#[derive(Debug)]
pub struct Undrained<R> {
    inner: R,
    reads: watch::Receiver<bool>,
}

impl<R> Undrained<R> {
    /// Reads on while `reads` shows true.
    pub const fn new(inner: R, reads: watch::Receiver<bool>) -> Self {
        Self { inner, reads }
    }
}

impl<R: Runtime> Runtime for Undrained<R> {
    type Events = UndrainedEvents<R::Events>;

    async fn list_sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        self.inner.list_sandboxes(scope, row).await
    }

    async fn list_containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        self.inner.list_containers(scope, row).await
    }

    async fn sandbox_status(&self, id: &Id) -> Result<Report, CallError> {
        self.inner.sandbox_status(id).await
    }

    async fn container_status(&self, id: &Id) -> Result<Report, CallError> {
        self.inner.container_status(id).await
    }

    async fn subscribe(&self) -> Result<Self::Events, CallError> {
        let reads = self.reads.clone();
        Ok(UndrainedEvents {
            inner: self.inner.subscribe().await?,
            turned: turned(reads.clone()),
            reads,
        })
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        self.inner.version().await
    }

    async fn event_profile(&self) -> Result<EventProfile, CallError> {
        self.inner.event_profile().await
    }
}

type Turned = futures::future::BoxFuture<'static, ()>;

fn turned(mut reads: watch::Receiver<bool>) -> Turned {
    Box::pin(async move {
        if reads.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}

/// The event stream of an [`Undrained`].
pub struct UndrainedEvents<S> {
    inner: S,
    reads: watch::Receiver<bool>,
    turned: Turned,
}

impl<S> std::fmt::Debug for UndrainedEvents<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UndrainedEvents").finish_non_exhaustive()
    }
}

impl<S: Stream + Unpin> Stream for UndrainedEvents<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        while self.turned.as_mut().poll(cx).is_ready() {
            self.reads.mark_unchanged();
            self.turned = turned(self.reads.clone());
        }
        if *self.reads.borrow() {
            Pin::new(&mut self.inner).poll_next(cx)
        } else {
            Poll::Pending
        }
    }
}
