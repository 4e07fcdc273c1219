//! The pods for which calls to the runtime hang or fail, each with the call and the start of the problem. The start and
//! the end of each problem are logged.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pleg_core::{
    CallError, Health, Id, Instant, Kind, PodName, PodStatus, PodUid, Reconciler, Text,
};
use pleg_generic::PodCall;
use pleg_runtime::clock::Clock;

use crate::cache::Published;
use crate::reads::Reads;
use crate::sync::watch;

/// The minimum time between two updates of the problems, while there are any.
const APART: Duration = Duration::from_millis(100);

/// A pod for which calls to the runtime hang or fail.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PodProblem {
    /// The pod.
    pub pod: PodName,
    /// The start of the problem.
    pub since: Instant,
    /// The present kind of problem.
    pub kind: PodProblemKind,
    /// The CRI operation, for example `ContainerStatus`.
    pub operation: &'static str,
    /// The container or sandbox, if the call names one.
    pub id: Option<Id>,
    /// The name of the container, if the call names one.
    pub container: Text,
    /// The error of the last call, if it failed.
    pub error: Option<Arc<CallError>>,
}

/// The kind of problem with the calls about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PodProblemKind {
    /// A call does not answer.
    Hung,
    /// The last call failed. The reconciler reads the pod again, with back-off.
    Failing,
    /// The runtime lists a container or sandbox, but its status call returns NotFound.
    StatusMissing,
}

impl PodProblemKind {
    /// A short lower-case name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hung => "hung",
            Self::Failing => "failing",
            Self::StatusMissing => "status_missing",
        }
    }
}

impl PodProblem {
    fn new(pod: PodName, since: Instant) -> Self {
        Self {
            pod,
            since,
            kind: PodProblemKind::Failing,
            operation: "",
            id: None,
            container: Text::default(),
            error: None,
        }
    }

    /// Notes that a read of the pod hangs: it waits for an answer to `call`.
    fn hangs(&mut self, call: Option<PodCall>, status: &PodStatus) {
        self.kind = PodProblemKind::Hung;
        let Some(call) = call else { return };
        self.operation = call.operation();
        self.id = match call {
            PodCall::Status(id, _) => Some(id),
            PodCall::Sandboxes | PodCall::Containers => None,
        };
        self.name_container(status);
    }

    /// Notes that the last read of the pod failed, or that a status call returns NotFound for a listed id.
    fn fails(&mut self, status: &PodStatus) {
        let sandboxes = status.sandboxes.iter();
        let sandboxes = sandboxes.map(|s| (&s.id, &s.error, s.status_missing, Kind::Sandbox));
        let containers = status.containers.iter();
        let containers = containers.map(|c| (&c.id, &c.error, c.status_missing, Kind::Container));
        let mut ids = sandboxes.chain(containers);
        if let Some((id, error, ..)) = ids.clone().find(|(_, error, ..)| error.is_some()) {
            (self.id, self.error) = (Some(id.clone()), error.clone());
        } else if let Some(error) = &status.error {
            (self.id, self.error) = (None, Some(error.clone()));
        } else if let Some((id, _, _, kind)) = ids.find(|(_, _, is_missing, _)| *is_missing) {
            (self.id, self.error) = (Some(id.clone()), None);
            self.operation = kind.status_operation();
            self.kind = PodProblemKind::StatusMissing;
            self.name_container(status);
            return;
        }
        self.kind = PodProblemKind::Failing;
        if let Some(error) = &self.error {
            self.operation = error.operation;
        }
        self.name_container(status);
    }

    fn name_container(&mut self, status: &PodStatus) {
        let mut containers = status.containers.iter();
        let named = containers.find(|c| Some(&c.id) == self.id.as_ref());
        self.container = named.map(|c| c.name.clone()).unwrap_or_default();
    }
}

/// Describes the problem without naming the pod.
impl fmt::Display for PodProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.error, self.kind) {
            (Some(error), PodProblemKind::Failing) => error.fmt(f)?,
            (None, PodProblemKind::Failing) => f.write_str("calls fail")?,
            (_, PodProblemKind::Hung) => write!(f, "{} does not answer", self.operation)?,
            (_, PodProblemKind::StatusMissing) => {
                write!(f, "listed, but {} returns NotFound", self.operation)?;
            }
        }
        // A short id, as in crictl.
        let id = self.id.as_ref().map(Id::as_str);
        match id.map(|id| id.get(..12).unwrap_or(id)) {
            Some(id) if self.operation == Kind::Sandbox.status_operation() => {
                write!(f, " (sandbox {id})")
            }
            Some(id) => write!(f, " (container {} {id})", self.container),
            None => Ok(()),
        }
    }
}

