//! Pod workers, as in a kubelet: each waits for a view of its pod, decides what to do, and makes one call.

use pleg_core::{CallError, Instant, LifecycleType, PodLifecycleEvent, PodView, WaiterId};
use pleg_node_model::{Label, State};
use std::fmt::Write as _;

use super::{Act, EPOCH, MS, Phase, World};
use crate::choose::Dice;
use crate::faults::Fault;
use crate::worker::{Op, Policy, Spec, decide};

/// A pod and its worker.
#[derive(Clone, Debug, Hash)]
pub(super) struct PodWorker {
    pub(super) spec: Spec,
    /// The instant at which the worker's last call ended. The worker acts only on a view from a later instant.
    changed: u64,
    /// The waiter that waits for a view, and the instant after which the view must have been read.
    waiting: Option<(WaiterId, u64)>,
    is_busy: bool,
    waiters: u64,
}

impl PodWorker {
    pub(super) fn new(n: usize, names: usize, policy: Policy) -> Self {
        let names = (0..names).map(|n| format!("c{n}")).collect();
        Self {
            spec: Spec {
                names,
                policy,
                deleted: false,
            },
            changed: EPOCH,
            waiting: None,
            is_busy: false,
            waiters: (n as u64) << 32,
        }
    }
}

/// The uid of the pod with the number `pod`.
pub(crate) fn pod_uid(pod: usize) -> String {
    format!("p{pod}")
}

impl World {
    /// Makes a worker wait for a view that was read after its last call.
    pub(super) fn wait(&mut self, dice: &mut Dice<'_>, pod: usize) {
        let worker = &self.pods[pod];
        if worker.waiting.is_some() || worker.is_busy {
            return;
        }
        let after = match self.fault(dice, Fault::FutureWait) {
            true => self.now + dice.ms(0, 50),
            false => self.pods[pod].changed,
        };
        let worker = &mut self.pods[pod];
        worker.waiters += 1;
        let waiter = WaiterId::new(worker.waiters);
        worker.waiting = Some((waiter, after));
        let uid = pod_uid(pod).as_str().into();
        let since = after.saturating_sub(EPOCH) as f64 / MS as f64;
        self.log(|| format!("wait p{pod} after {since:.3} {waiter:?}"));
        self.checker.waits(self.now, waiter, &uid, after);
        let (now, after) = (self.at(), Instant::from_nanos(after));
        match self.fault(dice, Fault::DetailsRead) {
            true => self.core.wait_for_details(now, waiter, &uid, after),
            false => self.core.wait(now, waiter, &uid, after),
        }
    }

    pub(super) fn answered(
        &mut self,
        dice: &mut Dice<'_>,
        waiter: WaiterId,
        answer: Result<PodView, CallError>,
    ) {
        let number = waiter;
        let text = answer.as_ref().map(summary).map_err(|e| e.kind);
        self.log(|| format!("answer of {number:?}: {text:?}"));
        self.coverage.point(if answer.is_ok() {
            "answer"
        } else {
            "answer with an error"
        });
        self.checker.answered(self.now, number, &answer, &self.node);
        let mut pods = self.pods.iter();
        let Some(pod) = pods.position(|p| p.waiting.is_some_and(|(w, _)| w == number)) else {
            return;
        };
        let Some((_, after)) = self.pods[pod].waiting.take() else {
            return;
        };
        if self.is_small && !self.has_worker {
            return;
        }
        let Ok(view) = answer else {
            let after = dice.ms(100, 1_000);
            return self.later(after, Act::Wake(pod));
        };
        // The worker has made a call, or was restarted, after the wait began. It needs a newer view.
        if self.pods[pod].is_busy || after < self.pods[pod].changed {
            return self.later(0, Act::Wake(pod));
        }
        let collect = !self.is_small && dice.chance(300);
        let Some(op) = decide(&self.pods[pod].spec, &view.status, collect) else {
            let after = dice.ms(1_000, 10_000);
            return self.later(after, Act::Wake(pod));
        };
        self.pods[pod].is_busy = true;
        let begins = match self.fault(dice, Fault::SlowWorker) {
            true => dice.ms(30, 2_000),
            false => dice.ms(0, 30),
        };
        self.later(begins, Act::Perform(pod, op));
    }

    /// Makes a call of a worker. With the fault `LateWrite`, it times out for the worker and takes effect later.
    pub(super) fn perform(&mut self, dice: &mut Dice<'_>, pod: usize, op: Op) {
        if self.is_down {
            let after = dice.ms(100, 1_000);
            return self.later(after, Act::Done(pod));
        }
        if self.fault(dice, Fault::LateWrite) {
            let times_out = dice.ms(100, 2_000);
            let late = dice.ms(0, 2_000);
            self.log(|| format!("WORKER p{pod} {op:?} times out"));
            self.later(times_out, Act::Done(pod));
            return self.later(times_out + late, Act::Effect(op, pod));
        }
        self.log(|| format!("WORKER p{pod} {op:?}"));
        self.effect(dice, pod, op, false);
        let after = dice.ms(0, 20);
        self.later(after, Act::Done(pod));
    }

