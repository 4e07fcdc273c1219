//! The read side of the generator: performs relists, pod lists and status reads on request.
//!
//! A [`Reader`] decides nothing. It records the start of each read and gives the read a deadline. A read shows the
//! state at its start or later (the reconciler repeats reads if a runtime's lists lag). If one call of a list fails,
//! the list is an error without rows, because a partial list proves no absence. If one of several status calls fails or
//! hangs, the reader still returns the other statuses. Dropping a future cancels its calls.
//!
//! A reader uses only its [`Runtime`] and the clock, and has no state between reads.
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

mod progress;
mod statuses;

pub use progress::{PodCall, Progress};

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use pleg_runtime::clock::Clock;
use pleg_runtime::core::{
    CallError, CallErrorKind, EventProfile, Id, Kind, KnownIds, List, PodList, PodUid, Report,
    Rows, Statuses, Ticket, Version,
};
use pleg_runtime::{Row, Runtime, Scope};

/// Reads a runtime on request.
pub struct Reader<R> {
    runtime: Arc<R>,
    clock: Clock,
}

impl<R: Runtime> Reader<R> {
    /// Creates a reader of `runtime`. `clock` must be the clock of the driver.
    pub fn new(runtime: Arc<R>, clock: Clock) -> Self {
        Self { runtime, clock }
    }

    /// Lists the whole node: all sandboxes, then all containers, in upstream's order.
    ///
    /// `deadline` covers both calls. If either fails or times out, there are no rows. If an id is in `known`, only the
    /// state in its row is decoded.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the calls and discards their results.
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

    /// Lists the sandboxes and the containers of one pod, in two concurrent calls with one `deadline`. `progress` shows
    /// which of these calls is unanswered.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the calls and discards their results.
    pub async fn list_pod(
        &self,
        ticket: Ticket,
        uid: &PodUid,
        deadline: Duration,
        progress: &Progress,
    ) -> PodList {
        let began = self.clock.now();
        let limit = Limit::new(&self.clock, deadline);
        progress.set(Some(PodCall::Sandboxes));
        let rows = self.pod_rows(&limit, uid, progress).await;
        PodList {
            ticket,
            began,
            rows,
        }
    }

    /// Reads statuses, in at most eight concurrent calls. `deadline` covers all calls; those unanswered at the deadline
    /// fail. `progress` shows which call is unanswered.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the calls and discards their results.
    pub async fn statuses(
        &self,
        ticket: Ticket,
        ids: Vec<(Id, Kind)>,
        deadline: Duration,
        progress: &Progress,
    ) -> Statuses {
        let began = self.clock.now();
        let limit = Limit::new(&self.clock, deadline);
        let answers = statuses::read(&*self.runtime, &limit, ids, progress).await;
        Statuses {
            ticket,
            began,
            answers,
        }
    }

    /// Calls `Version`, to check that the runtime answers at all.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call.
    pub async fn version(&self, ticket: Ticket, deadline: Duration) -> Version {
        let limit = Limit::new(&self.clock, deadline);
        let answer = limit.hold(VERSION, self.runtime.version()).await;
        let outcome = answer.map(|_| ());
        Version { ticket, outcome }
    }

    /// Returns known quirks of the runtime's event stream, for example that a removal may suppress a STOPPED event.
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

    async fn pod_rows(
        &self,
        limit: &Limit,
        uid: &PodUid,
        progress: &Progress,
    ) -> Result<Vec<Report>, CallError> {
        let scope = Scope::Pod(uid.clone());
        let (mut rows, mut containers) = (Vec::new(), Vec::new());
        let mut add_sandbox = |row: Row<'_>| rows.extend(of_pod(row, uid));
        let mut add_container = |row: Row<'_>| containers.extend(of_pod(row, uid));
        let list_sandboxes = async {
            let call = self.runtime.list_sandboxes(&scope, &mut add_sandbox);
            let answer = limit.hold(PodCall::Sandboxes.operation(), call).await;
            progress.set(Some(PodCall::Containers));
            answer
        };
        let call = self.runtime.list_containers(&scope, &mut add_container);
        let list_containers = limit.hold(PodCall::Containers.operation(), call);
        futures::future::try_join(list_sandboxes, list_containers).await?;
        rows.append(&mut containers);
        Ok(rows)
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

/// Adds a row to the rows of a list. Decodes the row in full only if its id is unknown.
pub fn add(rows: &mut Rows, row: Row<'_>) {
    let known = rows.add_known(row.id(), row.kind(), row.shown());
    if !known && let Some(row) = row.report() {
        rows.push(row);
    }
}

/// Decodes a row of a pod list. `None` if its label names another pod: some runtimes ignore list filters and return the
/// rows of the whole node, which the reader must not store for each pod.
fn of_pod(row: Row<'_>, uid: &PodUid) -> Option<Report> {
    let report = row.report()?;
    let identity = &report.identity;
    (identity.unlabelled || identity.pod.as_ref() == Some(uid)).then_some(report)
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

/// Reads the status of one id. If the answer is about another id, returns an error.
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
        // Rounds the deadline for the message, because the remaining part of a deadline may be 4.99607616 s.
        let step = if self.deadline < Duration::from_secs(1) {
            0.001
        } else {
            0.1
        };
        let seconds = (self.deadline.as_secs_f64() / step).round() * step;
        let message = format!("no answer within {:?}", Duration::from_secs_f64(seconds));
        CallError::new(operation, CallErrorKind::DeadlineExceeded, message)
    }
}
