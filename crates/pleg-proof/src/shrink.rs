//! Reduces the configuration of a world while the same assertion fails.

use crate::assertions::Violation;
use crate::plan::Plan;
use crate::simulation::simulate;
use crate::trace::Trace;

/// A smaller plan that violates the same assertion, after at most `tries` worlds; otherwise the given
/// plan.
pub fn shrink(plan: &Plan, violation: &Violation, tries: usize) -> (Plan, Violation) {
    let mut smallest = (plan.clone(), violation.clone());
    let mut left = tries;
    'smaller: loop {
        for plan in smallest.0.smaller() {
            if left == 0 {
                return smallest;
            }
            left -= 1;
            let failure = simulate(&plan, Trace::Off).err();
            if let Some(failure) = failure
                && failure.violation.assertion == violation.assertion
            {
                smallest = (plan, failure.violation);
                continue 'smaller;
            }
        }
        return smallest;
    }
}
