//! A runtime each of whose calls is observed: when it begins, and how it ends.

use pleg::core::{CallError, EventProfile, Id, Kind, PodUid, Report};
use pleg::runtime::{Row, Runtime, RuntimeVersion, Scope};

pub(crate) const LIST_SANDBOXES: &str = "ListPodSandbox";
pub(crate) const LIST_CONTAINERS: &str = "ListContainers";
const VERSION: &str = "Version";

/// What a call reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// All pods.
    Node,
    Pod(PodUid),
    Id(Id),
    /// The runtime itself.
    Runtime,
}

impl From<&Scope> for Subject {
    fn from(scope: &Scope) -> Self {
        match scope {
            Scope::Node => Self::Node,
            Scope::Pod(uid) => Self::Pod(uid.clone()),
        }
    }
}

/// What learns of each call. Clones share what they learn.
pub(crate) trait CallObserver: Clone + Send + Sync + 'static {
    /// A call in flight. It is dropped without an end if the call is cancelled.
    type Call: ObservedCall;

    fn begin(&self, operation: &'static str, subject: Subject) -> Self::Call;
}

/// A call in flight.
pub(crate) trait ObservedCall: Send {
    fn end(self, error: Option<&CallError>);
}

/// A runtime whose lists, statuses and `Version` are observed. The event stream is not: a subscribe only makes
/// a connection.
pub(crate) struct ObservedRuntime<R, O> {
    runtime: R,
    observer: O,
}

impl<R, O: CallObserver> ObservedRuntime<R, O> {
    pub(crate) const fn new(runtime: R, observer: O) -> Self {
        Self { runtime, observer }
    }
}

/// Observes a call.
pub(crate) async fn observe<T>(
    observer: &impl CallObserver,
    operation: &'static str,
    subject: Subject,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let observed = observer.begin(operation, subject);
    let result = call.await;
    observed.end(result.as_ref().err());
    result
}

impl<R: Runtime, O: CallObserver> Runtime for ObservedRuntime<R, O> {
    type Events = R::Events;

    async fn list_sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        let call = self.runtime.list_sandboxes(scope, row);
        observe(&self.observer, LIST_SANDBOXES, scope.into(), call).await
    }

    async fn list_containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        let call = self.runtime.list_containers(scope, row);
        observe(&self.observer, LIST_CONTAINERS, scope.into(), call).await
    }

    async fn sandbox_status(&self, id: &Id) -> Result<Report, CallError> {
        let (operation, subject) = (Kind::Sandbox.status_operation(), Subject::Id(id.clone()));
        observe(
            &self.observer,
            operation,
            subject,
            self.runtime.sandbox_status(id),
        )
        .await
    }

    async fn container_status(&self, id: &Id) -> Result<Report, CallError> {
        let (operation, subject) = (Kind::Container.status_operation(), Subject::Id(id.clone()));
        observe(
            &self.observer,
            operation,
            subject,
            self.runtime.container_status(id),
        )
        .await
    }

    fn subscribe(&self) -> impl Future<Output = Result<Self::Events, CallError>> + Send {
        self.runtime.subscribe()
    }

    fn stream_hazard(&self) -> impl Future<Output = Result<Option<String>, CallError>> + Send {
        self.runtime.stream_hazard()
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        observe(
            &self.observer,
            VERSION,
            Subject::Runtime,
            self.runtime.version(),
        )
        .await
    }

    fn event_profile(&self) -> impl Future<Output = Result<EventProfile, CallError>> + Send {
        self.runtime.event_profile()
    }
}
