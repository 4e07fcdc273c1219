//! Changes of the node's containers and sandboxes: each updates the true state and makes the runtime send events.

use pleg_node_model::{Due, Id, Kind, Label, NewContainer, Node, Skew, State};

use super::{Act, Phase, World, pod_uid};
use crate::choose::Dice;
use crate::faults::Fault;

impl World {
    /// Runs a pod's sandbox and containers before the core starts.
    pub(super) fn before_start(&mut self, dice: &mut Dice<'_>, pod: usize) {
        let Some(sandbox) = self.run_sandbox(dice, pod, 0, Label::Right, false) else {
            return;
        };
        for n in 0..self.pods[pod].spec.names.len() {
            let name = self.pods[pod].spec.names[n].clone();
            let Some(id) = self.create(dice, &name, 0, &sandbox, Label::Right) else {
                continue;
            };
            self.start(dice, &id);
            if dice.chance(300) {
                let code = exit_code(dice);
                self.exit(dice, &id, code);
            }
        }
    }

    /// Runs a sandbox; `None` if the name is taken.
    pub(super) fn run_sandbox(
        &mut self,
        dice: &mut Dice<'_>,
        pod: usize,
        attempt: u32,
        label: Label,
        with_events: bool,
    ) -> Option<Id> {
        let id = self.new_id("s");
        let of = pleg_node_model::Pod::new(&pod_uid(pod), "ns", &format!("pod{pod}"));
        let events = self.node.run_sandbox(&id, &of, attempt, self.now).ok()?;
        self.set(&id, |o| o.label = label);
        if !self.is_small && dice.chance(200) {
            self.set(&id, |o| o.shares_processes = true);
        }
        self.born(dice, &id);
        self.changed(dice, &id);
        if self.fault(dice, Fault::SandboxKilled) {
            let after = dice.ms(5, 8_000);
            self.later(after, Act::KillSandbox(id.clone()));
        }
        if !with_events || self.fault(dice, Fault::SilentBirth) {
            self.silent(&events);
        } else {
            self.emit(dice, events);
        }
        Some(id)
    }

    /// Creates a container; `None` if the runtime refuses it.
    pub(super) fn create(
        &mut self,
        dice: &mut Dice<'_>,
        name: &str,
        attempt: u32,
        sandbox: &Id,
        label: Label,
    ) -> Option<Id> {
        let id = self.new_id("k");
        let new = NewContainer {
            id: id.clone(),
            sandbox: sandbox.clone(),
            name: name.into(),
            attempt,
            label,
        };
        let events = self.node.create_container(new, self.now).ok()?;
        self.born(dice, &id);
        self.changed(dice, &id);
        match self.fault(dice, Fault::SilentBirth) {
            true => self.silent(&events),
            false => self.emit(dice, events),
        }
        Some(id)
    }

    fn silent(&mut self, events: &[Due]) {
        for due in events {
            let fate = crate::checker::Fate::Lost;
            self.checker.fate(self.now, &due.subject, due.what, fate);
        }
    }

    /// Chooses whether the row and the status of a new container or sandbox contradict each other for good.
    fn born(&mut self, dice: &mut Dice<'_>, id: &Id) {
        if self.fault(dice, Fault::Skew) {
            let until = u64::MAX;
            let skew = skew(dice);
            self.set(id, |o| o.overrides.skew = Some((skew, until)));
            self.checker.excuse(id);
            self.log(|| format!("SKEW {id} {skew:?}"));
        }
    }

    /// Starts a created container. The start may fail, and the program may exit later.
    pub(super) fn start(&mut self, dice: &mut Dice<'_>, id: &Id) {
        if self.fault(dice, Fault::FailedStart) {
            if self.node.fail_start(id, self.now).is_ok() {
                self.changed(dice, id);
            }
            return;
        }
        let Ok(events) = self.node.start(id, self.now) else {
            return;
        };
        self.changed(dice, id);
        self.checker.started(self.now, id, &self.node);
        self.emit(dice, events);
        if self.is_small || self.phase >= Phase::Still {
            return;
        }
        let chance = match self.phase {
            Phase::Disturbed => 800,
            _ => 300,
        };
        if dice.chance(chance) {
            let after = dice.ms(5, 8_000);
            let code = exit_code(dice);
            let is_oom = self.fault(dice, Fault::OomKill);
            let act = match is_oom {
                true => Act::OomKill(id.clone()),
                false => Act::Exit(id.clone(), code),
            };
            self.later(after, act);
        }
    }

    /// The program of a container exits.
    pub(super) fn exit(&mut self, dice: &mut Dice<'_>, id: &Id, code: i32) {
        let reason = if code == 0 { "Completed" } else { "Error" };
        self.end(dice, id, |node, now| node.exit(id, code, reason, now));
    }

    pub(super) fn oom_kill(&mut self, dice: &mut Dice<'_>, id: &Id) {
        let known_at = self.now + dice.ms(10, 1_900);
        self.end(dice, id, |node, now| node.oom_kill(id, known_at, now));
    }

    /// `StopContainer`.
    pub(super) fn stop(&mut self, dice: &mut Dice<'_>, id: &Id) {
        self.end(dice, id, |node, now| node.stop(id, now));
    }

