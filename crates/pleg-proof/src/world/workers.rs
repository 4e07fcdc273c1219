//! The pod workers: each waits for the status of its pod and acts on the answer only, one run at a
//! time. `pod_actions` decides what to do.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use pleg_core::WaiterId;
use pleg_core::{CallError, Id, Instant, LifecycleType, PodLifecycleEvent, PodStatus, PodView};

use super::{Action, World};
use crate::assertions::CheckResult;
use crate::assertions::workers as assertions;
use crate::checks::Input;
use crate::coverage::CoverPoint;
use crate::fault_profile::{MS, SECOND};
use crate::faults::Fault;
use crate::plan;
use crate::pod_actions::{Spec, Step, decide};
use crate::runtime::pod_of;

/// All pod workers of the node.
#[derive(Debug, Default)]
pub(super) struct Kubelet {
    /// By pod number.
    pub(super) workers: BTreeMap<usize, Worker>,
    /// The pod in each slot.
    pub(super) places: Vec<usize>,
    waiting: BTreeMap<WaiterId, usize>,
    /// The number of the last operation.
    pub(super) calls: u64,
    /// Workers also run periodically.
    pub(super) resync: bool,
    /// Nothing wakes a worker.
    pub(super) suspended: bool,
    /// When `suspended` last changed.
    pub(super) awake_since: u64,
}

/// The worker of one pod.
#[derive(Debug)]
pub(super) struct Worker {
    /// None: the pod is deleted.
    pub(super) spec: Option<Spec>,
    /// When its own last change ended. An answer has to be newer.
    pub(super) after: Instant,
    /// The status of the last answer.
    pub(super) status: Option<Arc<PodStatus>>,
    pub(super) state: State,
    /// The time and reason of the next run.
    due: Option<(u64, WakeReason)>,
    /// It was woken during a run.
    woken: bool,
    /// Consecutive failed runs.
    failures: u32,
}

#[derive(Debug)]
pub(super) enum State {
    Idle,
    /// Waiting for an answer since that instant.
    Waiting(WaiterId, u64),
    Acting(Run),
}

