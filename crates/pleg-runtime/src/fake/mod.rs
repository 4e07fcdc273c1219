//! A container runtime in memory, for tests of a generator and of programs that use a generator.
//!
//! A test adds sandboxes and containers; makes calls fail, hang or take time; sends events; and inspects the calls that
//! were made. With tokio's paused time, a test that simulates an hour takes milliseconds.
//!
//! ```
//! use pleg_runtime::core::{EventType, ReportedState};
//! use pleg_runtime::fake::{FakeRuntime, Op, exited, sandbox};
//! use pleg_runtime::{Runtime as _, Scope};
//! # use futures::StreamExt as _;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), pleg_runtime::core::CallError> {
//! let runtime = FakeRuntime::new();
//! runtime.put(sandbox("pod", "s", ReportedState::Running));
//! let mut events = runtime.subscribe().await?;
//!
//! runtime.put_and_emit(exited("pod", "c", 1), EventType::Stopped);
//! assert_eq!(events.next().await.unwrap()?.id.as_str(), "pod-c");
//!
//! let mut listed = Vec::new();
//! let mut row = |row: pleg_runtime::Row<'_>| listed.push(row.id().to_owned());
//! runtime.list_containers(&Scope::Node, &mut row).await?;
//! assert_eq!(listed, ["pod-c"]);
//!
//! runtime.fail(Op::Version, pleg_runtime::core::CallErrorKind::Unavailable);
//! assert!(runtime.version().await.is_err());
//! # Ok(())
//! # }
//! ```

mod calls;
mod reports;
mod stream;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::channel::mpsc::UnboundedSender;
use pleg_core::{
    CallError, CallErrorKind, EventType, Id, Instant, Kind, PodUid, Report, ReportedState,
    RuntimeEvent,
};
use tokio::sync::watch;

use crate::clock::Clock;
pub use calls::Call;
pub use reports::{container, exited, sandbox, with_ips, with_memory_limit};
pub use stream::{Dial, FakeEvents, Step};

/// A set of calls that a test counts, or makes fail, hang or take time, together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// Lists of the node.
    List,
    /// Calls about one pod: its lists, and the statuses of its ids.
    Pod(PodUid),
    /// Status calls of one id.
    Status(Id),
    /// `ListPodSandbox` for the node or for a pod.
    Sandboxes,
    /// `ListContainers` for the node or for a pod.
    Containers,
    /// `GetContainerEvents`.
    Subscribe,
    /// `Version`.
    Version,
}

impl Op {
    /// The calls about the pod `uid`.
    #[must_use]
    pub fn pod(uid: &str) -> Self {
        Self::Pod(uid.into())
    }

    /// The status calls of `id`.
    #[must_use]
    pub fn status(id: &str) -> Self {
        Self::Status(id.into())
    }
}

/// The error of a call that a test made fail.
#[must_use]
pub fn error(operation: &'static str, kind: CallErrorKind) -> CallError {
    CallError::new(operation, kind, "test error")
}

#[derive(Debug, Default)]
struct State {
    ids: BTreeMap<Id, Report>,
    statuses: BTreeMap<Id, Report>,
    calls: Vec<Call>,
    hanging: BTreeSet<Op>,
    failing: BTreeMap<Op, CallErrorKind>,
    panicking: BTreeSet<Op>,
    delays: BTreeMap<Op, Duration>,
    drop_time: Duration,
    ignores_filters: bool,
    hazard: Option<String>,
    dials: VecDeque<Dial>,
    streams: Vec<UnboundedSender<stream::Item>>,
    in_flight: usize,
    most_in_flight: usize,
}

#[derive(Debug)]
struct Inner {
    clock: Clock,
    state: Mutex<State>,
    /// Notifies calls that hang of each change of the state.
    changed: watch::Sender<()>,
}

/// The fake runtime. Clones share one state.
#[derive(Clone, Debug)]
pub struct FakeRuntime(Arc<Inner>);

