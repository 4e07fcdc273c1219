//! The reads in flight. Each runs in its own task and has one result.

use std::collections::HashMap;
use std::future::Future;

use pleg_core::{
    CallError, CallErrorKind, EventProfile, Id, Instant, Kind, List, PodList, Statuses, Ticket,
    Version,
};
use pleg_generic::{PodCall, Progress};
use tokio::task::{JoinError, JoinSet};
use tracing::{Instrument as _, Span};

use crate::recorder::Metrics;

/// The result of a read.
pub(crate) enum Read {
    List(List),
    PodList(Box<PodList>),
    Statuses(Box<Statuses>),
    Version(Version),
    Profile(Result<EventProfile, CallError>),
}

/// The reads in flight. Each has one result, even if its task panics or is cancelled.
#[derive(Default)]
pub(crate) struct Reads {
    metrics: Metrics,
    tasks: JoinSet<Read>,
    calls: HashMap<tokio::task::Id, (Request, Instant)>,
}

/// The request of a read.
pub(crate) enum Request {
    List(Ticket),
    PodList(Ticket, Progress),
    Statuses(Ticket, Vec<(Id, Kind)>, Progress),
    Version(Ticket),
    Profile,
}

impl Reads {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            ..Self::default()
        }
    }

    /// Starts a read in its own task, in `span`.
    pub(crate) fn start(
        &mut self,
        request: Request,
        now: Instant,
        span: Span,
        read: impl Future<Output = Read> + Send + 'static,
    ) {
        let handle = self.tasks.spawn(self.metrics.of(read.instrument(span)));
        self.calls.insert(handle.id(), (request, now));
    }

    /// The unanswered call of the pod read with this ticket (the number of the read).
    pub(crate) fn waits_for(&self, ticket: Ticket) -> Option<PodCall> {
        self.calls.values().find_map(|(request, _)| match request {
            Request::PodList(t, progress) | Request::Statuses(t, _, progress) if *t == ticket => {
                progress.waits_for()
            }
            _ => None,
        })
    }

    /// Returns true if the list or the status calls of the pod read with this ticket (the read's number) are in flight.
    pub(crate) fn is_reading(&self, ticket: Ticket) -> bool {
        self.calls.values().any(|(request, _)| match request {
            Request::PodList(t, _) | Request::Statuses(t, ..) => *t == ticket,
            _ => false,
        })
    }

    /// The next read that ends; `None` if none is in flight. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Read> {
        match self.tasks.join_next_with_id().await? {
            Ok((id, read)) => self.calls.remove(&id).map(|_| read),
            Err(error) => self.answer_for(&error),
        }
    }

    /// Drops all reads.
    pub(crate) async fn shutdown(&mut self) {
        self.tasks.shutdown().await;
    }

    /// The failed result of a read that was cancelled or has panicked.
    fn answer_for(&mut self, error: &JoinError) -> Option<Read> {
        let (request, began) = self.calls.remove(&error.id())?;
        let kind = if error.is_cancelled() {
            CallErrorKind::Cancelled
        } else {
            CallErrorKind::Failed
        };
        let failed = |operation| CallError::new(operation, kind, error.to_string());
        if error.is_panic() {
            tracing::error!(%error, "a read panicked; it counts as failed");
        }
        Some(match request {
            Request::List(ticket) => Read::List(List {
                ticket,
                began,
                ended: began,
                rows: Err(failed("List")),
            }),
            Request::PodList(ticket, _) => Read::PodList(Box::new(PodList {
                ticket,
                began,
                rows: Err(failed("ListPodSandbox")),
            })),
            Request::Statuses(ticket, ids, _) => {
                let failed = |(id, kind): (Id, Kind)| (id, Err(failed(kind.status_operation())));
                Read::Statuses(Box::new(Statuses {
                    ticket,
                    began,
                    answers: ids.into_iter().map(failed).collect(),
                }))
            }
            Request::Version(ticket) => Read::Version(Version {
                ticket,
                outcome: Err(failed("Version")),
            }),
            Request::Profile => Read::Profile(Err(failed("Version"))),
        })
    }
}
