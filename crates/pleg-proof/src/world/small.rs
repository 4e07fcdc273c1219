//! Small worlds: one pod that the core knows already, and a few actions that can happen in any order.

use pleg_core::WaiterId;
use pleg_node_model::{Id, Label, NewContainer, Profile};

use super::{Act, EPOCH, MS, Phase, SECOND, World};
use crate::choose::{Dice, Quiet};
use crate::faults::Faults;
use crate::worker::Policy;
use crate::world::workers::PodWorker;

/// The exploration of a small world lasts at least this long after its actions become due.
const HORIZON: u64 = 100 * MS;

impl World {
    /// A world with a ready sandbox `s1` and a running container `k2`, which the core knows. The event stream has
    /// delivered an event. From now on, `acts` happen in any order, except [`Act::Birth`]: this method starts its
    /// container at once, and only the arrival of STARTED is left to happen.
    pub(crate) fn small(profile: Profile, faults: Faults, acts: Vec<Act>) -> Self {
        let mut world = Self::new(profile, Faults::none(), false);
        let mut quiet = Quiet;
        let dice = &mut Dice::new(&mut quiet, true);
        world.is_small = true;
        world.pods.push(PodWorker::new(0, 0, Policy::Never));
        world.outputs(dice);
        let sandbox = world.run_sandbox(dice, 0, 0, Label::Right, false);
        world.later(0, Act::Open);
        world.run_until(EPOCH + SECOND);
        if let Some(sandbox) = sandbox {
            let dice = &mut Dice::new(&mut quiet, true);
            world.birth(dice, &sandbox);
        }
        world.run_until(EPOCH + 2_500 * MS);
        world.faults = faults.clone();
        world.checker.set_faults(&faults);
        for act in acts {
            match act {
                Act::Birth(sandbox) => {
                    let dice = &mut Dice::new(&mut quiet, true);
                    world.birth(dice, &sandbox);
                }
                act => world.later(0, act),
            }
        }
        world.ends = world.now + HORIZON;
        world
    }

    /// Runs the world to the instant `at` without faults, with all actions in the order of time.
    fn run_until(&mut self, at: u64) {
        self.ends = at;
        let mut quiet = Quiet;
        while let Some(act) = self.earliest() {
            let dice = &mut Dice::new(&mut quiet, true);
            match act {
                Some(act) => self.act(dice, act),
                None => {
                    let at = self.tick();
                    self.core.handle_timeout(at);
                }
            }
            self.outputs(dice);
        }
        self.now = self.now.max(at);
    }

    /// Returns true if no call of the core is in flight and only workers' wakes are due soon: no order is left to try.
    pub(crate) fn is_over(&self) -> bool {
        let soon = self.now + 2 * self.patience;
        let mut acts = self.queue.by(soon);
        let has_more = acts.any(|(_, act)| !matches!(act, Act::Wake(_))) || !self.calls.is_idle();
        !has_more && self.now >= self.ends
    }

    /// Runs the world without further faults to its end; the checker compares the published views with the truth.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        self.is_small = false;
        self.phase = Phase::Calm;
        self.faults.calm();
        self.checker.calm(self.now);
        self.ends = self.now + 75 * SECOND;
        self.still_for = SECOND;
        while self.step(&mut Quiet)? {}
        Ok(())
    }

    /// Sets the longest time for which later actions and the core's timer may overtake a due action.
    pub(crate) const fn with_patience(mut self, patience: u64) -> Self {
        self.patience = patience;
        self
    }

    /// Lets actions happen between the sandbox list and the container list of one read.
    pub(crate) const fn with_spans(mut self) -> Self {
        self.has_spans = true;
        self
    }

    /// Adds a worker that keeps the container `k2` running.
    pub(crate) fn with_worker(mut self, policy: Policy) -> Self {
        self.has_worker = true;
        let spec = &mut self.pods[0].spec;
        (spec.names, spec.policy) = (vec!["c".to_owned()], policy);
        self.later(0, Act::Wake(0));
        self
    }

    /// Deletes the pod: its worker must remove all containers and sandboxes.
    pub(crate) fn with_deletion(mut self) -> Self {
        self.pods[0].spec.deleted = true;
        self
    }

    pub(crate) fn with_trace(&mut self) {
        self.trace = Some(Vec::new());
    }

    /// Lets a third party create and start a container. Sends no CREATED, which would multiply the orders to explore.
    pub(super) fn birth(&mut self, dice: &mut Dice<'_>, sandbox: &Id) {
        let id = self.new_id("k");
        let mut new = NewContainer::new(&id, sandbox, "c");
        new.attempt = u32::try_from(self.ids).unwrap_or(0);
        new.label = Label::Right;
        if self.node.create_container(new, self.now).is_err() {
            return;
        }
        self.changed(dice, &id);
        self.tick();
        if let Ok(events) = self.node.start(&id, self.now) {
            self.changed(dice, &id);
            self.emit(dice, events);
        }
    }

    pub(super) fn ask_for_relist(&mut self) {
        let now = self.at();
        let waiter = WaiterId::new(u64::MAX);
        self.core.relist_now(now, waiter);
    }
}