/// The present problems.
#[derive(Debug)]
pub(crate) struct PodProblems {
    present: BTreeMap<PodUid, PodProblem>,
    shown: watch::Sender<Arc<[PodProblem]>>,
    clock: Clock,
    due: Option<Instant>,
    updated: Option<Instant>,
}

impl PodProblems {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            present: BTreeMap::new(),
            shown: watch::channel(Arc::default()).0,
            clock,
            due: None,
            updated: None,
        }
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Arc<[PodProblem]>> {
        self.shown.subscribe()
    }

    /// The instant at which [`update`](Self::update) must be called even if nothing else happens.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Finds the present problems, publishes them, and logs the start and the end of each.
    pub(crate) fn update(&mut self, machine: &Reconciler, reads: &Reads, published: &Published) {
        let now = self.clock.now();
        let (slow, failing) = (machine.slow_reads(), machine.failing_pods());
        self.due = None;
        if slow.len() + failing.len() + self.present.len() == 0 {
            return;
        }
        if let Some(at) = self
            .updated
            .map(|at| at.after(APART))
            .filter(|at| now < *at)
        {
            self.due = Some(at);
            return;
        }
        self.updated = Some(now);
        let mut present = BTreeMap::new();
        let mut last = std::mem::take(&mut self.present);
        let mut take = |uid: &PodUid, since| {
            let known = last.remove(uid);
            known.unwrap_or_else(|| PodProblem::new(machine.pod_name(uid), since))
        };
        for (ticket, uid, since) in slow {
            let hung_at = since.after(Health::HUNG_AFTER);
            if now < hung_at {
                self.due = Some(self.due.map_or(hung_at, |due| due.min(hung_at)));
            } else if !present.contains_key(uid) {
                let mut problem = take(uid, since);
                problem.hangs(reads.waits_for(ticket), &published.get(uid).status);
                present.insert(uid.clone(), problem);
            }
        }
        for uid in failing {
            if !present.contains_key(uid) {
                let mut problem = take(uid, now);
                problem.fails(&published.get(uid).status);
                present.insert(uid.clone(), problem);
            }
        }
        // A problem lasts until a read of its pod succeeds. While the runtime as a whole fails (not even `Version`
        // succeeds), a failed call is not a problem of its pod, and known problems stay.
        let runtime_fails = machine.is_runtime_failing();
        for (uid, problem) in last {
            if runtime_fails || machine.is_unread(&uid) {
                present.insert(uid, problem);
            } else {
                self.log_end(&problem, &published.get(&uid).status);
            }
        }
        self.publish(present);
    }

    fn publish(&mut self, present: BTreeMap<PodUid, PodProblem>) {
        let known = self.shown.borrow().clone();
        let is_new = |p: &&PodProblem| known.iter().all(|known| known.pod.uid != p.pod.uid);
        for problem in present.values().filter(is_new) {
            self.log_begin(problem);
        }
        let mut sorted: Vec<PodProblem> = present.values().cloned().collect();
        sorted.sort_by_key(|p| p.since);
        if *sorted != *known {
            self.shown.send_replace(sorted.into());
        }
        self.present = present;
    }

    fn log_begin(&self, problem: &PodProblem) {
        let seconds = self.clock.now().since(problem.since).as_secs_f64();
        let (pod, named) = (&problem.pod, !problem.container.is_empty());
        tracing::warn!(
            pod = %pod.uid,
            namespace = %pod.namespace,
            name = %pod.name,
            call = %problem.operation,
            container = named.then(|| tracing::field::display(&problem.container)),
            id = problem.id.as_ref().map(tracing::field::display),
            seconds,
            "calls about a pod do not succeed: {problem}"
        );
    }

    fn log_end(&self, problem: &PodProblem, status: &PodStatus) {
        let seconds = self.clock.now().since(problem.since).as_secs();
        let pod = &problem.pod;
        let end = match status.exists() {
            true => "calls about a pod succeed again",
            false => "the pod is gone",
        };
        tracing::info!(
            pod = %pod.uid,
            namespace = %pod.namespace,
            name = %pod.name,
            call = %problem.operation,
            "{end} after {seconds} s"
        );
    }
}
