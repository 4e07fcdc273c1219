//! A runtime each of whose calls is measured.

use pleg::core::{CallError, EventProfile, Id, Kind, Report};
use pleg::runtime::{Row, Runtime, RuntimeVersion, Scope};

use crate::meter::{Meter, Subject};

pub(crate) const LIST_SANDBOXES: &str = "ListPodSandbox";
pub(crate) const SANDBOX_STATUS: &str = Kind::Sandbox.status_operation();
const LIST_CONTAINERS: &str = "ListContainers";
const CONTAINER_STATUS: &str = Kind::Container.status_operation();

/// A runtime whose lists, statuses and `Version` are measured. The event stream is not: a subscribe only makes
/// a connection.
pub(crate) struct ObservedRuntime<R> {
    runtime: R,
    meter: Meter,
}

impl<R> ObservedRuntime<R> {
    pub(crate) const fn new(runtime: R, meter: Meter) -> Self {
        Self { runtime, meter }
    }
}

impl<R: Runtime> Runtime for ObservedRuntime<R> {
    type Events = R::Events;

    async fn list_sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        let call = self.runtime.list_sandboxes(scope, row);
        self.meter.measure(LIST_SANDBOXES, scope.into(), call).await
    }

    async fn list_containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        let (meter, call) = (&self.meter, self.runtime.list_containers(scope, row));
        meter.measure(LIST_CONTAINERS, scope.into(), call).await
    }

    async fn sandbox_status(&self, id: &Id) -> Result<Report, CallError> {
        let call = self.runtime.sandbox_status(id);
        self.meter.measure(SANDBOX_STATUS, id.into(), call).await
    }

    async fn container_status(&self, id: &Id) -> Result<Report, CallError> {
        let call = self.runtime.container_status(id);
        self.meter.measure(CONTAINER_STATUS, id.into(), call).await
    }

    fn subscribe(&self) -> impl Future<Output = Result<Self::Events, CallError>> + Send {
        self.runtime.subscribe()
    }

    fn stream_hazard(&self) -> impl Future<Output = Result<Option<String>, CallError>> + Send {
        self.runtime.stream_hazard()
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        let call = self.runtime.version();
        self.meter.measure("Version", Subject::Runtime, call).await
    }

    fn event_profile(&self) -> impl Future<Output = Result<EventProfile, CallError>> + Send {
        self.runtime.event_profile()
    }
}
