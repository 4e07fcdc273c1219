//! What a broken law needs: the plan is made smaller for as long as the same law breaks.

use crate::history::History;
use crate::laws::Broken;
use crate::plan::Plan;
use crate::story::live;

/// A smaller plan that breaks the same law, after at most `tries` worlds; the given one if none
/// does.
pub fn shrink(plan: &Plan, broken: &Broken, tries: usize) -> (Plan, Broken) {
    let mut smallest = (plan.clone(), broken.clone());
    let mut left = tries;
    'smaller: loop {
        for plan in smallest.0.smaller() {
            if left == 0 {
                return smallest;
            }
            left -= 1;
            let failure = live(&plan, History::Off).err();
            if let Some(failure) = failure
                && failure.broken.assertion == broken.assertion
            {
                smallest = (plan, failure.broken);
                continue 'smaller;
            }
        }
        return smallest;
    }
}
