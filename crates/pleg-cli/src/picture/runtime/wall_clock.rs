//! The wall clock: whether it was set during the examination, or before it by more than the pods' ages
//! allow.

use std::time::Duration;

use pleg::core::Instant;
use pleg::core::{PodView, WallTime};
use pleg::runtime::clock::{Clock, wall};
use serde::{Deserialize, Serialize};

use crate::figures::span;
use crate::picture::finding::{Finding, Layer, Severity};

/// A difference between wall and monotonic clock that is a step, in milliseconds.
const STEP: f64 = 1000.0;
/// A difference that the order of two reads of the clocks explains.
const FUTURE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct WallClock {
    /// By how much the wall clock was set forward, or back if it is negative.
    pub(crate) step_millis: f64,
    /// Sandboxes and containers that were created in the future, by the wall clock.
    pub(crate) from_future: usize,
}

/// Both clocks, read together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(super) clock: Clock,
    at: Instant,
    pub(crate) wall: WallTime,
}

impl Reading {
    pub(crate) fn now(clock: Clock) -> Self {
        Self {
            clock,
            at: clock.now(),
            wall: wall(),
        }
    }
}

impl WallClock {
    /// What has happened to the clock since the begin.
    pub(super) fn new(begin: Reading, views: &[PodView]) -> Self {
        let end = Reading::now(begin.clock);
        let wall = end.wall.nanos_since(begin.wall);
        let passed = i64::try_from(end.at.since(begin.at).as_nanos()).unwrap_or(i64::MAX);
        let future = end.wall.after(FUTURE);
        let created = views.iter().flat_map(|view| {
            let sandboxes = view.status.sandboxes.iter().map(|s| s.created_at);
            let containers = view.status.containers.iter().map(|c| c.created_at);
            sandboxes.chain(containers)
        });
        #[allow(clippy::cast_precision_loss, reason = "it is shown")]
        let step = wall.saturating_sub(passed) as f64 / 1e6;
        Self {
            step_millis: step.round(),
            from_future: created.flatten().filter(|at| *at > future).count(),
        }
    }
}

pub(super) fn check(clock: &WallClock) -> Option<Finding> {
    let steps = clock.step_millis.abs() >= STEP;
    if !steps && clock.from_future == 0 {
        return None;
    }
    let (severity, summary) = match steps {
        true => (
            Severity::Warning,
            "the wall clock was set during the examination",
        ),
        false => (
            Severity::Warning,
            "pods were created in the future: the wall clock was set back",
        ),
    };
    let mut finding = Finding::new(
        "clock_step",
        Layer::Host,
        severity,
        summary,
        "Let one time service slew the clock (chronyd, systemd-timesyncd). Events with wrong timestamps are not \
         trusted until the next list.",
    );
    if steps {
        let direction = if clock.step_millis < 0.0 {
            "back"
        } else {
            "forward"
        };
        let by = span(clock.step_millis.abs());
        finding = finding.because(format!(
            "the wall clock went {direction} by {by} against the monotonic clock"
        ));
    }
    if clock.from_future > 0 {
        finding = finding.because(format!(
            "{} sandboxes and containers have a creation time in the future",
            clock.from_future
        ));
    }
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_or_pods_from_the_future_are_found() {
        let found = |step_millis, from_future| {
            let clock = WallClock {
                step_millis,
                from_future,
            };
            check(&clock).is_some()
        };
        assert!(!found(0.0, 0) && !found(999.0, 0) && !found(-999.0, 0));
        assert!(found(1000.0, 0) && found(-3_600_000.0, 0) && found(0.0, 1));
    }
}
