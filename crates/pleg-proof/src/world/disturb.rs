//! Chooses faults while a world is in [`Phase::Disturbed`]: actions of third parties, of the runtime and of kubelets.

use pleg_node_model::{Id, Kind, Label, Object, State};

use super::{Act, MS, Phase, World, truth};
use crate::choose::Dice;
use crate::faults::Fault;

impl World {
    /// Chooses faults that happen now, and schedules the next such choice 20 to 400 ms later.
    pub(super) fn disturb(&mut self, dice: &mut Dice<'_>) {
        if self.phase != Phase::Disturbed {
            return;
        }
        let after = dice.ms(20, 400);
        self.later(after, Act::Disturb);
        let pod = dice.below(self.pods.len());
        if self.fault(dice, Fault::ShortLife) {
            self.short_life(dice, pod);
        }
        if self.fault(dice, Fault::SecondSandbox) {
            self.second_sandbox(dice, pod);
        }
        self.disturb_objects(dice);
        self.disturb_stream(dice);
        self.sicken(dice, pod);
        if self.fault(dice, Fault::WallStep) {
            let by = dice.ms(0, 200_000).cast_signed() - 100_000 * MS.cast_signed();
            self.node.step_wall(by);
            self.checker.wall_stepped();
        }
        if self.fault(dice, Fault::WorkerRestart) {
            self.restart_worker(dice, pod);
        }
        if self.fault(dice, Fault::PodDeleted) {
            let spec = &mut self.pods[pod].spec;
            spec.deleted = !spec.deleted;
            self.later(0, Act::Wake(pod));
        }
        if self.fault(dice, Fault::Outage) {
            self.restart(dice);
        }
    }

    /// Chooses faults of single containers or sandboxes.
    fn disturb_objects(&mut self, dice: &mut Dice<'_>) {
        if self.fault(dice, Fault::Unknown)
            && let Some(id) = self.any(dice, |_| true)
        {
            let until = self.now + dice.ms(10, 5_000);
            self.log(|| format!("UNKNOWN {id}"));
            self.set(&id, |o| o.overrides.unknown_until = until);
        }
        if self.fault(dice, Fault::SkewAWhile)
            && let Some(id) = self.any(dice, |o| o.overrides.skew.is_none())
        {
            let until = self.now + dice.ms(10, 15_000);
            let skew = truth::skew(dice);
            self.log(|| format!("SKEW {id} {skew:?} for a while"));
            self.set(&id, |o| o.overrides.skew = Some((skew, until)));
            self.checker.excuse(&id);
        }
        let is_running = |o: &Object| o.kind == Kind::Container && o.state() == State::Running;
        if self.fault(dice, Fault::ThirdStop)
            && let Some(id) = self.any(dice, is_running)
        {
            self.later(0, Act::ThirdStop(id));
        }
        if self.fault(dice, Fault::ThirdForce)
            && let Some(id) = self.any(dice, |o| o.kind == Kind::Container)
        {
            self.remove(dice, &id);
        }
    }

    /// Chooses the id of an existing container or sandbox for which `is` returns true.
    pub(super) fn any(&self, dice: &mut Dice<'_>, is: impl Fn(&Object) -> bool) -> Option<Id> {
        let existing = self.node.objects().filter(|o| o.exists() && is(o));
        let ids: Vec<&Id> = existing.map(|o| &o.id).collect();
        let place = dice.below(ids.len());
        ids.get(place).map(|id| (*id).clone())
    }

    /// Runs a container of a third party in a sandbox of the pod, for some milliseconds.
    fn short_life(&mut self, dice: &mut Dice<'_>, pod: usize) {
        let uid = super::pod_uid(pod);
        let is_ready = |o: &Object| {
            o.kind == Kind::Sandbox && o.state() == State::Running && *o.pod.uid == *uid
        };
        let Some(sandbox) = self.any(dice, is_ready) else {
            return;
        };
        let label = self.label(dice, Fault::Unlabelled, pod);
        let attempt = u32::try_from(self.ids).unwrap_or(0);
        let Some(id) = self.create(dice, "short", attempt, &sandbox, label) else {
            return;
        };
        let code = dice.pick(&[0, 1, 2, 3]);
        self.tick();
        if let Ok(events) = self.node.start(&id, self.now) {
            self.changed(dice, &id);
            self.emit(dice, events);
        }
        let ends = dice.ms(0, 60);
        self.later(ends, Act::Exit(id.clone(), code));
        let removed = ends + dice.ms(0, 60);
        self.later(removed, Act::ThirdRemoval(id));
    }

    /// Runs another sandbox of the pod, as a third party.
    fn second_sandbox(&mut self, dice: &mut Dice<'_>, pod: usize) {
        let attempt = 100 + u32::try_from(self.ids).unwrap_or(0);
        let label = self.label(dice, Fault::WrongLabel, pod);
        if let Some(id) = self.run_sandbox(dice, pod, attempt, label, true) {
            // The worker may act on a view that does not show this sandbox yet, and run its own sandbox.
            self.checker.excuse_start(&id);
        }
    }

    /// Chooses the pod-uid label of an object of the pod. If `fault` occurs: none, or the label of another pod.
    fn label(&mut self, dice: &mut Dice<'_>, fault: Fault, pod: usize) -> Label {
        let other = Label::Wrong(super::pod_uid(pod + 1).into());
        match self.fault(dice, fault) {
            true => [Label::Missing, other][dice.below(2)].clone(),
            false => Label::Right,
        }
    }

    /// Ends all faults that are in effect, except [`Fault::Skew`], by which rows contradict statuses permanently.
    pub(super) fn end_disturbance(&mut self) {
        self.faults.calm();
        self.sick = super::Sick::default();
        self.stream.is_mute = false;
        self.stream.shared_until = 0;
        if self.is_down {
            self.is_down = false;
            self.queue.retain(|act| !matches!(act, Act::Restarted));
        }
        let now = self.now;
        let ids: Vec<Id> = self.node.objects().map(|o| o.id.clone()).collect();
        for id in ids {
            self.set(&id, |o| {
                o.overrides.hidden_until = o.overrides.hidden_until.min(now);
                o.overrides.unknown_until = o.overrides.unknown_until.min(now);
                let skew = o.overrides.skew;
                let for_good = |&(_, until): &(_, u64)| until == u64::MAX;
                o.overrides.skew = skew.filter(for_good);
            });
        }
        self.checker.calm(now);
    }
}
