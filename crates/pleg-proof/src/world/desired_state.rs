//! The goals of the pod workers: every container runs that its policy wants to run, nothing of a
//! deleted pod exists, and no worker keeps an old status for long.

use pleg_core::Kind;

use super::World;
use super::workers::Worker;
use crate::assertions::CheckResult;
use crate::assertions::workers as assertions;
use crate::checks::states;
use crate::fault_profile::SECOND;
use crate::faults::Fault;
use crate::oracle::{Object, State};
use crate::pod_actions::{Policy, Spec};

impl World {
    /// Suspends or resumes all workers.
    pub fn suspend_workers(&mut self, suspended: bool) {
        if let Some(kubelet) = &mut self.kubelet {
            kubelet.awake_since = self.now;
            kubelet.suspended = suspended;
        }
    }

    /// Runs until the workers have converged.
    ///
    /// # Errors
    /// They have not converged in time.
    pub fn converge(&mut self) -> CheckResult {
        if self.kubelet.is_none() {
            return Ok(());
        }
        for _ in 0..self.time_to_converge() {
            self.run(SECOND)?;
            if self.unconverged().is_none() {
                return Ok(());
            }
        }
        match self.unconverged() {
            Some((pod, what)) => Err(assertions::WORKERS_CONVERGE
                .violated(what)
                .in_pod(Some(pod))),
            None => Ok(()),
        }
    }

    /// How many seconds workers need at most after the last fault.
    fn time_to_converge(&self) -> u64 {
        let plan = &self.plan;
        let any = |faults: &[Fault]| faults.iter().any(|&f| plan.fault_profile.percent(f) > 0);
        // The backoff of a worker, an operation that hangs, a late effect, and reads.
        let mut seconds = 25;
        if plan.runtime.streams() && any(&SILENT_LOSSES) {
            // Only the next list finds what was lost without a sign.
            seconds += plan.list_limits.0;
        }
        if any(&[Fault::ListHangs, Fault::ListOutage]) {
            // A list that hangs ends at its deadline.
            seconds += 120;
        }
        if any(&POD_FAILURES) {
            // A pod whose reads failed has its own backoff.
            seconds += 60;
        }
        seconds
    }

    /// A pod that has not converged, and why.
    fn unconverged(&self) -> Option<(usize, String)> {
        let kubelet = self.kubelet.as_ref()?;
        for (&pod, worker) in &kubelet.workers {
            let wrong = match &worker.spec {
                None => Some("is deleted, and its worker goes on".to_owned()),
                Some(spec) => self.missing_of(pod, spec),
            };
            let wrong = wrong.or_else(|| self.status_difference(pod, worker));
            let busy = || (!worker.is_idle()).then(|| format!("is not at rest: {worker:?}"));
            if let Some(what) = wrong.or_else(busy) {
                return Some((pod, format!("pod-{pod} {what}")));
            }
        }
        let mut exist = self.oracle.all_recent().filter(|l| l.exists(self.now));
        let orphan = exist.find(|l| !kubelet.workers.contains_key(&l.pod))?;
        Some((orphan.pod, format!("{} exists, and no worker", orphan.id)))
    }

    /// How the worker's last status differs from the oracle.
    fn status_difference(&self, pod: usize, worker: &Worker) -> Option<String> {
        let status = worker.status.as_deref()?;
        let wrong = states(status).find(|(id, state)| {
            let real = self.oracle.object(id).and_then(|l| l.at(self.now));
            *state != real
        });
        if let Some((id, state)) = wrong {
            return Some(format!("believes that {id} is {state:?}"));
        }
        let mut exist = self.oracle.of_pod(pod, self.now);
        let unknown = exist.find(|l| states(status).all(|(id, _)| *id != l.id))?;
        Some(format!("does not know of {}", unknown.id))
    }

