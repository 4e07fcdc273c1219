//! The pod workers of a sequence: each waits for the status of its pod and acts on the answer only.
//! `pod_actions` decides what to do.

use std::collections::{BTreeMap, VecDeque};

use pleg_core::{CallError, Output, PodView, WaiterId};
use pleg_proof::pod_actions::{Policy, Spec, Step, decide};

use super::checks::hold;
use super::harness::{Harness, Violation};
use super::node::{Node, State};
use super::ops::{Name, Op, Pod};

/// Every pod has two containers, which always run.
const SPEC: Spec = Spec {
    policy: Policy::Always,
    names: &["app", "log"],
};

/// All pod workers; none in a sequence without a kubelet.
#[derive(Default)]
pub struct Kubelet {
    workers: BTreeMap<Pod, Worker>,
}

#[derive(Debug, Default)]
struct Worker {
    /// The pod is deleted.
    deleted: bool,
    /// An answer showed that nothing of the deleted pod exists.
    ended: bool,
    /// An announcement or its own change woke it.
    woken: bool,
    /// When its last own change ended. An answer has to be newer.
    after: u64,
    waits: Option<WaiterId>,
    /// The rest of its run.
    steps: VecDeque<Step>,
}

impl Kubelet {
    pub fn new(node: &Node) -> Self {
        let worker = |pod| {
            let woken = true;
            (
                pod,
                Worker {
                    woken,
                    ..Worker::default()
                },
            )
        };
        let pods = Pod::REAL.into_iter().filter(|_| node.world.kubelet);
        Self {
            workers: pods.map(worker).collect(),
        }
    }

    /// What a worker can do now.
    pub fn next(&self) -> Option<Op> {
        self.workers.iter().find_map(|(&pod, worker)| {
            let runs = worker.woken && worker.waits.is_none();
            match worker.steps.is_empty() {
                false => Some(Op::Operate(pod)),
                true => runs.then_some(Op::RunWorker {
                    pod,
                    periodic: false,
                }),
            }
        })
    }

    fn wake(&mut self, pod: Pod) {
        if let Some(worker) = self.workers.get_mut(&pod) {
            worker.woken = !worker.ended;
        }
    }
}

impl Harness {
    /// An announcement wakes a worker, and an answer goes to the worker that waits for it.
    pub fn tell_workers(&mut self, node: &Node, output: Output) -> Result<(), Violation> {
        match output {
            Output::Announce(event) => {
                let pod = Pod::REAL.into_iter().find(|pod| pod.uid() == event.uid);
                if let Some(pod) = pod {
                    self.kubelet.wake(pod);
                }
                Ok(())
            }
            Output::Answer { waiter, answer } => {
                let mut workers = self.kubelet.workers.iter_mut();
                let waits = workers.find(|(_, w)| w.waits == Some(waiter));
                let Some((&pod, worker)) = waits else {
                    return Ok(());
                };
                worker.waits = None;
                self.worker_answered(node, pod, answer)
            }
            _ => Ok(()),
        }
    }

    fn worker_answered(
        &mut self,
        node: &Node,
        pod: Pod,
        answer: Result<PodView, CallError>,
    ) -> Result<(), Violation> {
        let Some(worker) = self.kubelet.workers.get_mut(&pod) else {
            return Ok(());
        };
        let Ok(view) = answer else {
            // It tries again.
            worker.woken = true;
            return Ok(());
        };
        if worker.deleted && view.status.is_nothing() {
            (worker.ended, worker.woken) = (true, false);
            let mut left = node.objects.iter();
            let left = left.find(|l| l.pod == pod && l.exists(node.now));
            hold!(
                left.is_none(),
                "invariant-3-nothing-left-behind",
                "the worker of {pod:?} ends and leaves {left:?}"
            );
            return Ok(());
        }
        let spec = (!worker.deleted).then_some(&SPEC);
        worker.steps = decide(spec, &view.status).steps.into();
        let steps = worker.steps.clone();
        self.checks.note(self.now(), || {
            format!("    the worker of {pod:?}: {steps:?}")
        });
        Ok(())
    }

