//! The hand-written runtime: what exists, the calls made, and which calls hang, fail or panic.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use pleg::core::{
    CallError, CallErrorKind, Details, EventType, Id, Instant, Kind, PodUid, Report, ReportedState,
    RuntimeEvent,
};
use pleg::runtime::clock::{Clock, wall};
use pleg::runtime::{Row, Runtime, RuntimeVersion, Scope};
use tokio::sync::watch;

use super::{container, sandbox};

/// A kind of call that a test can change or count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Op {
    /// A list of the node.
    List,
    /// Any call about one pod.
    Pod(PodUid),
    /// The event stream.
    Subscribe,
    /// The version.
    Version,
}

pub(crate) fn pod(uid: &str) -> Op {
    Op::Pod(uid.into())
}

#[derive(Default)]
struct State {
    ids: BTreeMap<Id, Report>,
    /// Each operation (for a list, its first call), and when it was called.
    asked: Vec<(Op, Instant)>,
    hangs: BTreeSet<Op>,
    fails: BTreeMap<Op, CallError>,
    panics: BTreeSet<Op>,
    takes: BTreeMap<Op, Duration>,
    streams: Vec<UnboundedSender<Result<RuntimeEvent, CallError>>>,
    under_way: usize,
    /// How long a call blocks its thread when it is dropped.
    drop_takes: Duration,
}

