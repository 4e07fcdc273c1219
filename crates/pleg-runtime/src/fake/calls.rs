//! The calls of the fake runtime.

use std::fmt;

use futures::channel::mpsc::unbounded;
use pleg_core::{CallError, CallErrorKind, Details, Id, Instant, Kind, PodUid, Report};

use super::{Dial, FakeEvents, FakeRuntime, Op, State, Step, error};
use crate::row::Row;
use crate::runtime::{Runtime, RuntimeVersion, Scope};

/// A call that the fake runtime has received.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The call's name in the CRI, for example `ListContainers`.
    pub operation: &'static str,
    /// The id of a status call.
    pub id: Option<Id>,
    /// The pod that the call is about.
    pub pod: Option<PodUid>,
    /// The instant of the call.
    pub at: Instant,
}

/// Displays the operation and its argument: `ListContainers pod`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.operation)?;
        match (&self.id, &self.pod) {
            (Some(id), _) => write!(f, " {id}"),
            (None, Some(pod)) => write!(f, " {pod}"),
            (None, None) => Ok(()),
        }
    }
}

impl Call {
    /// Returns true if `op` matches this call.
    fn is(&self, op: &Op) -> bool {
        let is_list = matches!(self.operation, "ListPodSandbox" | "ListContainers");
        match op {
            Op::List => is_list && self.pod.is_none(),
            Op::Pod(uid) => self.pod.as_ref() == Some(uid),
            Op::Status(id) => self.id.as_ref() == Some(id),
            Op::Sandboxes => self.operation == "ListPodSandbox",
            Op::Containers => self.operation == "ListContainers",
            Op::Subscribe => self.operation == "GetContainerEvents",
            Op::Version => self.operation == "Version",
        }
    }

    /// Returns true if [`FakeRuntime::count`] counts this call.
    pub(super) fn counts_as(&self, op: &Op) -> bool {
        let is_first = self.operation == "ListPodSandbox";
        self.is(op) && (is_first || !matches!(op, Op::List | Op::Pod(_)))
    }
}

/// Counts a call while it is in flight.
struct InFlight(FakeRuntime);

impl InFlight {
    fn new(runtime: &FakeRuntime) -> Self {
        let mut state = runtime.state();
        state.in_flight += 1;
        state.most_in_flight = state.most_in_flight.max(state.in_flight);
        Self(runtime.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let time = self.0.state().drop_time;
        if !time.is_zero() {
            let (_sender, never) = std::sync::mpsc::channel::<()>();
            let _ = never.recv_timeout(time);
        }
        self.0.state().in_flight -= 1;
    }
}

/// The rows or status that a call found, and its error if it fails. A failing list first passes its rows on.
type Answer<T> = (T, Result<(), CallError>);

impl FakeRuntime {
    /// Executes a call: waits while it must hang, computes its answer from the state, then waits for its delay.
    async fn call<T>(
        &self,
        operation: &'static str,
        id: Option<&Id>,
        pod: Option<PodUid>,
        answer: impl FnOnce(&State) -> T,
    ) -> Answer<T> {
        let _in_flight = InFlight::new(self);
        let call = Call {
            operation,
            id: id.cloned(),
            pod,
            at: self.0.clock.now(),
        };
        let panics = {
            let mut state = self.state();
            state.calls.push(call.clone());
            state.panicking.iter().any(|op| call.is(op))
        };
        assert!(!panics, "a scripted panic");
        let mut changed = self.0.changed.subscribe();
        let is_free = |()| !self.state().hanging.iter().any(|op| call.is(op));
        // `wait_for` fails only after its sender was dropped, but `self` owns the sender.
        let _ = changed.wait_for(|()| is_free(())).await;
        let (answer, result, delay) = {
            let state = self.state();
            let failing = state.failing.iter().find(|(op, _)| call.is(op));
            let result = failing.map_or(Ok(()), |(_, kind)| Err(error(operation, *kind)));
            let delay = state.delays.iter().find(|(op, _)| call.is(op));
            (answer(&state), result, delay.map(|(_, time)| *time))
        };
        if let Some(time) = delay {
            let clock = self.0.clock;
            clock.sleep_until(clock.now().after(time)).await;
        }
        (answer, result)
    }

    async fn list(
        &self,
        kind: Kind,
        scope: &Scope,
        row: &mut (dyn FnMut(Row<'_>) + Send),
    ) -> Result<(), CallError> {
        let operation = match kind {
            Kind::Sandbox => "ListPodSandbox",
            Kind::Container => "ListContainers",
        };
        let pod = match scope {
            Scope::Node => None,
            Scope::Pod(uid) => Some(uid.clone()),
        };
        let listed = |state: &State| {
            let is_whole = pod.is_none() || state.ignores_filters;
            let in_scope = |r: &&Report| is_whole || r.identity.pod == pod;
            let of_kind = state.ids.values().filter(|r| r.identity.kind == kind);
            of_kind.filter(in_scope).cloned().collect::<Vec<_>>()
        };
        let (rows, result) = self.call(operation, None, pod.clone(), listed).await;
        for mut report in rows {
            // A row has no details.
            report.details = Details::none(kind);
            row(report.into());
        }
        result
    }

    async fn status(&self, operation: &'static str, id: &Id) -> Result<Report, CallError> {
        let pod = self
            .state()
            .ids
            .get(id)
            .and_then(|r| r.identity.pod.clone());
        let pod = pod.unwrap_or_else(|| PodUid::from(id));
        let status = |state: &State| {
            state
                .statuses
                .get(id)
                .or_else(|| state.ids.get(id))
                .cloned()
        };
        let (found, result) = self.call(operation, Some(id), Some(pod), status).await;
        result?;
        found.ok_or_else(|| error(operation, CallErrorKind::NotFound))
    }
}

impl Runtime for FakeRuntime {
    type Events = FakeEvents;

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
        self.status("PodSandboxStatus", id).await
    }

    /// As in the CRI, the status of a container does not name the sandbox.
    async fn container_status(&self, id: &Id) -> Result<Report, CallError> {
        let mut status = self.status("ContainerStatus", id).await?;
        status.identity.sandbox = None;
        Ok(status)
    }

    async fn subscribe(&self) -> Result<FakeEvents, CallError> {
        let (_, result) = self.call("GetContainerEvents", None, None, |_| ()).await;
        result?;
        let dial = self.state().dials.pop_front();
        match dial.unwrap_or_else(|| Dial::Open(vec![Step::Live])) {
            Dial::Fail(kind) => Err(error("GetContainerEvents", kind)),
            Dial::Hang => {
                let _in_flight = InFlight::new(self);
                std::future::pending().await
            }
            Dial::Open(steps) => {
                let (send, sent) = unbounded();
                self.change(|s| s.streams.push(send));
                Ok(FakeEvents::new(self.0.clock, steps, sent))
            }
        }
    }

    async fn stream_hazard(&self) -> Result<Option<String>, CallError> {
        let state = self.state();
        match state.failing.get(&Op::Version) {
            Some(kind) => Err(error("Version", *kind)),
            None => Ok(state.hazard.clone()),
        }
    }

    async fn version(&self) -> Result<RuntimeVersion, CallError> {
        let (_, result) = self.call("Version", None, None, |_| ()).await;
        result.map(|()| RuntimeVersion::new("fake", "1"))
    }
}
