//! The trait that a container runtime implements.

use std::future::Future;

use futures::Stream;
use pleg_core::{CallError, EventProfile, Id, PodUid, Report, RuntimeEvent};

use crate::row::Row;

/// Which rows a list shall show.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All of the node.
    Node,
    /// Those whose pod-uid label names the pod.
    Pod(PodUid),
}

/// What a runtime says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RuntimeVersion {
    /// Its name, for example `containerd`.
    pub name: String,
    /// Its version, for example `1.7.24`.
    pub version: String,
    /// The version of the CRI that it speaks.
    pub api: String,
}

/// A container runtime, as far as a pod lifecycle event generator needs it.
///
/// Every call must end by itself: an implementation that talks to somebody else has a deadline of
/// its own (the callers have theirs too, and drop a call that is over it). Every future may be
/// dropped at any time.
pub trait Runtime: Send + Sync + 'static {
    /// The event stream of [`Runtime::subscribe`].
    type Events: Stream<Item = Result<RuntimeEvent, CallError>> + Send + Unpin + 'static;

    /// Hands over every sandbox in `scope`, one by one.
    ///
    /// # Errors
    /// If the list is not complete; rows handed over before that are worth nothing (invariant 5).
    fn list_sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> impl Future<Output = Result<(), CallError>> + Send;

    /// Hands over every container in `scope`, one by one.
    ///
    /// # Errors
    /// If the list is not complete; rows handed over before that are worth nothing (invariant 5).
    fn list_containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> impl Future<Output = Result<(), CallError>> + Send;

    /// The status of one sandbox.
    ///
    /// # Errors
    /// `NotFound` if there is none of this id; any other failure of the call.
    fn sandbox_status(&self, id: &Id) -> impl Future<Output = Result<Report, CallError>> + Send;

    /// The status of one container.
    ///
    /// # Errors
    /// `NotFound` if there is none of this id; any other failure of the call.
    fn container_status(&self, id: &Id) -> impl Future<Output = Result<Report, CallError>> + Send;

    /// Connects and prepares the event stream; the call itself is issued when the stream is
    /// polled for the first time.
    ///
    /// It must not wait for the runtime's answer: runtimes withhold the response headers until
    /// the first event, so on a quiet node that answer comes after hours.
    ///
    /// The stream ends with `None` if the runtime ended it in good order, and after an error.
    ///
    /// # Errors
    /// If no connection can be had: nothing was issued.
    fn subscribe(&self) -> impl Future<Output = Result<Self::Events, CallError>> + Send;

    /// What the runtime says of itself; also the cheapest sign of life.
    ///
    /// # Errors
    /// Any failure of the call.
    fn version(&self) -> impl Future<Output = Result<RuntimeVersion, CallError>> + Send;

    /// What can be expected of this runtime's event stream. Asked for after each subscribe. By
    /// default that of an unknown runtime.
    ///
    /// # Errors
    /// Any failure of a call that this makes.
    fn event_profile(&self) -> impl Future<Output = Result<EventProfile, CallError>> + Send {
        std::future::ready(Ok(EventProfile::UNKNOWN))
    }
}
