//! A runtime whose event stream is passed through a function.

use std::fmt;

use futures::Stream;
use pleg_core::{CallError, EventProfile, Id, Report, RuntimeEvent};
use pleg_runtime::{Row, Runtime, RuntimeVersion, Scope};

/// A runtime whose calls go to another runtime, and whose event stream is what a function makes of
/// the other's.
pub(super) struct MapEvents<R, F> {
    runtime: R,
    map: F,
}

impl<R, F> MapEvents<R, F> {
    /// Passes each event stream of `runtime` through `map`.
    pub(super) const fn new(runtime: R, map: F) -> Self {
        Self { runtime, map }
    }
}

impl<R: fmt::Debug, F> fmt::Debug for MapEvents<R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapEvents")
            .field("runtime", &self.runtime)
            .finish_non_exhaustive()
    }
}

impl<R, F, S> Runtime for MapEvents<R, F>
where
    R: Runtime,
    F: Fn(R::Events) -> S + Send + Sync + 'static,
    S: Stream<Item = Result<RuntimeEvent, CallError>> + Send + Unpin + 'static,
{
    type Events = S;

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

    async fn subscribe(&self) -> Result<S, CallError> {
        self.runtime.subscribe().await.map(&self.map)
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        self.runtime.version().await
    }

    async fn event_profile(&self) -> Result<EventProfile, CallError> {
        self.runtime.event_profile().await
    }
}
