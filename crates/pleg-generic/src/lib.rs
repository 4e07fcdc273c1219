//! The read side: performs lists, inspections and status reads on request, and returns them as
//! observations.
//!
//! A [`Reader`] decides nothing. It stamps the begin and the end of each read (a status is "as of
//! t" only if the read that showed it began after t, invariant 3), and gives every read a deadline.
//! A list with a failed call is an error without rows (invariant 5). An inspection with a failed
//! call returns what was read, and which calls failed. Dropping a future cancels its calls;
//! no state is kept.
//!
//! It uses only its [`Runtime`] and the clock, and keeps no state between reads.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use pleg_generic::Reader;
//! use pleg_runtime::clock::Clock;
//! use pleg_runtime::core::{KnownIds, Ticket};
//! use pleg_runtime::fake::FakeRuntime;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let runtime = FakeRuntime::new();
//! runtime.run_pod("web");
//! let reader = Reader::new(Arc::new(runtime), Clock::start());
//! let list = reader.list(Ticket::from(1), Duration::from_secs(10), KnownIds::default()).await;
//! assert!(list.rows.is_ok());
//! assert!(list.began <= list.ended);
//! # }
//! ```

mod inspect;
mod progress;

pub use progress::Progress;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use pleg_runtime::clock::Clock;
use pleg_runtime::core::{
    CallError, CallErrorKind, EventProfile, HeldId, Id, Inspection, Kind, KnownIds, List, PodCall,
    PodUid, Report, Rows, StatusRead, Ticket, Version,
};
use pleg_runtime::{Row, Runtime, Scope};

/// Reads a runtime on request.
pub struct Reader<R> {
    runtime: Arc<R>,
    clock: Clock,
}

impl<R: Runtime> Reader<R> {
    /// A reader of that runtime. It must use the clock of the driver.
    pub fn new(runtime: Arc<R>, clock: Clock) -> Self {
        Self { runtime, clock }
    }

    /// Lists the whole node: all sandboxes, then all containers, in upstream's order.
    ///
    /// `deadline` covers both calls. If either fails or times out, there are no rows. Of the
    /// `known` ids only the state is decoded.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the calls; what was read is lost.
    pub async fn list(&self, ticket: Ticket, deadline: Duration, known: KnownIds) -> List {
        let began = self.clock.now();
        let limit = Limit::new(&self.clock, deadline);
        let rows = self.rows(&limit, known).await;
        List {
            ticket,
            began,
            ended: self.clock.now(),
            rows,
        }
    }

    /// Inspects one pod: lists its sandboxes and containers by its uid, and reads the status of
    /// each id that is owed one, that the lists show new or changed, or that they do not show.
    ///
    /// `held` are the ids that the caller holds for the pod. `deadline` covers the whole
    /// inspection; calls that are not answered by then have failed. `progress` shows which call it
    /// waits for.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the calls; what was read is lost.
    pub async fn inspect(
        &self,
        ticket: Ticket,
        uid: &PodUid,
        held: &[HeldId],
        deadline: Duration,
        progress: &Progress,
    ) -> Inspection {
        let began = self.clock.now();
        let limit = Limit::new(&self.clock, deadline);
        let read = inspect::inspect(&*self.runtime, &limit, uid, held, progress).await;
        read.finish(ticket, began, self.clock.now())
    }

    /// Reads the status of one id.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call.
    pub async fn read(
        &self,
        ticket: Ticket,
        id: &Id,
        kind: Kind,
        deadline: Duration,
    ) -> StatusRead {
        let began = self.clock.now();
        let limit = Limit::new(&self.clock, deadline);
        let report = limit
            .hold(kind.status_operation(), status(&*self.runtime, id, kind))
            .await;
        StatusRead {
            ticket,
            began,
            ended: self.clock.now(),
            report,
        }
    }

    /// Calls `Version`, to check whether the runtime answers.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call.
    pub async fn version(&self, ticket: Ticket, deadline: Duration) -> Version {
        let limit = Limit::new(&self.clock, deadline);
        let answer = limit.hold(VERSION, self.runtime.version()).await;
        Version {
            ticket,
            ended: self.clock.now(),
            outcome: answer.map(|_| ()),
        }
    }

    /// Returns what the runtime's event stream can be expected to report.
    ///
    /// # Errors
    /// If the runtime does not answer within `deadline`, or the call fails.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call.
    pub async fn event_profile(&self, deadline: Duration) -> Result<EventProfile, CallError> {
        let limit = Limit::new(&self.clock, deadline);
        limit.hold(VERSION, self.runtime.event_profile()).await
    }

    async fn rows(&self, limit: &Limit, known: KnownIds) -> Result<Rows, CallError> {
        let mut rows = Rows::new(known);
        let mut row = |row: Row<'_>| add(&mut rows, row);
        let sandboxes = self.runtime.list_sandboxes(&Scope::Node, &mut row);
        let operation = PodCall::Sandboxes.operation();
        limit.hold(operation, sandboxes).await?;
        let containers = self.runtime.list_containers(&Scope::Node, &mut row);
        let operation = PodCall::Containers.operation();
        limit.hold(operation, containers).await?;
        Ok(rows)
    }
}

/// Adds a row to those of a list. A row of an unknown id is decoded in full.
pub fn add(rows: &mut Rows, row: Row<'_>) {
    let known = rows.state_of(row.id(), row.kind(), row.shown());
    if !known && let Some(row) = row.report() {
        rows.push(row);
    }
}

impl<R> Clone for Reader<R> {
    fn clone(&self) -> Self {
        Self {
            runtime: self.runtime.clone(),
            clock: self.clock,
        }
    }
}

impl<R> fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

const VERSION: &str = "Version";

/// Reads the status of one id. An answer about another id is an error.
async fn status<R: Runtime>(runtime: &R, id: &Id, kind: Kind) -> Result<Report, CallError> {
    let report = match kind {
        Kind::Sandbox => runtime.sandbox_status(id).await,
        Kind::Container => runtime.container_status(id).await,
    }?;
    if report.id == *id {
        return Ok(report);
    }
    let operation = kind.status_operation();
    let message = format!("asked for {id}, the runtime answered about {}", report.id);
    Err(CallError::new(operation, CallErrorKind::Malformed, message))
}

/// The deadline of one read, for all its calls together.
struct Limit {
    at: tokio::time::Instant,
    deadline: Duration,
}

impl Limit {
    fn new(clock: &Clock, deadline: Duration) -> Self {
        Self {
            at: clock.tokio(clock.now().after(deadline)),
            deadline,
        }
    }

    async fn hold<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        match tokio::time::timeout_at(self.at, call).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(self.over(operation)),
        }
    }

    fn over(&self, operation: &'static str) -> CallError {
        let message = format!("no answer within {:?}", self.deadline);
        CallError::new(operation, CallErrorKind::DeadlineExceeded, message)
    }
}