/// The rest of a run.
#[derive(Debug)]
pub(super) struct Run {
    /// The as-of of the answer.
    pub(super) as_of: Instant,
    pub(super) steps: VecDeque<Step>,
    /// The sandbox for new containers.
    pub(super) sandbox: Option<Id>,
    pub(super) failed: bool,
    /// The step in flight and the number of its operation.
    pub(super) in_flight: Option<(Step, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WakeReason {
    Woken,
    Retry,
    Resync,
}

/// A scheduled step of a worker.
#[derive(Debug)]
pub(super) enum WorkerEvent {
    /// A run is due.
    Run(usize),
    /// A wait has reached its deadline.
    Deadline(usize, WaiterId),
    /// An operation takes effect.
    Effect(Box<super::operations::Call>),
    /// An operation returns.
    Reply(Box<super::operations::Reply>),
    /// A new pod takes this slot.
    Spec(usize),
}

/// The longest wait of a worker.
const DEADLINE: u64 = 30 * SECOND;
const FIRST_BACKOFF: u64 = 100 * MS;
const LONGEST_BACKOFF: u64 = 10 * SECOND;

impl Kubelet {
    pub(super) fn new(pods: usize) -> Self {
        Self {
            places: (0..pods).collect(),
            resync: true,
            ..Self::default()
        }
    }
}

impl Worker {
    pub(super) fn new(spec: Option<Spec>) -> Self {
        Self {
            spec,
            after: Instant::ORIGIN,
            status: None,
            state: State::Idle,
            due: None,
            woken: false,
            failures: 0,
        }
    }

    pub(super) fn run(&mut self) -> Option<&mut Run> {
        match &mut self.state {
            State::Acting(run) => Some(run),
            _ => None,
        }
    }

    /// Whether nothing is in flight and nothing but a resync is due.
    pub(super) fn is_idle(&self) -> bool {
        let resync = self.due.is_none_or(|(_, why)| why == WakeReason::Resync);
        matches!(self.state, State::Idle) && resync
    }

    fn backoff(&self) -> u64 {
        let doubled = FIRST_BACKOFF << self.failures.saturating_sub(1).min(10);
        doubled.min(LONGEST_BACKOFF)
    }
}

impl World {
    pub(super) fn worker_event(&mut self, worker_event: WorkerEvent) -> CheckResult {
        match worker_event {
            WorkerEvent::Run(pod) => self.run_due(pod),
            WorkerEvent::Deadline(pod, waiter) => self.deadline(pod, waiter),
            WorkerEvent::Effect(call) => self.effect(*call),
            WorkerEvent::Reply(reply) => self.reply(*reply),
            WorkerEvent::Spec(place) => {
                self.next_spec(place);
                Ok(())
            }
        }
    }

    pub(super) fn worker(&mut self, pod: usize) -> Option<&mut Worker> {
        self.kubelet.as_mut()?.workers.get_mut(&pod)
    }

    /// Schedules a run of the pod's worker at `when`, or sooner if one is due.
    fn due(&mut self, pod: usize, when: u64, why: WakeReason) {
        let Some(worker) = self.worker(pod) else {
            return;
        };
        if worker.due.is_none_or(|(due, _)| when < due) {
            worker.due = Some((when, why));
            self.at(when, Action::Kubelet(WorkerEvent::Run(pod)));
        } else if why != WakeReason::Resync
            && let Some(due) = &mut worker.due
        {
            due.1 = why;
        }
    }

    /// Wakes the worker after an announcement or after its own change.
    pub(super) fn wake(&mut self, pod: usize) {
        if self.kubelet.as_ref().is_none_or(|k| k.suspended) {
            return;
        }
        let soon = self.now + self.rng.kubelet.between(0, MS);
        match self.worker(pod) {
            Some(worker) if matches!(worker.state, State::Idle) => {
                self.due(pod, soon, WakeReason::Woken);
            }
            Some(worker) => worker.woken = true,
            None => {}
        }
    }

    pub(super) fn announced(&mut self, event: &PodLifecycleEvent) {
        let Some(pod) = pod_of(&event.uid) else {
            return;
        };
        let exists = event.event != LifecycleType::ContainerRemoved;
        let Some(kubelet) = &mut self.kubelet else {
            return;
        };
        if exists && !kubelet.suspended {
            // The pod is unknown: a worker without a spec removes it.
            let orphan = || Worker::new(None);
            kubelet.workers.entry(pod).or_insert_with(orphan);
        }
        self.wake(pod);
    }

    fn run_due(&mut self, pod: usize) -> CheckResult {
        let now = self.now;
        let resync = self.kubelet.as_ref().is_some_and(|k| k.resync);
        let Some(worker) = self.worker(pod) else {
            return Ok(());
        };
        let Some((_, why)) = worker.due.filter(|(due, _)| *due <= now) else {
            return Ok(());
        };
        worker.due = None;
        if why == WakeReason::Resync && !resync {
            return Ok(());
        }
        if !matches!(worker.state, State::Idle) {
            worker.woken = true;
            return Ok(());
        }
        worker.woken = false;
        let after = worker.after;
        self.wait_for(pod, after)
    }

    /// Waits for a status that is newer than `after`.
    fn wait_for(&mut self, pod: usize, after: Instant) -> CheckResult {
        let (waiter, now) = (self.next_waiter(), self.now);
        if let Some(kubelet) = &mut self.kubelet {
            kubelet.waiting.insert(waiter, pod);
        }
        if let Some(worker) = self.worker(pod) {
            worker.state = State::Waiting(waiter, now);
        }
        self.checks.coverage.hit(CoverPoint::WorkerWaits);
        let mut deadline = self.now + DEADLINE;
        if self.inject(Fault::WaiterCancels, |d| &mut d.kubelet) {
            deadline = self.now + self.rng.kubelet.between(0, 100) * MS;
        }
        self.at(
            deadline,
            Action::Kubelet(WorkerEvent::Deadline(pod, waiter)),
        );
        let (uid, now) = (self.uid(pod), self.instant());
        self.checks.trace.log(self.now, || {
            format!("worker of {uid}: {waiter:?} after {after:?}")
        });
        let urgent = self.is_well(pod);
        self.checks.waiter_added(waiter, &uid, (after, now), urgent);
        self.allow_list_for_waiter();
        self.checks.set_input(Input::Request);
        self.reconciler.wait(now, waiter, &uid, after);
        self.drain()
    }

    /// Ends the wait and returns the pod of its worker, if the waiter is a worker.
    pub(super) fn worker_of(&mut self, waiter: WaiterId) -> Option<usize> {
        self.kubelet.as_mut()?.waiting.remove(&waiter)
    }

    /// A wait has been answered.
    pub(super) fn worker_answered(
        &mut self,
        pod: usize,
        answer: Result<PodView, CallError>,
    ) -> CheckResult {
        match answer {
            Ok(view) => self.act_on(pod, view),
            Err(_) => {
                self.checks.coverage.hit(CoverPoint::WorkerWaitFailed);
                self.run_failed(pod);
                Ok(())
            }
        }
    }

    fn act_on(&mut self, pod: usize, view: PodView) -> CheckResult {
        let as_of = view.as_of.unwrap_or_default();
        let Some(worker) = self.worker(pod) else {
            return Ok(());
        };
        let decision = decide(worker.spec.as_ref(), &view.status);
        let ends = worker.spec.is_none() && view.status.is_nothing();
        worker.status = Some(view.status);
        if ends {
            return self.end_worker(pod, as_of);
        }
        if decision.steps.is_empty() {
            self.run_done(pod);
            return Ok(());
        }
        let uid = self.uid(pod);
        self.checks.trace.log(self.now, || {
            format!("worker of {uid}: {:?}", decision.steps)
        });
        if let Some(worker) = self.worker(pod) {
            worker.state = State::Acting(Run {
                as_of,
                steps: decision.steps.into(),
                sandbox: decision.sandbox,
                failed: false,
                in_flight: None,
            });
        }
        self.next_step(pod);
        Ok(())
    }

    /// A run has ended and nothing in it failed.
    pub(super) fn run_done(&mut self, pod: usize) {
        if let Some(worker) = self.worker(pod) {
            worker.failures = 0;
        }
        let resync = self.now + self.rng.kubelet.between(5, 20) * SECOND;
        self.run_over(pod, resync, WakeReason::Resync);
    }

    /// A run has ended, and it failed.
    pub(super) fn run_failed(&mut self, pod: usize) {
        let mut retry = self.now;
        if let Some(worker) = self.worker(pod) {
            worker.failures += 1;
            retry += worker.backoff();
        }
        self.run_over(pod, retry, WakeReason::Retry);
    }

    fn run_over(&mut self, pod: usize, next: u64, why: WakeReason) {
        let (now, each_run) = (
            self.instant(),
            self.plan.kubelet == plan::KubeletMode::EachRun,
        );
        let Some(worker) = self.worker(pod) else {
            return;
        };
        worker.state = State::Idle;
        if each_run {
            worker.after = now;
        }
        let woken = worker.woken;
        self.due(pod, next, why);
        if woken {
            self.wake(pod);
        }
    }

    fn deadline(&mut self, pod: usize, waiter: WaiterId) -> CheckResult {
        let now = self.now;
        if self.worker_of(waiter).is_none() {
            return Ok(());
        }
        let since = match self.worker(pod).map(|w| &w.state) {
            Some(State::Waiting(_, since)) => *since,
            _ => now,
        };
        assertions::WORKER_ANSWERED
            .holds(
                now < since + DEADLINE || self.checks.waits_for_list(now, since),
                || format!("{waiter:?} has not been answered by its deadline"),
            )
            .map_err(|violation| violation.in_pod(Some(pod)))?;
        self.cancel_wait(pod, waiter)?;
        self.run_failed(pod);
        Ok(())
    }

    /// The answer shows nothing of a deleted pod, so its worker ends.
    fn end_worker(&mut self, pod: usize, as_of: Instant) -> CheckResult {
        let (now, as_of) = (self.now, as_of.as_nanos());
        let left = self.oracle.of_pod(pod, as_of).find(|l| l.exists(now));
        if let Some(object) = left {
            let what = format!("the worker of pod-{pod} ends and leaves {}", object.id);
            return Err(assertions::NOTHING_LEFT_BEHIND
                .violated(what)
                .in_pod(Some(pod)));
        }
        let place = self.place(pod);
        self.checks.coverage.hit(CoverPoint::WorkerEnded);
        let Some(kubelet) = &mut self.kubelet else {
            return Ok(());
        };
        kubelet.workers.remove(&pod);
        if kubelet.places.get(place) == Some(&pod) && self.workload_running {
            let next = self.now + self.rng.kubelet.between(0, 3000) * MS;
            self.at(next, Action::Kubelet(WorkerEvent::Spec(place)));
        }
        Ok(())
    }

    /// Cancels the worker's wait.
    pub(super) fn cancel_wait(&mut self, pod: usize, waiter: WaiterId) -> CheckResult {
        self.checks.coverage.hit(CoverPoint::WorkerCancelled);
        self.checks.log(self.now, || {
            format!("worker of pod-{pod}: {waiter:?} is cancelled")
        });
        if let Some(worker) = self.worker(pod) {
            worker.state = State::Idle;
        }
        self.checks.cancelled(waiter);
        self.checks.set_input(Input::Cancel);
        self.reconciler.cancel(waiter);
        self.drain()
    }
}
