//! What consumers want: they wait, ask for reads, acknowledge ends, and some of them lag.

use pleg_core::Instant;

use super::{Todo, World};
use crate::checks::Input;
use crate::faults::Fault;
use crate::laws::Lawful;
use crate::tally::Path;
use crate::weather::MS;

impl World {
    pub(super) fn ask(&mut self) -> Lawful {
        let Some(pause) = self.plan.questions.filter(|_| self.acting) else {
            return Ok(());
        };
        let next = self.now + self.dice.consumers.between(10, pause) * MS;
        self.at(next, Todo::Ask);
        if self.dice.consumers.percent(20) {
            let which = self.dice.consumers.below(2) as usize;
            self.subscribers.take(which, &mut self.checks.tally)?;
        }
        let waiter = self.next_waiter();
        let now = self.instant();
        // One pod more than there are: of that one nothing is ever heard.
        let which = self.dice.consumers.below(self.plan.pods as u64 + 1) as usize;
        let which = self.pod_at(which);
        let pod = self.uid(which);
        let mut what = self.dice.consumers.below(12);
        if what == 11 && self.plan.pods > 4 && self.dice.consumers.percent(90) {
            // A list of a whole node is a great deal to ask for.
            what = 0;
        }
        let dice = &mut self.dice.consumers;
        let after = match what {
            0..=3 => self.now.saturating_sub(dice.between(0, 4000) * MS),
            7 | 8 => self.now + dice.between(0, 2000) * MS,
            _ => self.now,
        };
        let after = Instant::from_nanos(after);
        self.checks.history.note(self.now, || {
            format!("{waiter:?} asks ({what}) for {pod} after {after:?}")
        });
        self.checks.handed(Input::Question);
        if what <= 10 {
            let urgent = self.is_well(which);
            self.checks.asked(waiter, &pod, (after, now), urgent);
            self.may_ask_for_list();
        }
        match what {
            0..=8 => self.machine.wait(now, waiter, &pod, after),
            9 => self.machine.relist(now, waiter, &pod),
            10 => self.machine.reinspect(now, waiter, &pod),
            _ => {
                self.duties.allow_one(self.now);
                self.machine.relist_now(now, waiter);
            }
        }
        self.drain()?;
        if what == 5 {
            self.acknowledge()?;
        }
        if self.comes(Fault::GivesUp, |d| &mut d.consumers) {
            self.checks.cancelled(waiter);
            self.checks.handed(Input::Cancel);
            self.machine.cancel(waiter);
            self.drain()?;
        }
        Ok(())
    }

    /// Somebody has what it needs of an end.
    fn acknowledge(&mut self) -> Lawful {
        let lives = self.truth.lives.len() as u64;
        if lives == 0 {
            return Ok(());
        }
        let recent = self.dice.consumers.below(lives.min(8));
        let life = &self.truth.lives[(lives - 1 - recent) as usize];
        self.checks.handed(Input::Question);
        self.machine.acknowledge(&life.id);
        let Some(output) = self.machine.poll_output() else {
            return Ok(());
        };
        self.checks.tally.path(Path::Acknowledged);
        self.checks.output(&self.truth, self.now, &output)?;
        self.drain()
    }

    /// Whoever asks may cause a complete list, where ids may be known without a label.
    pub(super) fn may_ask_for_list(&mut self) {
        if self.checks.nameless {
            self.duties.allow_one(self.now);
        }
    }

    /// Whether nothing stands in the way of an answer about that pod.
    pub(super) fn is_well(&self, pod: usize) -> bool {
        let in_the_way = [
            // Then it may take a complete list.
            Fault::Nameless,
            Fault::SlowRead,
            Fault::InspectionHangs,
            Fault::InspectionFails,
            Fault::InspectionPartial,
            Fault::UnknownInRead,
        ];
        let hampered = in_the_way.iter().any(|&f| self.weather.percent(f) > 0);
        let uid = self.uid(pod);
        !(hampered
            || !self.node.is_up(self.now)
            || self.node.is_hung(self.now, Some(self.place(pod)))
            || self.busy_until > self.now
            || self.checks.is_failing(Some(&uid)))
    }

    /// Everybody who lags takes what waits.
    ///
    /// # Errors
    /// A law that is broken.
    pub fn take_all(&mut self) -> Lawful {
        for which in 0..2 {
            self.subscribers.take(which, &mut self.checks.tally)?;
        }
        Ok(())
    }
}
