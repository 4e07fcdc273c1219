//! The reads in flight: each in its own task, with one result.

use std::collections::HashMap;
use std::future::Future;

use pleg_core::{
    CallError, CallErrorKind, EventProfile, Inspection, Instant, List, PodCall, StatusRead, Ticket,
    Version,
};
use pleg_generic::Progress;
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tracing::{Instrument as _, Span};

use crate::recorder::Metrics;

/// The result of a read.
pub(crate) enum Read {
    List(List),
    Inspection(Box<Inspection>),
    Status(Box<StatusRead>),
    Version(Version),
    Profile(Result<EventProfile, CallError>),
}

/// The reads in flight. Each has one result, even if its task panics or is cancelled.
#[derive(Default)]
pub(crate) struct Reads {
    metrics: Metrics,
    tasks: JoinSet<Read>,
    asked: HashMap<tokio::task::Id, (Asked, Instant, AbortHandle)>,
}

/// What was requested of a read.
pub(crate) enum Asked {
    List(Ticket),
    Inspection(Ticket, Progress),
    Status(Ticket),
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

    /// Starts a read in its own task, in that span.
    pub(crate) fn start(
        &mut self,
        asked: Asked,
        now: Instant,
        span: Span,
        read: impl Future<Output = Read> + Send + 'static,
    ) {
        let handle = self.tasks.spawn(self.metrics.of(read.instrument(span)));
        self.asked.insert(handle.id(), (asked, now, handle));
    }

    /// The call that an inspection in flight waits for.
    pub(crate) fn waits_for(&self, ticket: Ticket) -> Option<PodCall> {
        self.asked.values().find_map(|(asked, ..)| match asked {
            Asked::Inspection(t, progress) if *t == ticket => progress.waits_for(),
            _ => None,
        })
    }

    /// Cancels an inspection. The reconciler ignores its result.
    pub(crate) fn cancel(&self, ticket: Ticket) {
        for (asked, _, handle) in self.asked.values() {
            if matches!(asked, Asked::Inspection(t, _) if *t == ticket) {
                handle.abort();
            }
        }
    }

    /// The next read that ends; `None` if none is in flight. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Read> {
        let ended = self.tasks.join_next_with_id().await?;
        Some(match ended {
            Ok((id, read)) => {
                self.asked.remove(&id);
                read
            }
            Err(error) => self.answer_for(&error)?,
        })
    }

    /// Drops all reads.
    pub(crate) async fn shutdown(&mut self) {
        self.tasks.shutdown().await;
    }

    /// The failed result of a read that was cancelled or has panicked.
    fn answer_for(&mut self, error: &JoinError) -> Option<Read> {
        let (asked, began, _) = self.asked.remove(&error.id())?;
        let kind = if error.is_cancelled() {
            CallErrorKind::Cancelled
        } else {
            CallErrorKind::Failed
        };
        let failed = |operation| CallError::new(operation, kind, error.to_string());
        if error.is_panic() {
            tracing::error!(%error, "a read panicked; it counts as failed");
        }
        Some(match asked {
            Asked::List(ticket) => Read::List(List {
                ticket,
                began,
                ended: began,
                rows: Err(failed("List")),
            }),
            Asked::Inspection(ticket, _) => Read::Inspection(Box::new(Inspection {
                ticket,
                began,
                ended: began,
                ..Inspection::new(Some(failed("Inspect")))
            })),
            Asked::Status(ticket) => Read::Status(Box::new(StatusRead {
                ticket,
                began,
                ended: began,
                report: Err(failed("Read")),
            })),
            Asked::Version(ticket) => Read::Version(Version {
                ticket,
                ended: began,
                outcome: Err(failed("Version")),
            }),
            Asked::Profile => Read::Profile(Err(failed("Version"))),
        })
    }
}
