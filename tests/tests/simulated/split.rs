//! A runtime made of two: one answers calls, the other provides the event stream. A fault of one does not
//! affect the other.

use pleg::core::{CallError, EventProfile, Id, Report};
use pleg::runtime::{Row, Runtime, RuntimeVersion, Scope};
use pleg_cri::CriRuntime;

/// Calls go to `calls`, subscribes to `events`.
#[derive(Debug)]
pub(crate) struct SplitRuntime {
    pub(crate) calls: CriRuntime,
    pub(crate) events: CriRuntime,
}

impl Runtime for SplitRuntime {
    type Events = <CriRuntime as Runtime>::Events;

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
