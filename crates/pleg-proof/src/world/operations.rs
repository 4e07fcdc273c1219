//! The operations of pod workers: they take time, fail, take effect without a reply, or take effect
//! after the worker has given up.

use pleg_core::{Id, Instant};

use super::node::Availability;
use super::workers::WorkerEvent;
use super::{Action, World};
use crate::assertions::CheckResult;
use crate::assertions::workers as assertions;
use crate::coverage::CoverPoint;
use crate::fault_profile::MS;
use crate::faults::Fault;
use crate::oracle::{Operation, Refused, State};
use crate::pod_actions::Step;
use crate::rng::Rng;

/// An operation in flight.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pod: usize,
    number: u64,
    operation: Operation,
    began: u64,
    /// When it returns, or a little later if its effect takes longer; none: its reply is lost and the
    /// worker gives up.
    returns: Option<u64>,
    /// The as-of of the status that it follows from.
    as_of: Instant,
}

/// The reply that a worker gets.
#[derive(Debug)]
pub(super) struct Reply {
    pod: usize,
    number: u64,
    began: u64,
    outcome: Result<Option<Id>, Failed>,
}

/// The error that a worker gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failed {
    Refused(Refused),
    Unavailable,
    Deadline,
}

impl World {
    /// Takes the next step of the worker's run, or ends the run.
    pub(super) fn next_step(&mut self, pod: usize) {
        let kubelet = self.kubelet.as_mut();
        let worker = kubelet.and_then(|k| k.workers.get_mut(&pod));
        let Some(run) = worker.and_then(|w| w.run()) else {
            return;
        };
        let (as_of, failed) = (run.as_of, run.failed);
        let Some(step) = run.steps.pop_front() else {
            if failed {
                self.run_failed(pod);
            } else {
                self.run_done(pod);
                // Its own change wakes the worker.
                self.wake(pod);
            }
            return;
        };
        let sandbox = run.sandbox.clone();
        let operation = match &step {
            Step::Stop(id) => Operation::Stop(id.clone()),
            Step::StopSandbox(id) => Operation::StopSandbox(id.clone()),
            Step::Start(id) => Operation::Start(id.clone()),
            Step::Remove(id) => Operation::Remove(id.clone()),
            Step::RemoveSandbox(id) => Operation::RemoveSandbox(id.clone()),
            &Step::RunSandbox { attempt } => Operation::RunSandbox { pod, attempt },
            &Step::Create { name, attempt } => {
                let Some(sandbox) = sandbox else {
                    return self.next_step(pod);
                };
                let attempt = attempt.unwrap_or_else(|| self.oracle.next_attempt(pod, name));
                Operation::Create {
                    sandbox,
                    name,
                    attempt,
                }
            }
        };
        self.issue(pod, step, operation, as_of);
    }

    fn issue(&mut self, pod: usize, step: Step, operation: Operation, as_of: Instant) {
        let now = self.now;
        let Some(kubelet) = &mut self.kubelet else {
            return;
        };
        kubelet.calls += 1;
        let number = kubelet.calls;
        if let Some(run) = kubelet.workers.get_mut(&pod).and_then(|w| w.run()) {
            run.in_flight = Some((step, number));
        }
        self.checks.coverage.hit(CoverPoint::OperationIssued);
        let mut call = Call {
            pod,
            number,
            operation,
            began: now,
            returns: None,
            as_of,
        };
        let begins = match self.node.availability(now) {
            Availability::Refused => return self.fails(&call, now + MS, Failed::Unavailable),
            Availability::Later(served) => served,
            Availability::Served => now,
        };
        if self.inject(Fault::OperationFails, |d| &mut d.kubelet) {
            let at = begins + self.rng.kubelet.between(0, 20) * MS;
            return self.fails(&call, at, Failed::Deadline);
        }
        let takes = duration(&mut self.rng.kubelet);
        let mut effect = begins + self.rng.kubelet.between(0, takes);
        if self.inject(Fault::ReplyLost, |d| &mut d.kubelet) {
            let gives_up = begins + takes + self.rng.kubelet.between(500, 4000) * MS;
            self.fails(&call, gives_up, Failed::Deadline);
        } else if self.inject(Fault::EffectLate, |d| &mut d.kubelet) {
            let gives_up = begins + self.rng.kubelet.between(500, 2000) * MS;
            self.fails(&call, gives_up, Failed::Deadline);
            effect = gives_up + self.rng.kubelet.between(0, 3000) * MS;
        } else {
            call.returns = Some(begins + takes);
        }
        self.at(effect, Action::Kubelet(WorkerEvent::Effect(Box::new(call))));
    }

    /// The worker gets the error at `when`.
    fn fails(&mut self, call: &Call, when: u64, why: Failed) {
        self.returns(call, when, Err(why));
    }

    fn returns(&mut self, call: &Call, when: u64, outcome: Result<Option<Id>, Failed>) {
        let reply = Reply {
            pod: call.pod,
            number: call.number,
            began: call.began,
            outcome,
        };
        self.at(when, Action::Kubelet(WorkerEvent::Reply(Box::new(reply))));
    }

