//! The pod workers of a small world: each waits for the status of its pod, acts on the answer only,
//! and is woken by announcements. `pod_actions` decides what to do.

use std::collections::VecDeque;

use pleg_core::{CallError, Id, Kind, Output, PodView, WaiterId};

use super::checks::Input;
use super::execution::Execution;
use super::scenario::{ObjectIndex, Snapshot, Stage, Step};
use super::state::{Action, State};
use super::world_model::WorldModel;
use crate::pod_actions::{self, Policy, Spec, decide};

/// Every pod has one container, which always runs.
const SPEC: Spec = Spec {
    policy: Policy::Always,
    names: &["app"],
};

/// The worker of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Worker {
    /// The pod is deleted.
    deleted: bool,
    /// An answer showed that nothing of the deleted pod exists.
    ended: bool,
    /// An announcement or its own change woke it.
    woken: bool,
    /// When its last own change ended, and the true state then. An answer has to be newer.
    after: u64,
    oracle: Snapshot,
    waits: Option<WaiterId>,
    /// The rest of its run.
    steps: VecDeque<Step>,
}

impl Worker {
    /// Whether it is in a run.
    pub fn is_acting(&self) -> bool {
        !self.steps.is_empty()
    }

    fn may_run(&self) -> bool {
        self.woken && !self.ended && self.waits.is_none() && self.steps.is_empty()
    }

    /// Whether it can do nothing before an answer or an announcement.
    pub fn is_idle(&self) -> bool {
        !self.is_acting() && !self.may_run()
    }
}

/// The possible actions of the workers. `may_step`: the node may change.
pub fn actions(state: &State, may_step: bool, actions: &mut Vec<Action>) {
    for (pod, worker) in state.workers.iter().enumerate() {
        if worker.may_run() {
            actions.push(Action::RunWorker { pod });
        }
        if may_step && worker.is_acting() {
            actions.push(Action::Operate { pod });
        }
        if state.left.resyncs > 0 && !worker.ended {
            actions.push(Action::Resync { pod });
        }
        if state.left.deletions > 0 && !worker.deleted {
            actions.push(Action::DeletePod { pod });
        }
    }
}

