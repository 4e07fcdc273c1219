//! A runtime made of two: one answers calls, the other provides the event stream. A fault of one does not
//! affect the other.

use pleg::core::{CallError, EventProfile, Id, Report};
use pleg::runtime::{Row, Runtime, RuntimeVersion, Scope};

/// Calls go to `calls`, subscribes to `events`.
#[derive(Debug)]
pub struct SplitRuntime<C, E> {
    /// Answers lists and statuses.
    pub calls: C,
    /// Provides the event stream.
    pub events: E,
}

impl<C: Runtime, E: Runtime> Runtime for SplitRuntime<C, E> {
    type Events = E::Events;

    async fn list_sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        self.calls.list_sandboxes(scope, row).await
    }

    async fn list_containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        self.calls.list_containers(scope, row).await
    }

    async fn sandbox_status(&self, id: &Id) -> Result<Report, CallError> {
        self.calls.sandbox_status(id).await
    }

    async fn container_status(&self, id: &Id) -> Result<Report, CallError> {
        self.calls.container_status(id).await
    }

    async fn subscribe(&self) -> Result<Self::Events, CallError> {
        self.events.subscribe().await
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        self.calls.version().await
    }

    async fn event_profile(&self) -> Result<EventProfile, CallError> {
        self.calls.event_profile().await
    }
}