    /// Makes a timed-out call of a worker take effect, unless the runtime is down.
    pub(super) fn take_effect(&mut self, dice: &mut Dice<'_>, pod: usize, op: Op) {
        if !self.is_down {
            self.log(|| format!("WORKER p{pod} {op:?} takes effect late"));
            self.effect(dice, pod, op, true);
        }
    }

    fn effect(&mut self, dice: &mut Dice<'_>, pod: usize, op: Op, is_late: bool) {
        match op {
            Op::RunSandbox { attempt } => {
                self.coverage.point("worker runs a sandbox");
                if !is_late {
                    self.checker
                        .runs_sandbox(self.now, &pod_uid(pod), &self.node);
                }
                if let Some(id) = self.run_sandbox(dice, pod, attempt, Label::Right, true)
                    && is_late
                {
                    self.checker.excuse_start(&id);
                }
            }
            Op::Run {
                name,
                attempt,
                sandbox,
            } => {
                self.coverage.point("worker runs a container");
                if let Some(id) = self.create(dice, &name, attempt, &sandbox, Label::Right) {
                    if is_late {
                        self.checker.excuse_start(&id);
                    }
                    // Sometimes no start follows the creation: the worker was stopped, or the start call failed.
                    if !self.is_small && self.phase == Phase::Disturbed && dice.chance(20) {
                        return;
                    }
                    self.tick();
                    self.start(dice, &id);
                }
            }
            Op::Start(id) => {
                self.coverage.point("worker starts a created container");
                if is_late {
                    self.checker.excuse_start(&id);
                }
                if self.node.state(&id) == Some(State::Created) {
                    self.start(dice, &id);
                }
            }
            Op::Stop(id) => {
                self.coverage.point("worker stops");
                self.stop(dice, &id);
            }
            Op::Remove(id) => {
                self.coverage.point("worker removes");
                self.remove(dice, &id);
            }
            Op::StopSandbox(id) => self.stop_sandbox(dice, &id),
            Op::RemoveSandbox(id) => self.remove_sandbox(dice, &id),
        }
    }

    pub(super) fn done(&mut self, dice: &mut Dice<'_>, pod: usize) {
        self.pods[pod].is_busy = false;
        self.pods[pod].changed = self.now;
        let after = dice.ms(0, 20);
        self.later(after, Act::Wake(pod));
    }

    /// Restarts a worker: cancels its wait, and lets it begin a new one.
    pub(super) fn restart_worker(&mut self, dice: &mut Dice<'_>, pod: usize) {
        if let Some((waiter, _)) = self.pods[pod].waiting.take() {
            self.core.cancel(waiter);
            self.checker.cancelled(waiter);
            self.log(|| format!("cancel {waiter:?}"));
        }
        if !self.pods[pod].is_busy {
            self.pods[pod].changed = self.now;
        }
        let after = dice.ms(0, 500);
        self.later(after, Act::Wake(pod));
    }

    pub(super) fn announced(&mut self, dice: &mut Dice<'_>, event: &PodLifecycleEvent) {
        self.log(|| {
            let subject = event.subject.as_ref();
            let of = subject.map(|s| (s.id.to_string(), s.exit_code));
            let initial = if event.initial { " initial" } else { "" };
            format!("ANNOUNCE {} {of:?} {}{initial}", event.event, event.source)
        });
        self.coverage.point(match event.event {
            LifecycleType::ContainerStarted => "announced ContainerStarted",
            LifecycleType::ContainerDied => "announced ContainerDied",
            LifecycleType::ContainerRemoved => "announced ContainerRemoved",
            LifecycleType::ContainerChanged => "announced ContainerChanged",
            _ => "announced PodSync",
        });
        if event.initial {
            self.coverage.point("announced initial");
        }
        if self.checker.announced(self.now, event, &self.node) {
            self.coverage
                .point("announcement about an id that no read showed");
        }
        let acts = !self.is_small || self.has_worker;
        let pod = self.pod_of_uid(&event.uid).filter(|_| acts);
        if let Some(pod) = pod {
            let after = dice.ms(0, 5);
            self.later(after, Act::Wake(pod));
        }
    }
}

/// Formats a view for traces.
pub(super) fn summary(view: &PodView) -> String {
    let mut out = String::new();
    let mark = |missing: bool| if missing { "?" } else { "" };
    for s in &view.status.sandboxes {
        let _ = write!(out, "{}:{}{} ", s.id, s.state, mark(s.status_missing));
    }
    for c in &view.status.containers {
        let (mark, code) = (mark(c.status_missing), c.details.exit_code);
        let _ = write!(out, "{}/{}:{}{mark}({code:?}) ", c.id, c.name, c.state);
    }
    let as_of = view.as_of.map_or(EPOCH, Instant::as_nanos);
    let as_of = as_of.saturating_sub(EPOCH) as f64 / MS as f64;
    let _ = write!(out, "as of {as_of:.3}");
    out
}
