//! Checks that run every second: health, read schedule, bounds.

use std::time::Duration;

use pleg_core::{Id, StreamState};

use super::{Action, World};
use crate::assertions::{self, CheckResult};
use crate::coverage::CoverPoint;
use crate::fault_profile::{MS, SECOND};

impl World {
    pub(super) fn every_second(&mut self) -> CheckResult {
        let pause = if self.workload_running {
            self.checks.coverage.busy_nanos += SECOND;
            self.inject_timed_faults()?;
            // Not always at the same point of a period.
            SECOND + self.rng.node.between(0, 100) * MS
        } else {
            10 * SECOND
        };
        self.at(self.now + pause, Action::Second);
        self.check_now()
    }

    /// # Errors
    /// An invariant is violated.
    pub fn check_now(&mut self) -> CheckResult {
        let now = self.now;
        self.checks.wait_deadlines(now, 30 * SECOND)?;
        self.read_schedule.in_time(now)?;
        self.deaths_noticed()?;
        if self.kubelet.is_some() {
            self.oracle.prune_all(now);
        }
        self.count();
        let (tombstones, most) = (self.counters.tombstones, self.plan.tombstones as u64);
        self.expected_health.inspection = self.checks.oldest_inspection();
        // Tombstones inserted during a read stay until it has ended.
        let reads = self.expected_health.inspection.is_some()
            || self.expected_health.list_in_flight.is_some();
        assertions::TOMBSTONES_BOUNDED.holds(tombstones <= most || reads, || {
            format!("{tombstones} tombstones, {most} may be")
        })?;
        self.expected_health.failing = self.checks.is_failing(None);
        let health = self.reconciler.health(self.instant());
        let coverage = &mut self.checks.coverage;
        self.expected_health.check(now, &health, coverage)?;
        if let StreamState::Subscribed {
            confirmed, proven, ..
        } = health.stream
        {
            coverage.hit_times(
                CoverPoint::StreamConfirmed,
                u64::from(confirmed && !self.confirmed),
            );
            coverage.hit_times(CoverPoint::StreamProven, u64::from(proven));
            self.confirmed = confirmed;
        }
        let exists = |id: &Id| self.oracle.object(id).is_some_and(|l| l.exists(now));
        self.losses.settle(now, exists);
        // A false event may have reported earlier what another event loses.
        if !self.plan.fault_profile.false_events() {
            self.losses.polled(health.period)?;
        }
        let longest = Duration::from_secs(self.plan.list_limits.0);
        let (was, is) = (self.period, health.period);
        coverage.hit_times(
            CoverPoint::PeriodLongest,
            u64::from(is == longest && was != is),
        );
        coverage.hit_times(
            CoverPoint::PeriodShort,
            u64::from(is.as_secs() == 1 && was > is),
        );
        self.period = is;
        self.checks.count_overdue(now);
        Ok(())
    }

    /// Runs until no list is in flight.
    ///
    /// # Errors
    /// An invariant is violated.
    pub fn run_until_listed(&mut self) -> CheckResult {
        while self.expected_health.list_in_flight.is_some() {
            self.run(SECOND)?;
        }
        Ok(())
    }

    /// Whether the stream lost so much that it must still be polled.
    pub fn keeps_losing(&self) -> bool {
        self.losses.keeps_losing()
    }

    /// Whether the current stream has delivered an event.
    pub fn is_proven(&self) -> bool {
        let health = self.reconciler.health(self.instant());
        matches!(health.stream, StreamState::Subscribed { proven: true, .. })
    }
}