    /// What a pod with that spec lacks.
    fn missing_of(&self, pod: usize, spec: &Spec) -> Option<String> {
        let (now, policy) = (self.now, spec.policy);
        let of_kind = |kind| {
            let objects = self.oracle.of_pod(pod, now).filter(move |l| l.kind == kind);
            objects.collect::<Vec<&Object>>()
        };
        let containers = of_kind(Kind::Container);
        let sandbox = of_kind(Kind::Sandbox).into_iter().max_by_key(|l| l.created);
        let ready = sandbox.filter(|s| s.at(now) == Some(State::Running));
        // Upstream creates no second sandbox for a pod that is not restarted.
        if policy == Policy::Never && sandbox.is_some() && ready.is_none() && !containers.is_empty()
        {
            return None;
        }
        for &name in spec.names {
            let of_name = containers.iter().filter(|l| l.name == name);
            let newest = of_name.clone().max_by_key(|l| l.created);
            let runs = of_name.clone().any(|l| {
                let in_ready = l.sandbox.as_ref() == ready.map(|s| &s.id);
                l.at(now) == Some(State::Running) && in_ready
            });
            let done = newest.is_some_and(|l| l.at(now) == Some(State::Exited))
                && match policy {
                    Policy::Always => false,
                    Policy::OnFailure => newest.is_some_and(|l| l.code == 0),
                    Policy::Never => true,
                };
            if !runs && !done {
                let newest = newest.map(|l| (&l.id, l.at(now)));
                return Some(format!("({policy:?}) does not run {name}: {newest:?}"));
            }
        }
        None
    }

    /// Checks that no worker takes a container for running that exited too long ago.
    pub(super) fn deaths_noticed(&self) -> CheckResult {
        let Some(kubelet) = self.kubelet.as_ref().filter(|k| !k.suspended) else {
            return Ok(());
        };
        let Some(bound) = self.notice_bound() else {
            return Ok(());
        };
        for (&pod, worker) in &kubelet.workers {
            self.believes_running(pod, worker, kubelet.awake_since, bound)?;
        }
        Ok(())
    }

    /// How long an exit may stay unnoticed under the faults of this world: until its event arrives or
    /// the next list ends. None: the faults give no bound.
    fn notice_bound(&self) -> Option<u64> {
        let plan = &self.plan;
        let any = |faults: &[Fault]| faults.iter().any(|&f| plan.fault_profile.percent(f) > 0);
        let lists = [
            Fault::ListFails,
            Fault::ListLost,
            Fault::ListHangs,
            Fault::ListOutage,
        ];
        if any(&POD_FAILURES) || any(&lists) {
            return None;
        }
        // A slow list and a slow inspection, or a late event and a busy writer.
        let reads = 11 * SECOND;
        // The worker may be in backoff, with an operation that hangs.
        let worker = 20 * SECOND;
        // The last phase drops one event, whatever the faults.
        let silent = plan.runtime.streams() && (any(&SILENT_LOSSES) || !self.workload_running);
        let period = if silent { plan.list_limits.0 } else { 1 };
        Some(period * SECOND + reads + worker)
    }

    fn believes_running(&self, pod: usize, worker: &Worker, awake: u64, bound: u64) -> CheckResult {
        let Some(status) = &worker.status else {
            return Ok(());
        };
        for (id, state) in states(status) {
            if state != Some(State::Running) {
                continue;
            }
            let ended = self.oracle.object(id).and_then(|l| l.exited.or(l.removed));
            let since = ended.map(|t| t.max(self.node.up_since()).max(awake));
            let unnoticed = since.is_some_and(|since| self.now > since + bound);
            assertions::DEATH_NOTICED
                .holds(!unnoticed, || {
                    let seconds = bound / SECOND;
                    format!("{id} ended {seconds} s ago, and its worker believes that it runs")
                })
                .map_err(|violation| violation.in_pod(Some(pod)))?;
        }
        Ok(())
    }
}

/// Faults that lose an event without a sign.
const SILENT_LOSSES: [Fault; 8] = [
    Fault::Dropped,
    Fault::SilentStream,
    Fault::SecondSubscriber,
    Fault::UnknownEventType,
    // A dead subscriber stays and takes events (containerd 1.7). A reader that falls too far behind
    // ends the stream as well.
    Fault::Disconnect,
    Fault::ReaderPanics,
    Fault::BusyWriter,
    Fault::Burst,
];

/// Faults that make the reads of one pod fail while others succeed.
const POD_FAILURES: [Fault; 10] = [
    Fault::InspectionFails,
    Fault::InspectionPartial,
    Fault::InspectionHangs,
    Fault::StatusReadFails,
    Fault::UnknownInRead,
    Fault::HungPod,
    Fault::AllPodsHung,
    Fault::StatusNotFound,
    Fault::StatusFails,
    Fault::StatusHidden,
];
