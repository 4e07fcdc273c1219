//! A fake runtime: the test sets the sandboxes and containers, makes calls fail or take time, and
//! sends the events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use pleg_core::{
    CallError, CallErrorKind, Details, EventType, Id, Kind, PodUid, Report, RuntimeEvent, WallTime,
};
use pleg_runtime::clock::Clock;
use pleg_runtime::{Row, Runtime, RuntimeVersion, Scope};
use tokio::sync::watch;

/// The operations of the runtime that a test can count, delay and make fail.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Op {
    /// A list of the node.
    List,
    /// Any call about one pod.
    Pod(PodUid),
    /// The event stream.
    Subscribe,
}

pub(crate) fn pod(uid: &str) -> Op {
    Op::Pod(uid.into())
}

#[derive(Default)]
struct State {
    ids: BTreeMap<Id, Report>,
    /// How often each operation was started, counted by its first call.
    reads: BTreeMap<Op, usize>,
    failing: BTreeSet<Op>,
    latency: BTreeMap<Op, Duration>,
    streams: Vec<UnboundedSender<Result<RuntimeEvent, CallError>>>,
}

/// The fake runtime. Clones share the same state.
#[derive(Clone)]
pub(crate) struct Node(Arc<Inner>);

struct Inner {
    clock: Clock,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

impl Node {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            clock: Clock::start(),
            state: Mutex::default(),
            changed: watch::Sender::new(()),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.changed.send_replace(());
    }

    /// Adds or replaces a sandbox or container.
    pub(crate) fn put(&self, report: Report) {
        self.change(|s| _ = s.ids.insert(report.id.clone(), report));
    }

    pub(crate) fn remove(&self, id: &str) {
        self.change(|s| assert!(s.ids.remove(id).is_some(), "{id} is not there"));
    }

    pub(crate) fn ids(&self, kind: Kind) -> Vec<Id> {
        let state = self.state();
        let of_kind = state.ids.values().filter(|r| r.identity.kind == kind);
        of_kind.map(|r| r.id.clone()).collect()
    }

    /// Makes the calls of an operation fail until [`Node::succeed`].
    pub(crate) fn fail(&self, op: Op) {
        self.change(|s| _ = s.failing.insert(op));
    }

    pub(crate) fn succeed(&self, op: &Op) {
        self.change(|s| assert!(s.failing.remove(op)));
    }

    /// Makes the calls of an operation take that long. They return the state at their start.
    pub(crate) fn delay(&self, op: Op, time: Duration) {
        self.change(|s| _ = s.latency.insert(op, time));
    }

    /// How often the operation was started.
    pub(crate) fn reads(&self, op: &Op) -> usize {
        self.state().reads.get(op).copied().unwrap_or(0)
    }

    /// Whether only the test still holds the runtime.
    pub(crate) fn is_released(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// The number of open event streams.
    pub(crate) fn streams(&self) -> usize {
        let mut state = self.state();
        state.streams.retain(|s| !s.is_closed());
        state.streams.len()
    }

    /// The event that containerd would send now, with the statuses of one sandbox.
    pub(crate) fn event(&self, event: EventType, id: &str, created_at: WallTime) -> RuntimeEvent {
        let state = self.state();
        let of = |id: &Id| state.ids.get(id).cloned();
        let subject = of(&id.into());
        let sandbox_id = subject.and_then(|r| r.identity.sandbox.or(Some(r.id)));
        let in_sandbox = |r: &&Report| sandbox_id.is_some() && r.identity.sandbox == sandbox_id;
        RuntimeEvent {
            id: id.into(),
            event,
            created_at: created_at.as_nanos(),
            sandbox: sandbox_id.as_ref().and_then(of),
            containers: state.ids.values().filter(in_sandbox).cloned().collect(),
        }
    }

    /// Sends an event to the current subscribers.
    pub(crate) fn send_event(&self, event: &RuntimeEvent) {
        self.send(&Ok(event.clone()));
    }

    /// Breaks every event stream.
    pub(crate) fn break_streams(&self) {
        let error = error("GetContainerEvents", CallErrorKind::Unavailable);
        self.send(&Err(error));
        self.change(|s| s.streams.clear());
    }

    fn send(&self, item: &Result<RuntimeEvent, CallError>) {
        for stream in &self.state().streams {
            // The subscriber may have dropped the stream.
            let _ = stream.unbounded_send(item.clone());
        }
    }

    fn op_of(&self, scope: &Scope) -> Op {
        match scope {
            Scope::Node => Op::List,
            Scope::Pod(uid) => Op::Pod(uid.clone()),
        }
    }

    fn op_of_id(&self, id: &Id) -> Op {
        let state = self.state();
        let uid = state.ids.get(id).and_then(|r| r.identity.pod.clone());
        Op::Pod(uid.unwrap_or_else(|| PodUid::from(id)))
    }

    /// A call. It takes the configured time and returns the state at its start.
    async fn call<T>(
        &self,
        operation: &'static str,
        op: Op,
        first: bool,
        answer: impl FnOnce(&State) -> Result<T, CallErrorKind>,
    ) -> Result<T, CallError> {
        let (latency, answer) = {
            let mut state = self.state();
            if first {
                *state.reads.entry(op.clone()).or_default() += 1;
            }
            let fails = state.failing.contains(&op);
            let answer = if fails {
                Err(CallErrorKind::Unavailable)
            } else {
                answer(&state)
            };
            (state.latency.get(&op).copied(), answer)
        };
        if let Some(time) = latency {
            let clock = self.0.clock;
            clock.sleep_until(clock.now().after(time)).await;
        }
        answer.map_err(|kind| error(operation, kind))
    }

    async fn list(
        &self,
        kind: Kind,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        let first = kind == Kind::Sandbox;
        let in_scope = |r: &&Report| match scope {
            Scope::Node => true,
            Scope::Pod(uid) => r.identity.pod.as_ref() == Some(uid),
        };
        let show = |state: &State| {
            let of_kind = state.ids.values().filter(|r| r.identity.kind == kind);
            Ok(of_kind.filter(in_scope).cloned().collect::<Vec<_>>())
        };
        for report in self.call("List", self.op_of(scope), first, show).await? {
            // A row has no details.
            let details = Details::none(kind);
            row(Report { details, ..report }.into());
        }
        Ok(())
    }

    async fn status(&self, id: &Id) -> Result<Report, CallError> {
        let show = |state: &State| state.ids.get(id).cloned().ok_or(CallErrorKind::NotFound);
        self.call("Status", self.op_of_id(id), false, show).await
    }
}

fn error(operation: &'static str, kind: CallErrorKind) -> CallError {
    CallError::new(operation, kind, "test error")
}

impl Runtime for Node {
    type Events = UnboundedReceiver<Result<RuntimeEvent, CallError>>;

    async fn list_sandboxes(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        self.list(Kind::Sandbox, scope, row).await
    }

    async fn list_containers(
        &self,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        self.list(Kind::Container, scope, row).await
    }

    async fn sandbox_status(&self, id: &Id) -> Result<Report, CallError> {
        self.status(id).await
    }

    async fn container_status(&self, id: &Id) -> Result<Report, CallError> {
        self.status(id).await
    }

    async fn subscribe(&self) -> Result<Self::Events, CallError> {
        self.call("GetContainerEvents", Op::Subscribe, true, |_| Ok(()))
            .await?;
        let (send, events) = unbounded();
        self.change(|s| s.streams.push(send));
        Ok(events)
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        Ok(RuntimeVersion {
            name: "fake".to_owned(),
            version: "1".to_owned(),
            api: "v1".to_owned(),
        })
    }
}