impl Default for FakeRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl FakeRuntime {
    /// A runtime without pods.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            clock: Clock::start(),
            state: Mutex::default(),
            changed: watch::Sender::new(()),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.changed.send_replace(());
    }

    /// Adds a sandbox or container, or changes it.
    pub fn put(&self, report: Report) {
        self.change(|s| _ = s.ids.insert(report.id.clone(), report));
    }

    /// Removes a sandbox or container.
    pub fn remove(&self, id: &str) {
        self.change(|s| _ = s.ids.remove(id));
    }

    /// Adds a pod with a sandbox `UID-s` and a container `UID-c`, both running.
    pub fn run_pod(&self, uid: &str) {
        self.put(sandbox(uid, "s", ReportedState::Running));
        self.put(container(uid, "c", ReportedState::Running));
    }

    /// The ids that exist.
    #[must_use]
    pub fn ids(&self, kind: Kind) -> Vec<Id> {
        let state = self.state();
        let of_kind = state.ids.values().filter(|r| r.identity.kind == kind);
        of_kind.map(|r| r.id.clone()).collect()
    }

    /// Makes the status calls of `id` return `status`, whatever the lists show.
    pub fn set_status(&self, id: &str, status: Report) {
        self.change(|s| _ = s.statuses.insert(id.into(), status));
    }

    /// Makes the calls of `op` hang until [`release`](Self::release).
    pub fn hang(&self, op: Op) {
        self.change(|s| _ = s.hanging.insert(op));
    }

    /// Ends the effect of [`hang`](Self::hang): the calls of `op` that hang continue.
    pub fn release(&self, op: &Op) {
        self.change(|s| _ = s.hanging.remove(op));
    }

    /// Makes the calls of `op` fail until [`succeed`](Self::succeed). A list fails after its last row.
    pub fn fail(&self, op: Op, kind: CallErrorKind) {
        self.change(|s| _ = s.failing.insert(op, kind));
    }

    /// Ends the effect of [`fail`](Self::fail).
    pub fn succeed(&self, op: &Op) {
        self.change(|s| _ = s.failing.remove(op));
    }

    /// Makes the calls of `op` panic.
    pub fn panic(&self, op: Op) {
        self.change(|s| _ = s.panicking.insert(op));
    }

    /// Makes each call of `op` take this time. Its answer shows the state at the start of this time.
    pub fn delay(&self, op: Op, time: Duration) {
        self.change(|s| _ = s.delays.insert(op, time));
    }

    /// Makes every call block its thread for this time when the call ends or is dropped.
    pub fn delay_drop(&self, time: Duration) {
        self.change(|s| s.drop_time = time);
    }

    /// Makes the lists of a pod return every row of the node, as some runtimes do.
    pub fn ignore_filters(&self) {
        self.change(|s| s.ignores_filters = true);
    }

    /// Sets or clears the reason, returned by `stream_hazard`, why a subscription may do harm.
    pub fn set_hazard(&self, why: Option<&str>) {
        self.change(|s| s.hazard = why.map(str::to_owned));
    }

    /// All calls so far.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.state().calls.clone()
    }

    /// The number of calls of `op` so far. For [`Op::List`] and [`Op::Pod`] it is the number of reads: the two list
    /// calls of a read count as one, and status calls do not count.
    #[must_use]
    pub fn count(&self, op: &Op) -> usize {
        self.times(op).len()
    }

    /// The instants of the calls that [`count`](Self::count) counts, by the runtime's
    /// [`clock`](Self::clock).
    #[must_use]
    pub fn times(&self, op: &Op) -> Vec<Instant> {
        let state = self.state();
        let counted = state.calls.iter().filter(|call| call.counts_as(op));
        counted.map(|call| call.at).collect()
    }

    /// The clock that gave the instants of the recorded calls.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.0.clock
    }

    /// The number of calls that were neither answered nor dropped.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.state().in_flight
    }

    /// The largest number of calls that were in flight at once so far.
    #[must_use]
    pub fn most_in_flight(&self) -> usize {
        self.state().most_in_flight
    }

    /// Returns true if no call is in flight and this is the only clone of the fake runtime.
    #[must_use]
    pub fn is_released(&self) -> bool {
        self.in_flight() == 0 && Arc::strong_count(&self.0) == 1
    }

    /// Sets the behavior of the next calls of `subscribe`, one per call. Later calls return a [`Step::Live`] stream.
    pub fn script_streams(&self, dials: impl IntoIterator<Item = Dial>) {
        self.change(|s| s.dials.extend(dials));
    }

    /// The number of streams that have not been dropped.
    #[must_use]
    pub fn streams(&self) -> usize {
        let mut state = self.state();
        state.streams.retain(|s| !s.is_closed());
        state.streams.len()
    }

    /// The event about `id` that containerd would send now. If `id` exists, the event has the statuses of its sandbox
    /// and of all containers of that sandbox.
    #[must_use]
    pub fn event(&self, event: EventType, id: &str) -> RuntimeEvent {
        let state = self.state();
        let subject = state.ids.get(id);
        let sandbox = subject.map(|r| r.identity.sandbox.as_ref().unwrap_or(&r.id));
        let containers = state.ids.values();
        let containers =
            containers.filter(|r| sandbox.is_some() && r.identity.sandbox.as_ref() == sandbox);
        let mut event = RuntimeEvent::new(id, event);
        event.created_at = self.0.clock.wall().as_nanos();
        event.sandbox = sandbox.and_then(|id| state.ids.get(id)).cloned();
        event.containers = containers.cloned().collect();
        event
    }

    /// Sends an event to every stream.
    pub fn send(&self, event: &RuntimeEvent) {
        self.send_item(&Ok(event.clone()));
    }

    /// Sends [`event`](Self::event) to every stream.
    pub fn emit(&self, event: EventType, id: &str) {
        self.send(&self.event(event, id));
    }

    /// Adds or changes a sandbox or container, and sends an event about it to every stream.
    pub fn put_and_emit(&self, report: Report, event: EventType) {
        let id = report.id.clone();
        self.put(report);
        self.emit(event, id.as_str());
    }

    /// Removes a sandbox or container, and sends a DELETED event about it to every stream.
    pub fn remove_and_emit(&self, id: &str) {
        self.remove(id);
        self.emit(EventType::Deleted, id);
    }

    /// Breaks every stream, as a restart of the runtime does.
    pub fn break_streams(&self) {
        self.send_item(&Err(error(
            "GetContainerEvents",
            CallErrorKind::Unavailable,
        )));
        self.change(|s| s.streams.clear());
    }

    fn send_item(&self, item: &stream::Item) {
        for stream in &self.state().streams {
            // The subscriber may have dropped the stream.
            let _ = stream.unbounded_send(item.clone());
        }
    }
}