impl Execution<'_> {
    /// The pod is announced, or its worker has changed it.
    fn wake(&mut self, pod: usize) {
        if let Some(worker) = self.state.workers.get_mut(pod) {
            worker.woken = !worker.ended;
        }
    }

    /// A periodic run, which needs a status newer than now.
    pub fn resync(&mut self, pod: usize) {
        self.state.left.resyncs -= 1;
        self.changed(pod);
        self.log(|p| format!("the worker of {} runs periodically", p.model.pods[pod]));
    }

    /// An answer must be newer than now.
    fn changed(&mut self, pod: usize) {
        let worker = &mut self.state.workers[pod];
        (worker.after, worker.oracle) = (self.state.now, self.state.oracle);
        self.wake(pod);
    }

    pub fn delete_pod(&mut self, pod: usize) {
        self.state.left.deletions -= 1;
        self.log(|p| format!("{} is deleted", p.model.pods[pod]));
        let worker = &mut self.state.workers[pod];
        worker.deleted = true;
        if let Some(waiter) = worker.waits.take() {
            self.state.checks.cancelled(waiter);
            self.state.reconciler.cancel(waiter);
            self.drain(Input::Request);
        }
        self.wake(pod);
    }

    /// The worker waits for a status that is newer than its last change.
    pub fn run_worker(&mut self, pod: usize) {
        let waiter = self.next_waiter();
        let worker = &mut self.state.workers[pod];
        (worker.woken, worker.waits) = (false, Some(waiter));
        let (after, oracle) = (worker.after, worker.oracle);
        self.log(|p| {
            let (uid, after) = (&p.model.pods[pod], p.when(after));
            format!("the worker of {uid} asks for what is newer than {after}")
        });
        self.wait_for(waiter, pod, (after, &oracle));
    }

    /// An announcement wakes a worker, and an answer goes to the worker that waits for it.
    pub fn tell_workers(&mut self, output: Output) {
        match output {
            Output::Announce(event) => {
                let pod = self.model.pods.iter().position(|uid| *uid == event.uid);
                if let Some(pod) = pod {
                    self.wake(pod);
                }
            }
            Output::Answer { waiter, answer } => {
                let mut workers = self.state.workers.iter();
                if let Some(pod) = workers.position(|w| w.waits == Some(waiter)) {
                    self.state.workers[pod].waits = None;
                    self.answered(pod, answer);
                }
            }
            _ => {}
        }
    }

    fn answered(&mut self, pod: usize, answer: Result<PodView, CallError>) {
        let Ok(view) = answer else {
            // It tries again.
            return self.wake(pod);
        };
        let worker = &self.state.workers[pod];
        if worker.deleted && view.status.is_nothing() {
            return self.end_worker(pod);
        }
        let spec = (!worker.deleted).then_some(&SPEC);
        let decided = decide(spec, &view.status).steps;
        match steps(self.model, &self.state.oracle, pod, &decided) {
            Ok(steps) => {
                self.log(|p| {
                    let steps: Vec<String> = steps.iter().map(|s| p.name(*s)).collect();
                    format!("the worker decides: [{}]", steps.join(", "))
                });
                self.state.workers[pod].steps = steps;
            }
            Err(violation) => self.violated(violation),
        }
    }

    /// The worker performs its next operation.
    pub fn operate(&mut self, pod: usize) {
        let Some(step) = self.state.workers[pod].steps.pop_front() else {
            return;
        };
        if let Some(violation) = self.double_start(step) {
            return self.violated(violation);
        }
        match self.effects(step) {
            Some(effects) => {
                for effect in effects {
                    self.node_step(effect);
                }
            }
            None => {
                self.log(|p| format!("refused: {}", p.name(step)));
                self.state.workers[pod].steps.clear();
            }
        }
        if self.state.workers[pod].steps.is_empty() {
            self.changed(pod);
        }
    }

    /// Nothing is started beside another container of its name, or another sandbox, that runs.
    fn double_start(&self, Step(object, to): Step) -> Option<String> {
        let (model, oracle) = (self.model, &self.state.oracle);
        let mut others = model.of_pod(model.pod_of(object)).filter(|&o| {
            o != object && model.kind(o) == model.kind(object) && oracle[o] == Stage::Running
        });
        let starts = matches!(to, Stage::Created | Stage::Running);
        let other = others.next().filter(|_| starts)?;
        let (id, other) = (&model.ids[object], &model.ids[other]);
        Some(format!(
            "invariant 3: {id} is started because of an answer, and {other} runs"
        ))
    }

    /// What an operation does; none: the runtime refuses it.
    fn effects(&self, Step(object, to): Step) -> Option<Vec<Step>> {
        let (model, oracle) = (self.model, &self.state.oracle);
        let sandbox = model.world.scenario.objects[object].sandbox;
        let ready = |s: ObjectIndex| oracle[s] == Stage::Running;
        let is = oracle[object];
        let possible = match to {
            Stage::Created => is == Stage::Absent && sandbox.is_some_and(ready),
            Stage::Running => match sandbox {
                Some(sandbox) => is == Stage::Created && ready(sandbox),
                None => is == Stage::Absent,
            },
            // Stopping or removing something that does not run or exist succeeds.
            Stage::Exited if is != Stage::Running => return Some(Vec::new()),
            Stage::Removed if !is.exists() => return Some(Vec::new()),
            Stage::Exited | Stage::Removed => true,
            Stage::Absent => false,
        };
        let inside = |&o: &ObjectIndex| model.world.scenario.objects[o].sandbox == Some(object);
        let mut effects = Vec::new();
        for o in (0..model.ids.len()).filter(inside) {
            if to >= Stage::Exited && oracle[o] == Stage::Running {
                effects.push(Step(o, Stage::Exited));
            }
            if to == Stage::Removed && oracle[o].exists() {
                effects.push(Step(o, Stage::Removed));
            }
        }
        if to == Stage::Removed && is == Stage::Running {
            effects.push(Step(object, Stage::Exited));
        }
        effects.push(Step(object, to));
        possible.then_some(effects)
    }

    /// The answer shows nothing of a deleted pod.
    fn end_worker(&mut self, pod: usize) {
        let left = self.left_of(pod);
        if let Some(id) = left {
            return self.violated(format!(
                "invariant 3: the worker of a deleted pod ends, and {id} exists"
            ));
        }
        let uid = &self.model.pods[pod];
        self.state.workers[pod] = Worker {
            deleted: true,
            ended: true,
            ..Worker::default()
        };
        self.log(|_| format!("the worker of {uid} ends"));
    }

    fn left_of(&self, pod: usize) -> Option<Id> {
        let oracle = &self.state.oracle;
        let left = self.model.of_pod(pod).find(|&o| oracle[o].exists());
        left.map(|o| self.model.ids[o].clone())
    }

    /// Every instant is the same to a worker once the cache is newer.
    pub fn forget_old_changes(&mut self) {
        for (pod, worker) in self.state.workers.iter_mut().enumerate() {
            if self.state.checks.cache[pod].as_of > Some(worker.after) {
                (worker.after, worker.oracle) = (0, Snapshot::default());
            }
        }
    }

    /// At rest the container of every pod runs, and nothing of a deleted pod exists.
    ///
    /// # Errors
    /// A worker believes something else.
    pub fn check_workers(&self) -> Result<(), String> {
        for (pod, worker) in self.state.workers.iter().enumerate() {
            let uid = &self.model.pods[pod];
            if !worker.is_idle() || worker.waits.is_some() || worker.deleted != worker.ended {
                return Err(format!(
                    "invariant 10: the worker of {uid} is not at rest: {worker:?}"
                ));
            }
            let runs = |kind: Kind| {
                let of_kind = self
                    .model
                    .of_pod(pod)
                    .filter(|&o| self.model.kind(o) == kind);
                of_kind
                    .filter(|&o| self.state.oracle[o] == Stage::Running)
                    .count()
            };
            let (sandboxes, containers) = (runs(Kind::Sandbox), runs(Kind::Container));
            if !worker.deleted && (sandboxes, containers) != (1, 1) {
                return Err(format!(
                    "invariant 10: at rest {sandboxes} sandboxes and {containers} containers of \
                     {uid} run, and its worker believes that one does"
                ));
            }
            if let Some(id) = self.left_of(pod).filter(|_| worker.deleted) {
                return Err(format!("invariant 3: {uid} is deleted, and {id} exists"));
            }
        }
        Ok(())
    }
}

