//! Random consumers: they wait, request reads, acknowledge terminal records, and some subscribers lag.

use pleg_core::{ConsumerId, Instant};

use super::{Action, World};
use crate::assertions::CheckResult;
use crate::checks::Input;
use crate::coverage::CoverPoint;
use crate::fault_profile::MS;
use crate::faults::Fault;

/// The consumer that acknowledges terminal records.
pub(super) const CONSUMER: ConsumerId = ConsumerId::new(1);

impl World {
    pub(super) fn consumer_step(&mut self) -> CheckResult {
        let Some(pause) = self.plan.request_pause.filter(|_| self.workload_running) else {
            return Ok(());
        };
        let next = self.now + self.rng.consumers.between(10, pause) * MS;
        self.at(next, Action::Consumer);
        if self.rng.consumers.percent(20) {
            let which = self.rng.consumers.below(2) as usize;
            self.subscribers.take(which, &mut self.checks.coverage)?;
        }
        let waiter = self.next_waiter();
        let now = self.instant();
        // One more pod than exist, so some requests name an unknown pod.
        let which = self.rng.consumers.below(self.plan.pods as u64 + 1) as usize;
        let which = self.pod_at(which);
        let pod = self.uid(which);
        let mut what = self.rng.consumers.below(12);
        if what == 11 && self.plan.pods > 4 && self.rng.consumers.percent(90) {
            // Lists of a full node are expensive, so request few.
            what = 0;
        }
        let rng = &mut self.rng.consumers;
        let after = match what {
            0..=3 => self.now.saturating_sub(rng.between(0, 4000) * MS),
            7 | 8 => self.now + rng.between(0, 2000) * MS,
            _ => self.now,
        };
        let after = Instant::from_nanos(after);
        self.checks.trace.log(self.now, || {
            format!("{waiter:?} asks ({what}) for {pod} after {after:?}")
        });
        self.checks.set_input(Input::Request);
        if what <= 10 {
            let urgent = self.is_well(which);
            self.checks.waiter_added(waiter, &pod, (after, now), urgent);
            self.allow_list_for_waiter();
        }
        match what {
            0..=8 => self.reconciler.wait(now, waiter, &pod, after),
            9 => self.reconciler.relist(now, waiter, &pod),
            10 => self.reconciler.reinspect(now, waiter, &pod),
            _ => {
                self.read_schedule.allow_list(self.now);
                self.reconciler.relist_now(now, waiter);
            }
        }
        self.drain()?;
        if what == 5 {
            self.acknowledge()?;
        }
        if self.inject(Fault::WaiterCancels, |d| &mut d.consumers) {
            self.checks.cancelled(waiter);
            self.checks.set_input(Input::Cancel);
            self.reconciler.cancel(waiter);
            self.drain()?;
        }
        Ok(())
    }

    /// Acknowledges a terminal record.
    fn acknowledge(&mut self) -> CheckResult {
        let objects = self.oracle.objects.len() as u64;
        if objects == 0 {
            return Ok(());
        }
        let recent = self.rng.consumers.below(objects.min(8));
        let object = &self.oracle.objects[(objects - 1 - recent) as usize];
        self.checks.set_input(Input::Request);
        self.reconciler.acknowledge(CONSUMER, &object.id, u32::MAX);
        let Some(output) = self.reconciler.poll_output() else {
            return Ok(());
        };
        self.checks.coverage.hit(CoverPoint::Acknowledged);
        self.checks.output(&self.oracle, self.now, &output)?;
        self.drain()
    }

    /// A waiter may cause a complete list where ids may lack a label.
    pub(super) fn allow_list_for_waiter(&mut self) {
        if self.checks.missing_labels {
            self.read_schedule.allow_list(self.now);
        }
    }

    /// Whether nothing delays an answer about that pod.
    pub(super) fn is_well(&self, pod: usize) -> bool {
        let in_the_way = [
            // It may need a complete list.
            Fault::MissingMetadata,
            Fault::WrongLabel,
            Fault::SlowRead,
            Fault::InspectionHangs,
            Fault::InspectionFails,
            Fault::InspectionPartial,
            Fault::UnknownInRead,
        ];
        let hampered = in_the_way
            .iter()
            .any(|&f| self.fault_profile.percent(f) > 0);
        let uid = self.uid(pod);
        !(hampered
            || !self.node.is_up(self.now)
            || self.node.is_hung(self.now, Some(self.place(pod)))
            || self.busy_until > self.now
            || self.checks.is_failing(Some(&uid)))
    }

    /// All lagging subscribers take their events.
    ///
    /// # Errors
    /// An invariant is violated.
    pub fn take_all(&mut self) -> CheckResult {
        for which in 0..2 {
            self.subscribers.take(which, &mut self.checks.coverage)?;
        }
        Ok(())
    }
}
