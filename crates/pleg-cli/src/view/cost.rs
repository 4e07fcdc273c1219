//! The cost of the calls to the runtime, and of the calls that upstream's generic PLEG would make on this node.

use super::*;

const BASIS: &str = "Ours is measured. The generic PLEG is estimated: two list calls, a pause of one second, and so \
     on, each call as long as ours on average; and whenever a pod has changed, one status call for each of \
     its sandboxes and containers.";
/// Costs are shown and compared only if they were measured for at least this time.
pub(crate) const COMPARED_AFTER: Duration = Duration::from_secs(60);
/// The pause between two relists of the generic PLEG.
const GENERIC_PERIOD_SECONDS: f64 = 1.0;

/// The calls in the last quarter of an hour. The first minute after the start is left out.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Cost {
    /// The length of the period in which the counted calls were made.
    pub(crate) seconds: f64,
    pub(crate) ours: CallCosts,
    /// Absent in the first two minutes of the process that observes the node, and while `ours.lists` is 0.
    pub(crate) generic: Option<CallCosts>,
    pub(crate) basis: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, Constructor)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CallCosts {
    /// The number of calls for complete lists. A complete list needs two calls.
    pub(crate) lists: u64,
    pub(crate) list_seconds: f64,
    /// The number of calls about a single pod, container or sandbox.
    pub(crate) reads: u64,
}

impl Cost {
    /// `calls`: the calls that were made. `statuses`: the status calls that the generic PLEG would have made.
    pub(super) fn new(now: Instant, calls: &Calls, statuses: &Series) -> Self {
        let span = calls.lists.span(now);
        let (lists, list_time) = calls.lists.total(now);
        let (seconds, list_seconds) = (span.as_secs_f64(), list_time.as_secs_f64());
        let is_compared = lists > 0 && span >= COMPARED_AFTER;
        let generic = is_compared.then(|| {
            let relist = 2.0 * list_seconds / lists as f64;
            let relists = seconds / (GENERIC_PERIOD_SECONDS + relist);
            CallCosts::new(2 * relists as u64, relists * relist, statuses.total(now).0)
        });
        Self {
            seconds,
            ours: CallCosts::new(lists, list_seconds, calls.reads.total(now).0),
            generic,
            basis: BASIS.to_owned(),
        }
    }
}
