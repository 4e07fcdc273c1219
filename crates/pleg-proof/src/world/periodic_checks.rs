//! What is looked at every second: health, duties, bounds.

use std::time::Duration;

use pleg_core::{Id, StreamState};

use super::{Todo, World};
use crate::laws::{self, Lawful};
use crate::tally::Path;
use crate::weather::{MS, SECOND};

impl World {
    pub(super) fn second(&mut self) -> Lawful {
        let pause = if self.acting {
            self.checks.tally.busy_nanos += SECOND;
            self.trouble()?;
            // Not always at the same point of a period.
            SECOND + self.dice.node.between(0, 100) * MS
        } else {
            10 * SECOND
        };
        self.at(self.now + pause, Todo::Second);
        self.look()
    }

    /// # Errors
    /// A law that is broken.
    pub fn look(&mut self) -> Lawful {
        let now = self.now;
        self.checks.kept_waiting(now, 30 * SECOND)?;
        self.duties.in_time(now)?;
        self.noticed()?;
        if self.kubelet.is_some() {
            self.truth.tidy_all(now);
        }
        self.count();
        let (graves, most) = (self.counters.tombstones, self.plan.tombstones as u64);
        self.signs.inspection = self.checks.oldest_inspection();
        // Those that were laid while a read was under way stay until it has ended.
        let reads = self.signs.inspection.is_some() || self.signs.list_under_way.is_some();
        laws::TOMBSTONES.holds(graves <= most || reads, || {
            format!("{graves} tombstones, {most} may be")
        })?;
        self.signs.failing = self.checks.is_failing(None);
        let health = self.machine.health(self.instant());
        let tally = &mut self.checks.tally;
        self.signs.check(now, &health, tally)?;
        if let StreamState::Subscribed {
            confirmed, proven, ..
        } = health.stream
        {
            tally.paths(
                Path::StreamConfirmed,
                u64::from(confirmed && !self.confirmed),
            );
            tally.paths(Path::StreamProven, u64::from(proven));
            self.confirmed = confirmed;
        }
        let exists = |id: &Id| self.truth.life(id).is_some_and(|l| l.exists(now));
        self.losses.settle(now, exists);
        // An event that lied may have told before what another one loses.
        if !self.plan.weather.lies() {
            self.losses.polled(health.period)?;
        }
        let longest = Duration::from_secs(self.plan.patience.0);
        let (was, is) = (self.period, health.period);
        tally.paths(Path::PeriodLongest, u64::from(is == longest && was != is));
        tally.paths(Path::PeriodShort, u64::from(is.as_secs() == 1 && was > is));
        self.period = is;
        self.checks.count_overdue(now);
        Ok(())
    }

    /// Runs until no list is under way.
    ///
    /// # Errors
    /// A law that is broken.
    pub fn run_until_listed(&mut self) -> Lawful {
        while self.signs.list_under_way.is_some() {
            self.run(SECOND)?;
        }
        Ok(())
    }

    /// Whether the stream has lost so much that it is to be polled still.
    pub fn keeps_losing(&self) -> bool {
        self.losses.keeps_losing()
    }

    /// Whether the present stream has delivered something.
    pub fn is_proven(&self) -> bool {
        let health = self.machine.health(self.instant());
        matches!(health.stream, StreamState::Subscribed { proven: true, .. })
    }
}
