//! The pods of the node: specs come and go, an earlier kubelet left some, and they fail at random.

use super::World;
use super::workers::{Kubelet, State, Worker};
use crate::assertions::CheckResult;
use crate::coverage::CoverPoint;
use crate::fault_profile::{MS, SECOND};
use crate::faults::Fault;
use crate::oracle::{NAMES, Operation};
use crate::pod_actions::{Policy, Spec};

impl World {
    /// The slot on the node of that pod.
    pub(super) fn place(&self, pod: usize) -> usize {
        if self.kubelet.is_some() {
            pod % (self.plan.pods + 1)
        } else {
            pod
        }
    }

    /// The pod in that slot.
    pub(super) fn pod_at(&self, place: usize) -> usize {
        let places = self.kubelet.as_ref().map(|k| &k.places);
        places.and_then(|p| p.get(place)).copied().unwrap_or(place)
    }

    /// The pods of that slot: the current one, and earlier ones that are being removed.
    pub(super) fn pods_of(&self, place: usize) -> Vec<usize> {
        let Some(kubelet) = &self.kubelet else {
            return vec![place];
        };
        let workers = kubelet.workers.keys().copied();
        workers.filter(|&pod| self.place(pod) == place).collect()
    }

    /// The number of pods so far, and the number of names per pod.
    pub(super) fn pods_and_names(&self) -> (usize, usize) {
        match self.kubelet {
            Some(_) => (self.oracle.pods(), 1 + NAMES.len()),
            None => (self.plan.pods, 3),
        }
    }

    /// What an earlier kubelet left in that slot: nothing, a pod that is still wanted, or one that is
    /// not.
    pub(super) fn inherit(&mut self, place: usize) {
        let pod = self.pod_at(place);
        let rng = &mut self.rng.kubelet;
        if rng.percent(50) {
            return;
        }
        let unwanted = rng.percent(20);
        let mut at = rng.between(0, SECOND / 2);
        let mut run_operation = |world: &mut Self, operation| {
            let rng = &mut world.rng.kubelet;
            let done = world.oracle.operate(&operation, rng, at).ok()?;
            at = done.end + MS;
            world.emit_transitions(done.transitions);
            done.created_id
        };
        let sandbox = run_operation(self, Operation::RunSandbox { pod, attempt: 0 });
        let names = self.rng.kubelet.between(0, NAMES.len() as u64) as usize;
        for name in &NAMES[..names] {
            let Some(sandbox) = sandbox.clone() else {
                break;
            };
            let attempt = 0;
            let create = Operation::Create {
                sandbox,
                name,
                attempt,
            };
            if let Some(id) = run_operation(self, create)
                && self.rng.kubelet.percent(80)
            {
                run_operation(self, Operation::Start(id));
            }
        }
        if let Some(sandbox) = sandbox
            && self.rng.kubelet.percent(20)
        {
            run_operation(self, Operation::StopSandbox(sandbox));
        }
        self.checks.coverage.hit(CoverPoint::InheritedPods);
        if unwanted {
            self.next_pod(place);
        }
    }

    /// A new pod takes the slot: with a new uid or, like a static pod, with the same.
    pub(super) fn next_spec(&mut self, place: usize) {
        let same = self.rng.kubelet.percent(25);
        let exists = |k: &Kubelet| k.workers.contains_key(&k.places[place]);
        if !same || self.kubelet.as_ref().is_some_and(exists) {
            self.next_pod(place);
        }
        self.new_spec(place);
    }

    /// A pod with a new uid takes the slot.
    pub(super) fn next_pod(&mut self, place: usize) {
        let pods = self.plan.pods;
        let kubelet = self.kubelet.as_mut();
        if let Some(pod) = kubelet.and_then(|k| k.places.get_mut(place)) {
            *pod += pods + 1;
        }
    }

    /// Gives the pod in the slot a spec and a worker.
    pub(super) fn new_spec(&mut self, place: usize) {
        let rng = &mut self.rng.kubelet;
        let policies = [
            Policy::Always,
            Policy::Always,
            Policy::OnFailure,
            Policy::Never,
        ];
        let names = &NAMES[..rng.between(1, NAMES.len() as u64) as usize];
        let policy = rng.pick(&policies);
        let spec = Spec { policy, names };
        let pod = self.pod_at(place);
        let Some(kubelet) = &mut self.kubelet else {
            return;
        };
        kubelet.workers.insert(pod, Worker::new(Some(spec)));
        if self.oracle.of_pod(pod, self.now).next().is_none() {
            self.oracle.forget(pod);
        }
        self.checks.coverage.hit(CoverPoint::SpecNew);
        self.checks
            .log(self.now, || format!("pod-{pod} is to be {spec:?}"));
        self.wake(pod);
    }

    /// Deletes the pod.
    pub(super) fn delete_spec(&mut self, pod: usize) -> CheckResult {
        let Some(worker) = self.worker(pod) else {
            return Ok(());
        };
        let waits = match worker.state {
            State::Waiting(waiter, _) => Some(waiter),
            _ => None,
        };
        if worker.spec.take().is_none() {
            return Ok(());
        }
        self.checks.coverage.hit(CoverPoint::SpecDeleted);
        self.checks
            .log(self.now, || format!("pod-{pod} is deleted"));
        if let Some(waiter) = waits {
            // It starts over with a new wait.
            let _ = self.worker_of(waiter);
            self.cancel_wait(pod, waiter)?;
        }
        self.wake(pod);
        Ok(())
    }

    /// Something happens to a pod that its worker did not cause: a process or sandbox is killed, or
    /// the pod is deleted.
    pub(super) fn disturb(&mut self, place: usize) -> CheckResult {
        let now = self.now;
        let pod = self.pod_at(place);
        if now < self.node.busy[place] {
            return Ok(());
        }
        let transitions = match self.rng.node.below(24) {
            0..=6 => self.oracle.exit_one(pod, &mut self.rng.node, now),
            7 => self.oracle.end_sandbox(pod, &mut self.rng.node, now),
            8 => return self.delete_spec(pod),
            _ => return Ok(()),
        };
        let Some(last) = transitions.last() else {
            return Ok(());
        };
        self.node.busy[place] = last.at + MS;
        if self.node.is_up(now) {
            self.emit_transitions(transitions);
        } else {
            self.checks.coverage.fault(Fault::WhileRuntimeDown);
            self.log_transitions(&transitions);
        }
        Ok(())
    }

    /// Deletes every pod; the workers remove them.
    pub(super) fn delete_everything(&mut self) -> CheckResult {
        let workers = self.kubelet.iter().flat_map(|k| k.workers.keys().copied());
        for pod in workers.collect::<Vec<_>>() {
            self.delete_spec(pod)?;
            self.wake(pod);
        }
        Ok(())
    }
}
