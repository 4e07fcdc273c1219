//! Checks readiness and degraded reasons (invariant 12) against what is in flight and what failed.

use pleg_core::{Degraded, Health, Instant, NotReady};

use crate::assertions::{self, CheckResult};
use crate::coverage::{CoverPoint, Coverage};
use crate::fault_profile::{MS, SECOND};

/// The conditions that health must report.
#[derive(Clone, Debug, Default)]
pub struct ExpectedHealth {
    /// When the last complete list began.
    pub last_list: Option<u64>,
    pub last_list_failed: bool,
    pub list_in_flight: Option<u64>,
    /// Since when there is no stream, and whether there was one before; none in polling mode.
    pub no_stream: Option<(u64, bool)>,
    /// Since when events wait for the writer.
    pub behind: Option<u64>,
    /// When the oldest inspection in flight was requested.
    pub inspection: Option<u64>,
    /// An inspection failed or listed an id without a status, and no inspection of its pod has succeeded
    /// since.
    pub failing: bool,
    /// A `Version` call was not answered, and no call has succeeded since.
    pub silent: bool,
    was_ready: bool,
    was_degraded: bool,
}

/// A condition must be reported within this time.
const SOON: u64 = 3 * SECOND;
/// An inspection is overdue after that.
const SLOT: u64 = 250 * MS;

impl ExpectedHealth {
    /// `no_stream` as in the field.
    pub fn new(no_stream: Option<(u64, bool)>) -> Self {
        Self {
            no_stream,
            ..Self::default()
        }
    }

    /// # Errors
    /// Health reports a false condition or omits a true one.
    pub fn check(&mut self, now: u64, health: &Health, coverage: &mut Coverage) -> CheckResult {
        self.ready(now, health, coverage)?;
        let reported = health.degraded(Instant::from_nanos(now));
        for what in &reported {
            if let Some(point) = CoverPoint::degraded(what) {
                coverage.hit(point);
            }
        }
        if reported.is_empty() && self.was_degraded {
            coverage.hit(CoverPoint::NoLongerDegraded);
        }
        self.was_degraded = !reported.is_empty();
        let old = |since: Option<u64>, age: u64| since.is_some_and(|t| now >= t + age);
        let is = |sign: fn(&Degraded) -> bool| reported.iter().any(sign);
        let stream = is(|d| matches!(d, Degraded::StreamDown { .. }));
        let backlog = is(|d| matches!(d, Degraded::Backlog { .. }));
        let slow = is(|d| matches!(d, Degraded::ListSlow { .. }));
        let failed = is(|d| matches!(d, Degraded::ListFailed { .. }));
        let silent = is(|d| matches!(d, Degraded::RuntimeSilent { .. }));
        let hung = is(|d| matches!(d, Degraded::PodsHung { .. }));
        let failing = is(|d| matches!(d, Degraded::PodsFailing { .. }));
        let no_stream = self.no_stream;
        let stream_is_due = match no_stream {
            Some((_, true)) => true,
            Some((since, false)) => now >= since + SOON,
            None => false,
        };
        let required = [
            ("the stream is down", stream_is_due, stream),
            ("events wait", old(self.behind, SOON), backlog),
            ("a list is slow", old(self.list_in_flight, SOON), slow),
            ("the last list failed", self.last_list_failed, failed),
            (
                "an inspection hangs",
                old(self.inspection, SOON + SLOT),
                hung,
            ),
        ];
        for (what, due, said_so) in required {
            assertions::DEGRADED.holds(!due || said_so, || {
                format!("{what}, and health does not report it: {reported:?}, {self:?}")
            })?;
        }
        let unfounded = [
            ("the stream is down", stream, no_stream.is_some()),
            ("events wait", backlog, self.behind.is_some()),
            ("a list is slow", slow, self.list_in_flight.is_some()),
            ("the last list failed", failed, self.last_list_failed),
            ("the runtime is silent", silent, self.silent),
            ("an inspection hangs", hung, self.inspection.is_some()),
            ("pods fail", failing, self.failing),
        ];
        for (what, said_so, so) in unfounded {
            assertions::NO_FALSE_DEGRADED.holds(!said_so || so, || {
                format!("health reports falsely that {what}: {reported:?}, {self:?}")
            })?;
        }
        Ok(())
    }

    fn ready(&mut self, now: u64, health: &Health, coverage: &mut Coverage) -> CheckResult {
        let unready_after = health.unready_after.as_nanos() as u64;
        let ready = health.ready(Instant::from_nanos(now));
        let is = self.last_list.is_some_and(|t| now <= t + unready_after);
        assertions::READY.holds(ready.is_ok() == is, || {
            format!(
                "{ready:?}, and the last complete list began {:?}",
                self.last_list
            )
        })?;
        if !is {
            coverage.hit(CoverPoint::Unready);
        } else if !self.was_ready {
            coverage.hit(CoverPoint::ReadyAgain);
        }
        self.was_ready = is;
        // The next probe is due within 15 s, and late work counts as overdue after 5 s.
        let later = Instant::from_nanos(now + 20 * SECOND + 1);
        let readiness_later = health.ready(later);
        let is_stalled = matches!(readiness_later, Err(NotReady::Stalled { .. }));
        assertions::STALLED_IS_NOT_READY.holds(is_stalled, || {
            format!("a writer that does nothing for 20 s is {readiness_later:?}")
        })
    }
}