    /// Ends a container: `call` ends it in the node model. Faults may falsify or delay the exit code or remove the id.
    fn end(&mut self, dice: &mut Dice<'_>, id: &Id, call: impl FnOnce(&mut Node, u64) -> Vec<Due>) {
        let before = self.node.state(id);
        let events = call(&mut self.node, self.now);
        if before == self.node.state(id) {
            return;
        }
        self.changed(dice, id);
        let (is_late, is_wrong) = (
            self.fault(dice, Fault::LateCode),
            self.fault(dice, Fault::CorrectedCode),
        );
        if is_late || is_wrong {
            let known_at = self.now + dice.ms(10, 1_500);
            self.set(id, |o| {
                o.exit.code_known_at = known_at;
                o.exit.early_code = is_wrong.then_some(255);
            });
        }
        self.emit(dice, events);
        if self.fault(dice, Fault::ThirdRemoval) {
            let after = dice.ms(0, 3_000);
            self.later(after, Act::ThirdRemoval(id.clone()));
        }
    }

    pub(super) fn kill_sandbox(&mut self, dice: &mut Dice<'_>, id: &Id) {
        let events = self.node.kill_sandbox(id, self.now);
        for due in &events {
            self.changed(dice, &due.subject);
        }
        self.emit(dice, events);
    }

    pub(super) fn third_stop(&mut self, dice: &mut Dice<'_>, id: &Id) {
        self.stop(dice, id);
    }

    pub(super) fn third_removal(&mut self, dice: &mut Dice<'_>, id: &Id) {
        if self.node.state(id) == Some(State::Exited) {
            self.remove(dice, id);
        }
    }

    /// `RemoveContainer`.
    pub(super) fn remove(&mut self, dice: &mut Dice<'_>, id: &Id) {
        if self.node.state(id) == Some(State::Running) {
            self.stop_with_sandbox(dice, id);
            self.tick();
        }
        let before = self.node.state(id);
        let events = self.node.remove_container(id, self.now);
        if before != self.node.state(id) {
            self.changed(dice, id);
        }
        self.emit(dice, events);
    }

    /// `StopPodSandbox`.
    pub(super) fn stop_sandbox(&mut self, dice: &mut Dice<'_>, id: &Id) {
        for container in self.node.containers_of(id) {
            self.stop_with_sandbox(dice, &container);
        }
        let step = pleg_node_model::Step::StopSandbox(id.clone());
        self.removal_step(dice, &step);
    }

    fn stop_with_sandbox(&mut self, dice: &mut Dice<'_>, id: &Id) {
        self.end(dice, id, |node, now| node.exit(id, 137, "Error", now));
    }

    /// Removes a sandbox as `RemovePodSandbox` does, in steps. A fault may kill the runtime between two steps.
    pub(super) fn remove_sandbox(&mut self, dice: &mut Dice<'_>, id: &Id) {
        for step in self.node.removal(id) {
            if self.fault(dice, Fault::RemovalCut) {
                self.log(|| "KILLED during a removal".to_owned());
                return self.restart(dice);
            }
            self.removal_step(dice, &step);
        }
    }

    pub(super) fn removal_step(&mut self, dice: &mut Dice<'_>, step: &pleg_node_model::Step) {
        use pleg_node_model::Step;
        let (Step::Stop(id)
        | Step::StopSandbox(id)
        | Step::Remove(id)
        | Step::Announce(id)
        | Step::RemoveSandbox(id)) = step;
        if let Step::Stop(id) = step {
            return self.stop_with_sandbox(dice, id);
        }
        let before = self.node.state(id);
        let events = self.node.step(step, self.now);
        if before != self.node.state(id) {
            self.changed(dice, id);
        }
        self.emit(dice, events);
    }

    /// Tells the checker and the trace about a change. Chooses how long reads miss it, if it is an exit or a removal.
    pub(super) fn changed(&mut self, dice: &mut Dice<'_>, id: &Id) {
        self.now = self.now.max(self.node.latest());
        let Some(object) = self.node.object(id) else {
            return;
        };
        let (state, kind, code) = (object.state(), object.kind, object.exit.code);
        let pod = object.pod.uid.clone();
        self.log(|| format!("TRUTH {id} of {pod} {state:?} code {code}"));
        self.coverage.point(match state {
            State::Created => "transition Created",
            State::Running => "transition Running",
            State::Exited => "transition Exited",
            State::Removed => "transition Removed",
        });
        if kind == Kind::Container || state != State::Running {
            self.checker.changed(self.now);
        }
        if matches!(state, State::Exited | State::Removed) {
            let lists = self.lag(dice);
            let statuses = self.lag(dice);
            self.set(id, |o| o.lag(lists, statuses));
        }
    }

    fn lag(&mut self, dice: &mut Dice<'_>) -> u64 {
        match self.fault(dice, Fault::Lag) {
            true => dice.ms(0, self.faults.lag_ms),
            false => 0,
        }
    }

    pub(super) fn set(&mut self, id: &Id, change: impl FnOnce(&mut pleg_node_model::Object)) {
        if let Some(object) = self.node.object_mut(id) {
            change(object);
        }
    }
}

pub(super) fn skew(dice: &mut Dice<'_>) -> Skew {
    let skews = [
        Skew::StatusMissing,
        Skew::RowShows(State::Exited),
        Skew::RowShows(State::Running),
    ];
    dice.pick(&skews)
}

fn exit_code(dice: &mut Dice<'_>) -> i32 {
    dice.pick(&[0, 1, 0, 2, 0, 3])
}