/// The steps of a decision. A sandbox or container is created with the next attempt, as the status or
/// the log directory gives it.
fn steps(
    model: &WorldModel,
    oracle: &Snapshot,
    pod: usize,
    decided: &[pod_actions::Step],
) -> Result<VecDeque<Step>, String> {
    use pod_actions::Step::{Create, Remove, RemoveSandbox, RunSandbox, Start, Stop, StopSandbox};
    let created = |kind: Kind, attempt: Option<u32>| {
        let fits = |&o: &ObjectIndex| {
            let object = &model.world.scenario.objects[o];
            let next = attempt.map_or(oracle[o] == Stage::Absent, |n| object.attempt == n);
            model.kind(o) == kind && next
        };
        let found = model.of_pod(pod).find(fits);
        found.ok_or_else(|| format!("the scenario has no {kind:?} of attempt {attempt:?}"))
    };
    let existing = |id: &Id| model.index_of(id).ok_or_else(|| format!("{id} is unknown"));
    let mut steps = VecDeque::new();
    for step in decided {
        match step {
            Stop(id) | StopSandbox(id) => steps.push_back(Step(existing(id)?, Stage::Exited)),
            Remove(id) | RemoveSandbox(id) => steps.push_back(Step(existing(id)?, Stage::Removed)),
            Start(id) => steps.push_back(Step(existing(id)?, Stage::Running)),
            RunSandbox { attempt } => {
                let sandbox = created(Kind::Sandbox, Some(*attempt))?;
                steps.push_back(Step(sandbox, Stage::Running));
            }
            Create { attempt, .. } => {
                let container = created(Kind::Container, *attempt)?;
                steps.push_back(Step(container, Stage::Created));
                steps.push_back(Step(container, Stage::Running));
            }
        }
    }
    Ok(steps)
}