/// The runtime. Clones share one state.
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

    /// Adds the id, or changes its state.
    pub(crate) fn put(&self, report: Report) {
        self.change(|s| _ = s.ids.insert(report.id.clone(), report));
    }

    pub(crate) fn remove(&self, id: &str) {
        self.change(|s| assert!(s.ids.remove(id).is_some(), "{id} is not there"));
    }

    /// A pod with a sandbox `UID-s` and one container `UID-c`, both running.
    pub(crate) fn run_pod(&self, uid: &str) {
        self.put(sandbox(uid, ReportedState::Running));
        self.put(container(uid, "c", ReportedState::Running));
    }

    /// Such calls hang until they are released.
    pub(crate) fn hang(&self, op: Op) {
        self.change(|s| _ = s.hangs.insert(op));
    }

    pub(crate) fn unhang(&self, op: &Op) {
        self.change(|s| assert!(s.hangs.remove(op)));
    }

    /// Such calls fail until they are released.
    pub(crate) fn fail(&self, op: Op, kind: CallErrorKind) {
        self.change(|s| _ = s.fails.insert(op, error(kind)));
    }

    pub(crate) fn succeed(&self, op: &Op) {
        self.change(|s| assert!(s.fails.remove(op).is_some()));
    }

    /// Such calls panic.
    pub(crate) fn panic(&self, op: Op) {
        self.change(|s| _ = s.panics.insert(op));
    }

    /// Such calls take this long.
    pub(crate) fn take(&self, op: Op, time: Duration) {
        self.change(|s| _ = s.takes.insert(op, time));
    }

    /// A call that is dropped blocks its thread for this long.
    pub(crate) fn drop_takes(&self, time: Duration) {
        self.change(|s| s.drop_takes = time);
    }

    /// How often such a call was made.
    pub(crate) fn asked(&self, op: &Op) -> usize {
        self.times(op).len()
    }

    /// When such calls were made, on the runtime's own clock.
    pub(crate) fn times(&self, op: &Op) -> Vec<Instant> {
        let state = self.state();
        let of_op = state.asked.iter().filter(|(asked, _)| asked == op);
        of_op.map(|(_, at)| *at).collect()
    }

    pub(crate) fn now(&self) -> Instant {
        self.0.clock.now()
    }

    /// Calls that have neither answered nor been dropped.
    pub(crate) fn under_way(&self) -> usize {
        self.state().under_way
    }

    /// Whether only the test holds the runtime.
    pub(crate) fn is_let_go(&self) -> bool {
        self.under_way() == 0 && Arc::strong_count(&self.0) == 1
    }

    /// The number of streams that are being drained.
    pub(crate) fn streams(&self) -> usize {
        let mut state = self.state();
        state.streams.retain(|s| !s.is_closed());
        state.streams.len()
    }

    /// Sends an event as containerd does: with the statuses of one sandbox; DELETED without
    /// statuses.
    pub(crate) fn emit(&self, event: EventType, id: &str) {
        let state = self.state();
        let of = |id: &Id| state.ids.get(id).cloned();
        let subject = of(&id.into());
        let sandbox_id = subject.and_then(|r| r.identity.sandbox.or(Some(r.id)));
        let sandbox = sandbox_id.as_ref().and_then(of);
        let containers = state.ids.values();
        let containers = containers
            .filter(|r| sandbox_id.is_some() && r.identity.sandbox == sandbox_id)
            .cloned()
            .collect();
        let bare = event == EventType::Deleted;
        let event = RuntimeEvent {
            id: id.into(),
            event,
            created_at: wall().as_nanos(),
            sandbox: sandbox.filter(|_| !bare),
            containers: if bare { Vec::new() } else { containers },
        };
        drop(state);
        self.send(&Ok(event));
    }

    /// Makes a change and sends its event.
    pub(crate) fn put_and_tell(&self, report: Report, event: EventType) {
        let id = report.id.clone();
        self.put(report);
        self.emit(event, id.as_str());
    }

    pub(crate) fn remove_and_tell(&self, id: &str) {
        self.remove(id);
        self.emit(EventType::Deleted, id);
    }

    /// Breaks the connection of every stream.
    pub(crate) fn cut(&self) {
        self.send(&Err(error(CallErrorKind::Unavailable)));
        self.change(|s| s.streams.clear());
    }

    fn send(&self, item: &Result<RuntimeEvent, CallError>) {
        let state = self.state();
        assert!(!state.streams.is_empty(), "nobody has subscribed");
        for stream in &state.streams {
            // A stream that was dropped meanwhile receives nothing.
            let _ = stream.unbounded_send(item.clone());
        }
    }

    async fn call(&self, op: Op, counts: bool) -> Result<UnderWay, CallError> {
        let under_way = UnderWay::new(self);
        let takes = {
            let mut state = self.state();
            if counts {
                let now = self.now();
                state.asked.push((op.clone(), now));
            }
            state.takes.get(&op).copied()
        };
        let panics = self.state().panics.contains(&op);
        assert!(!panics, "as scripted");
        if let Some(time) = takes {
            self.0.clock.sleep_until(self.now().after(time)).await;
        }
        let mut changed = self.0.changed.subscribe();
        changed
            .wait_for(|()| !self.state().hangs.contains(&op))
            .await
            .expect("the runtime is held by its calls");
        let fails = self.state().fails.get(&op).cloned();
        fails.map_or(Ok(under_way), Err)
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

    async fn list(
        &self,
        kind: Kind,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        let first = kind == Kind::Sandbox;
        let _under_way = self.call(self.op_of(scope), first).await?;
        let rows: Vec<Report> = self.state().ids.values().cloned().collect();
        for report in rows {
            let in_scope = match scope {
                Scope::Node => true,
                Scope::Pod(uid) => report.identity.pod.as_ref() == Some(uid),
            };
            if in_scope && report.identity.kind == kind {
                // A row has no details.
                let details = Details::none(kind);
                row(Report { details, ..report }.into());
            }
        }
        Ok(())
    }

    async fn status(&self, id: &Id) -> Result<Report, CallError> {
        let _under_way = self.call(self.op_of_id(id), false).await?;
        let found = self.state().ids.get(id).cloned();
        found.ok_or_else(|| error(CallErrorKind::NotFound))
    }
}

pub(crate) fn error(kind: CallErrorKind) -> CallError {
    CallError::new("Call", kind, "as scripted")
}

/// Counts a call while it is in flight.
struct UnderWay(Node);

impl UnderWay {
    fn new(node: &Node) -> Self {
        node.state().under_way += 1;
        Self(node.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let time = self.0.state().drop_takes;
        if time > Duration::ZERO {
            let (_nobody, never) = std::sync::mpsc::channel::<()>();
            let _ = never.recv_timeout(time);
        }
        self.0.state().under_way -= 1;
    }
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
        let _under_way = self.call(Op::Subscribe, true).await?;
        let (send, events) = unbounded();
        self.change(|s| s.streams.push(send));
        Ok(events)
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        let _under_way = self.call(Op::Version, true).await?;
        Ok(RuntimeVersion {
            name: "hand".to_owned(),
            version: "1".to_owned(),
            api: "v1".to_owned(),
        })
    }
}
