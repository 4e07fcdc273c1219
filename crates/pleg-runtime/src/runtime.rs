//! The trait that a container runtime implements.

use std::future::Future;
use std::sync::Arc;

use futures::Stream;
use pleg_core::{CallError, EventProfile, Id, PodUid, Report, RuntimeEvent};

use crate::row::Row;

/// The rows that a list returns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All rows of the node.
    Node,
    /// Rows whose pod-uid label is this uid.
    Pod(PodUid),
}

/// The answer to `Version`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct RuntimeVersion {
    /// The runtime's name, for example `containerd`.
    pub name: String,
    /// The runtime's version, for example `1.7.24`.
    pub version: String,
    /// The version of the CRI that the runtime implements.
    pub api: String,
}

impl RuntimeVersion {
    /// A runtime that implements CRI `v1`.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            api: "v1".to_owned(),
        }
    }
}

/// The calls of a container runtime that a pod lifecycle event generator needs.
///
/// Every call must end by itself: an implementation that makes remote calls sets a deadline on
/// each. (The callers also have deadlines, and drop a call that exceeds one.) Every future may be
/// dropped at any time.
pub trait Runtime: Send + Sync + 'static {
    /// The event stream of [`Runtime::subscribe`].
    type Events: Stream<Item = Result<RuntimeEvent, CallError>> + Send + Unpin + 'static;

    /// Passes every sandbox in `scope` to `row`, one by one.
    ///
    /// # Errors
    /// If the list is not complete. Then the caller must ignore the rows that it has got.
    fn list_sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> impl Future<Output = Result<(), CallError>> + Send;

    /// Passes every container in `scope` to `row`, one by one.
    ///
    /// # Errors
    /// If the list is not complete. Then the caller must ignore the rows that it has got.
    fn list_containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> impl Future<Output = Result<(), CallError>> + Send;

    /// The status of one sandbox. May leave out labels and annotations, which the rows of lists contain.
    ///
    /// # Errors
    /// `NotFound` if the id does not exist; any other failure of the call.
    fn sandbox_status(&self, id: &Id) -> impl Future<Output = Result<Report, CallError>> + Send;

    /// The status of one container. May leave out labels and annotations, which the rows of lists contain.
    ///
    /// # Errors
    /// `NotFound` if the id does not exist; any other failure of the call.
    fn container_status(&self, id: &Id) -> impl Future<Output = Result<Report, CallError>> + Send;

    /// Connects and prepares the event stream. The call `GetContainerEvents` is issued when the stream is first polled.
    ///
    /// This method must not wait for the runtime's response: runtimes send the response headers with the
    /// first event, so on a quiet node that can take hours.
    ///
    /// The stream ends with `None`: after an error item, or without one if the runtime ended the call with OK.
    ///
    /// # Errors
    /// If no connection can be made; no call was issued then. With the error
    /// [`Unimplemented`](pleg_core::CallErrorKind::Unimplemented) the implementation declines to subscribe: the
    /// generator polls, which adds no reason to `Health::degraded`, and tries again after a minute.
    fn subscribe(&self) -> impl Future<Output = Result<Self::Events, CallError>> + Send;

    /// The reason why a subscription may harm the runtime or another subscriber, if any. In
    /// [`Mode::Auto`](pleg_core::Mode::Auto) the generator polls while there is a reason. It calls this method
    /// before each subscribe call, and every minute while a stream is open. By default `None`.
    ///
    /// # Errors
    /// Any failure of a call that this method makes.
    fn stream_hazard(&self) -> impl Future<Output = Result<Option<String>, CallError>> + Send {
        std::future::ready(Ok(None))
    }

    /// The name and version of the runtime. The call is also the cheapest check that the runtime answers.
    ///
    /// # Errors
    /// Any failure of the call.
    fn version(&self) -> impl Future<Output = Result<RuntimeVersion, CallError>> + Send;

    /// The behavior of this runtime's event stream. The generator calls this method after each subscribe call, and
    /// after each complete list of the node until the method has succeeded. By default [`EventProfile::UNKNOWN`].
    ///
    /// # Errors
    /// Any failure of a call that this method makes.
    fn event_profile(&self) -> impl Future<Output = Result<EventProfile, CallError>> + Send {
        std::future::ready(Ok(EventProfile::UNKNOWN))
    }
}

/// A runtime that several owners share.
impl<R: Runtime> Runtime for Arc<R> {
    type Events = R::Events;

    fn list_sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> impl Future<Output = Result<(), CallError>> + Send {
        R::list_sandboxes(self, scope, row)
    }

    fn list_containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> impl Future<Output = Result<(), CallError>> + Send {
        R::list_containers(self, scope, row)
    }

    fn sandbox_status(&self, id: &Id) -> impl Future<Output = Result<Report, CallError>> + Send {
        R::sandbox_status(self, id)
    }

    fn container_status(&self, id: &Id) -> impl Future<Output = Result<Report, CallError>> + Send {
        R::container_status(self, id)
    }

    fn subscribe(&self) -> impl Future<Output = Result<Self::Events, CallError>> + Send {
        R::subscribe(self)
    }

    fn stream_hazard(&self) -> impl Future<Output = Result<Option<String>, CallError>> + Send {
        R::stream_hazard(self)
    }

    fn version(&self) -> impl Future<Output = Result<RuntimeVersion, CallError>> + Send {
        R::version(self)
    }

    fn event_profile(&self) -> impl Future<Output = Result<EventProfile, CallError>> + Send {
        R::event_profile(self)
    }
}
