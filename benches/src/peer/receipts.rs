//! A runtime whose events are stamped as the reader receives them.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use futures::{Stream, StreamExt as _};
use pleg_core::{CallError, EventType, Id, Report, RuntimeEvent};
use pleg_runtime::clock::wall;
use pleg_runtime::{Row, Runtime, RuntimeVersion, Scope};

/// When each event was received: the wall clock's ns, by subject and type.
#[derive(Clone, Debug, Default)]
pub(super) struct Receipts(Arc<Mutex<HashMap<(Id, EventType), i64>>>);

impl Receipts {
    pub(super) fn received(&self, event: &RuntimeEvent) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (event.id.clone(), event.event);
        all.insert(key, wall().as_nanos());
    }

    pub(super) fn take(&self, id: &Id, event: EventType) -> Option<i64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&(id.clone(), event))
    }
}

/// See above. Lists go through the seam's plain methods: it is for measuring events only.
#[derive(Debug)]
pub(super) struct Stamped<R> {
    pub(super) runtime: R,
    pub(super) receipts: Receipts,
}

#[derive(Debug)]
pub(super) struct Events<E> {
    events: E,
    receipts: Receipts,
}

impl<E> Stream for Events<E>
where
    E: Stream<Item = Result<RuntimeEvent, CallError>> + Unpin,
{
    type Item = E::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<E::Item>> {
        let next = ready!(self.events.poll_next_unpin(cx));
        if let Some(Ok(event)) = &next {
            self.receipts.received(event);
        }
        Poll::Ready(next)
    }
}

impl<R: Runtime> Runtime for Stamped<R> {
    type Events = Events<R::Events>;

    async fn list_sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        self.runtime.list_sandboxes(scope, row).await
    }

    async fn list_containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        self.runtime.list_containers(scope, row).await
    }

    async fn sandbox_status(&self, id: &Id) -> Result<Report, CallError> {
        self.runtime.sandbox_status(id).await
    }

    async fn container_status(&self, id: &Id) -> Result<Report, CallError> {
        self.runtime.container_status(id).await
    }

    async fn subscribe(&self) -> Result<Self::Events, CallError> {
        Ok(Events {
            events: self.runtime.subscribe().await?,
            receipts: self.receipts.clone(),
        })
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        self.runtime.version().await
    }
}