    /// The operation takes effect.
    pub(super) fn effect(&mut self, call: Call) -> CheckResult {
        let now = self.now;
        let place = self.place(call.pod);
        if self.went_away(call.began) {
            self.checks.coverage.fault(Fault::OperationAborted);
            if call.returns.is_some() {
                self.fails(&call, now, Failed::Unavailable);
            }
            return Ok(());
        }
        let busy = self.node.busy[place];
        if now < busy {
            self.at(busy, Action::Kubelet(WorkerEvent::Effect(Box::new(call))));
            return Ok(());
        }
        let rng = &mut self.rng.kubelet;
        let done = self.oracle.operate(&call.operation, rng, now);
        let (pod, operation) = (call.pod, &call.operation);
        self.checks.trace.log(now, || {
            let refused = done.as_ref().err();
            format!("   runtime: pod-{pod} {operation:?} {refused:?}")
        });
        let (end, outcome) = match done {
            Ok(done) => {
                self.node.busy[place] = done.end;
                self.count_operation(&call);
                self.emit_transitions(done.transitions);
                (done.end, Ok(done.created_id))
            }
            Err(refused) => {
                self.checks.coverage.hit(CoverPoint::OperationRefused);
                (now, Err(Failed::Refused(refused)))
            }
        };
        if let Some(returns) = call.returns {
            self.returns(&call, returns.max(end), outcome);
        }
        self.no_double(&call)
    }

    /// Whether the runtime has restarted since `began` or is down.
    fn went_away(&self, began: u64) -> bool {
        let restarted = self.node.restarted >= began && self.node.restarted > 0;
        restarted || !self.node.is_up(self.now)
    }

    fn count_operation(&mut self, call: &Call) {
        let point = match &call.operation {
            Operation::RunSandbox { .. } => CoverPoint::SandboxRun,
            Operation::Create { attempt: 0, .. } => CoverPoint::ContainerCreated,
            Operation::Create { .. } => CoverPoint::ContainerRestarted,
            Operation::Start(_) => CoverPoint::ContainerStarted,
            Operation::Stop(_) => CoverPoint::ContainerStopped,
            Operation::StopSandbox(_) => CoverPoint::SandboxStopped,
            Operation::Remove(_) => CoverPoint::ContainerRemoved,
            Operation::RemoveSandbox(_) => CoverPoint::SandboxRemoved,
        };
        self.checks.coverage.hit(point);
    }

    /// What ran when the answer's read began must not run beside what is started because of that
    /// answer. Containers that a late effect started afterwards are excused.
    fn no_double(&self, call: &Call) -> CheckResult {
        let now = self.now;
        let known = call.as_of.as_nanos();
        let (own, name) = match &call.operation {
            Operation::RunSandbox { .. } => (None, ""),
            Operation::Create { name, .. } => (None, *name),
            Operation::Start(id) => (Some(id), self.oracle.object(id).map_or("", |l| l.name)),
            _ => return Ok(()),
        };
        let mut others = self.oracle.of_pod(call.pod, now).filter(|l| {
            let older = Some(&l.id) != own && l.started.is_some_and(|t| t < known);
            older && l.name == name && l.at(now) == Some(State::Running)
        });
        let other = others.next().map(|l| &l.id);
        assertions::DOUBLE_START
            .holds(other.is_none(), || {
                let (operation, as_of) = (&call.operation, call.as_of);
                format!("{operation:?} follows from an answer as of {as_of:?}, and {other:?} runs")
            })
            .map_err(|violation| violation.in_pod(Some(call.pod)))
    }

    /// The worker gets the reply.
    pub(super) fn reply(&mut self, reply: Reply) -> CheckResult {
        let pod = reply.pod;
        let mut outcome = reply.outcome;
        if outcome.is_ok() && self.went_away(reply.began) {
            // The operation took effect and its reply is lost.
            self.checks.coverage.fault(Fault::ReplyAborted);
            outcome = Err(Failed::Unavailable);
        }
        let now = self.instant();
        let kubelet = self.kubelet.as_mut();
        let Some(worker) = kubelet.and_then(|k| k.workers.get_mut(&pod)) else {
            return Ok(());
        };
        let Some(run) = worker.run() else {
            return Ok(());
        };
        let mine = run.in_flight.take_if(|(_, number)| *number == reply.number);
        let Some((step, _)) = mine else {
            return Ok(());
        };
        match (outcome, &step) {
            (Ok(Some(id)), Step::RunSandbox { .. }) => run.sandbox = Some(id),
            (Ok(Some(id)), Step::Create { .. }) => run.steps.push_front(Step::Start(id)),
            (Ok(_), _) => {}
            (Err(why), step) => {
                run.failed = true;
                let needed = matches!(
                    step,
                    Step::Stop(_) | Step::StopSandbox(_) | Step::RunSandbox { .. }
                );
                if needed {
                    run.steps.clear();
                }
                self.checks.coverage.hit(CoverPoint::OperationFailed);
                self.checks.trace.log(self.now, || {
                    format!("worker of pod-{pod}: {step:?} failed: {why:?}")
                });
            }
        }
        let kubelet = self.kubelet.as_mut();
        if let Some(worker) = kubelet.and_then(|k| k.workers.get_mut(&pod)) {
            worker.after = now;
        }
        self.next_step(pod);
        Ok(())
    }
}

/// How long an operation takes.
fn duration(rng: &mut Rng) -> u64 {
    if rng.percent(70) {
        rng.between(3, 30) * MS
    } else {
        rng.between(30, 200) * MS
    }
}
