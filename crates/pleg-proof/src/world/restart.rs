//! Restarts of the runtime: containers and sandboxes may stop or be lost meanwhile, or fail to load afterwards.

use pleg_node_model::{Id, Kind, Object, State};

use super::{Act, World};
use crate::choose::Dice;
use crate::faults::Fault;

impl World {
    /// Kills the runtime. Its containers keep running, unless `Reboot` or `RestartLoses` occurs.
    pub(super) fn restart(&mut self, dice: &mut Dice<'_>) {
        if self.is_down {
            return;
        }
        self.log(|| "RUNTIME DOWN".to_owned());
        self.is_down = true;
        self.sick.frozen = 0;
        self.stream.forget_stored();
        self.cut(dice);
        self.checker.failed(self.now, None);
        let ids: Vec<Id> = self.node.objects().map(|o| o.id.clone()).collect();
        if self.fault(dice, Fault::Reboot) {
            for id in &ids {
                self.end_silently(dice, id);
            }
        }
        for id in &ids {
            let is_there = self.node.object(id).is_some_and(Object::exists);
            if is_there && self.fault(dice, Fault::RestartLoses) {
                self.lose(dice, id);
            }
        }
        let after = dice.ms(50, 8_000);
        self.later(after, Act::Restarted);
    }

    /// Starts the runtime again. It may fail to load some containers and sandboxes.
    pub(super) fn restarted(&mut self, dice: &mut Dice<'_>) {
        self.log(|| "RUNTIME UP".to_owned());
        self.is_down = false;
        let now = self.now;
        self.checker.failed(now, None);
        let ids: Vec<Id> = self.node.objects().map(|o| o.id.clone()).collect();
        for id in ids {
            let is_there = self.node.object(&id).is_some_and(Object::exists);
            let is_hidden = is_there && self.fault(dice, Fault::RestartHides);
            let until = match is_hidden {
                true => now + dice.ms(500, 20_000),
                false => 0,
            };
            self.set(&id, |o| o.overrides.hidden_until = until);
            if is_hidden {
                self.log(|| format!("HIDDEN {id}"));
                self.checker.excuse(&id);
            }
        }
    }

    /// Stops a running container or sandbox while the runtime is down and so sends no events.
    fn end_silently(&mut self, dice: &mut Dice<'_>, id: &Id) {
        if self.node.state(id) != Some(State::Running) {
            return;
        }
        let is_sandbox = self
            .node
            .object(id)
            .is_some_and(|o| o.kind == Kind::Sandbox);
        if is_sandbox {
            let step = pleg_node_model::Step::StopSandbox(id.clone());
            self.removal_step(dice, &step);
        } else {
            self.exit(dice, id, 255);
        }
    }

    /// Removes a container, or a sandbox with its containers, while the runtime is down and so sends no events.
    fn lose(&mut self, dice: &mut Dice<'_>, id: &Id) {
        let is_sandbox = self
            .node
            .object(id)
            .is_some_and(|o| o.kind == Kind::Sandbox);
        if is_sandbox {
            for step in self.node.removal(id) {
                self.removal_step(dice, &step);
            }
        } else {
            self.remove(dice, id);
        }
    }
}