    /// Applies an operation of a sequence that belongs to a worker, if it can; `node` changes with it.
    pub fn apply_to_workers(&mut self, node: &mut Node, op: &Op) -> Result<(), Violation> {
        match *op {
            Op::Operate(pod) => self.operate(node, pod),
            Op::RunWorker { pod, periodic } => self.run_worker(node, pod, periodic),
            Op::DeletePod(pod) => {
                if let Some(worker) = self.kubelet.workers.get_mut(&pod) {
                    worker.deleted = true;
                    worker.woken = !worker.ended;
                    if let Some(waiter) = worker.waits.take() {
                        self.cancel(waiter);
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The worker waits for a status that is newer than its last change or, if the run is periodic,
    /// than now.
    fn run_worker(&mut self, node: &Node, pod: Pod, periodic: bool) -> Result<(), Violation> {
        let now = self.now();
        let Some(worker) = self.kubelet.workers.get_mut(&pod) else {
            return Ok(());
        };
        let busy = worker.waits.is_some() || !worker.steps.is_empty() || worker.ended;
        if busy || !(periodic || worker.woken) {
            return Ok(());
        }
        if periodic {
            worker.after = now;
        }
        let after = worker.after;
        let waiter = self.next_waiter();
        if let Some(worker) = self.kubelet.workers.get_mut(&pod) {
            (worker.woken, worker.waits) = (false, Some(waiter));
        }
        self.wait(node, waiter, pod, after)
    }

    /// The worker performs its next operation.
    fn operate(&mut self, node: &mut Node, pod: Pod) -> Result<(), Violation> {
        let Some(worker) = self.kubelet.workers.get_mut(&pod) else {
            return Ok(());
        };
        let Some(step) = worker.steps.pop_front() else {
            return Ok(());
        };
        no_double_start(node, pod, &step)?;
        let done = node.operate(pod, &step);
        match (done, step) {
            (Some(Some(created)), Step::Create { .. }) => {
                worker.steps.push_front(Step::Start(created));
            }
            (Some(_), _) => {}
            (None, _) => worker.steps.clear(),
        }
        if worker.steps.is_empty() {
            (worker.after, worker.woken) = (node.now, true);
        }
        Ok(())
    }

    /// What keeps a worker from being at rest with what its pod should be.
    pub fn unconverged(&self, node: &Node) -> Option<String> {
        let mut workers = self.kubelet.workers.iter();
        workers.find_map(|(&pod, worker)| {
            let objects = node.objects.iter().filter(|l| l.pod == pod);
            let running = |name| {
                let mut of_name = objects.clone().filter(move |l| l.name == name);
                of_name.any(|l| l.at(node.now) == Some(State::Running))
            };
            let runs = [None, Some(Name::App), Some(Name::Log)].map(running);
            let right = if worker.deleted {
                worker.ended && !objects.clone().any(|l| l.exists(node.now))
            } else {
                runs == [true; 3]
            };
            let rests = !worker.woken && worker.waits.is_none() && worker.steps.is_empty();
            (!right || !rests).then(|| format!("{pod:?}: runs {runs:?}, {worker:?}"))
        })
    }

    /// Nothing wakes the workers any more.
    pub fn stop_workers(&mut self) {
        self.kubelet.workers.clear();
    }
}

/// Nothing is started beside another container of its name, or another sandbox, that runs.
fn no_double_start(node: &Node, pod: Pod, step: &Step) -> Result<(), Violation> {
    let (own, name) = match step {
        Step::RunSandbox { .. } => (None, None),
        Step::Create { name, .. } => (None, Name::named(name)),
        Step::Start(id) => (Some(id), node.object(id).and_then(|l| l.name)),
        _ => return Ok(()),
    };
    let mut others = node
        .objects
        .iter()
        .filter(|l| l.pod == pod && l.name == name);
    let other = others.find(|l| Some(&l.id) != own && l.at(node.now) == Some(State::Running));
    hold!(
        other.is_none(),
        "invariant-3-double-start",
        "{step:?} follows from an answer, and {other:?} runs"
    );
    Ok(())
}
