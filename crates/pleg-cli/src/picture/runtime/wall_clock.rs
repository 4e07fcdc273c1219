//! The wall clock: whether it was set during the examination, or before it by more than the pods' ages
//! allow.

use std::time::Duration;

use pleg::core::{PodView, WallTime};
use serde::{Deserialize, Serialize};

use super::pods::objects;
use crate::figures::span;
use crate::picture::finding::Finding;
use crate::picture::kinds::CLOCK_STEP;

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

impl WallClock {
    /// The clock was set by `step` nanoseconds, and shows `now`.
    pub(super) fn new(step: i64, now: WallTime, views: &[PodView]) -> Self {
        let future = now.after(FUTURE);
        let created = views.iter().flat_map(objects).filter_map(|(_, _, at)| at);
        Self {
            step_millis: (step as f64 / 1e6).round(),
            from_future: created.filter(|at| *at > future).count(),
        }
    }
}

pub(super) fn check(clock: &WallClock) -> Option<Finding> {
    let (step, future) = (clock.step_millis, clock.from_future);
    let direction = if step < 0.0 { "back" } else { "forward" };
    let by = span(step.abs());
    let step = (step.abs() >= STEP)
        .then(|| format!("the wall clock went {direction} by {by} against the monotonic clock"));
    let future = (future > 0)
        .then(|| format!("{future} sandboxes and containers have a creation time in the future"));
    let summary = match (&step, &future) {
        (None, None) => return None,
        (Some(_), _) => "the wall clock was set during the examination",
        (None, Some(_)) => "pods were created in the future: the wall clock was set back",
    };
    let mut found = CLOCK_STEP.found(
        summary,
        "Let one time service slew the clock (chronyd, systemd-timesyncd). Events with wrong timestamps are not \
         trusted until the next list.",
    );
    found.evidence = [step, future].into_iter().flatten().collect();
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_or_pods_from_the_future_are_found() {
        for (step_millis, from_future, is_found) in [
            (0.0, 0, false),
            (999.0, 0, false),
            (-999.0, 0, false),
            (1000.0, 0, true),
            (-3_600_000.0, 0, true),
            (0.0, 1, true),
        ] {
            let clock = WallClock {
                step_millis,
                from_future,
            };
            assert_eq!(check(&clock).is_some(), is_found, "{clock:?}");
        }
    }
}
