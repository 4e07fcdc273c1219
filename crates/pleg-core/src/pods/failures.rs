//! The pods whose calls fail: their retries, and the pods that health reports.

use std::collections::{BTreeMap, BTreeSet};

use crate::backoff::Backoff;
use crate::types::{Instant, PodUid};

/// The pods whose calls fail, in the cache or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Failures {
    /// Pods whose last list failed.
    lists: BTreeMap<PodUid, Backoff>,
    /// Pods that have a sandbox or container whose status call fails.
    statuses: BTreeSet<PodUid>,
    /// The pods of `lists` and `statuses`, except pods whose lists failed only while the whole runtime failed.
    named: BTreeSet<PodUid>,
}

impl Failures {
    /// A list of the pod has failed. `outage`: the runtime as a whole fails, so the pod is not blamed.
    pub(crate) fn list_failed(&mut self, uid: &PodUid, outage: bool, now: Instant) {
        let backoff = Backoff::after(self.lists.get(uid).copied(), !outage, now);
        self.lists.insert(uid.clone(), backoff);
        self.name(uid);
    }

    /// The pod was listed.
    pub(crate) fn listed(&mut self, uid: &PodUid) {
        if self.lists.remove(uid).is_some() {
            self.name(uid);
        }
    }

    /// Records whether a status call of the pod fails.
    pub(crate) fn set_status_failing(&mut self, uid: &PodUid, fails: bool) {
        let changes = match fails {
            true => self.statuses.insert(uid.clone()),
            false => self.statuses.remove(uid),
        };
        if changes {
            self.name(uid);
        }
    }

    fn name(&mut self, uid: &PodUid) {
        let is_failing = self.lists.get(uid).is_some_and(|list| list.failures > 0);
        if is_failing || self.statuses.contains(uid) {
            self.named.insert(uid.clone());
        } else {
            self.named.remove(uid);
        }
    }

    /// The instant at which a pod whose last list failed is listed again. Only a waiting caller causes an earlier list.
    pub(crate) fn retry_at(&self, uid: &PodUid) -> Option<Instant> {
        self.lists.get(uid).map(|list| list.retry_at)
    }

    /// The pods that health names.
    pub(crate) const fn named(&self) -> &BTreeSet<PodUid> {
        &self.named
    }

    /// The number of pods stored here.
    pub(crate) fn len(&self) -> usize {
        self.lists.len() + self.named.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::at_s as at;

    #[test]
    fn list_failure_counts_against_pod_unless_whole_runtime_fails() {
        let (mut failures, pod) = (Failures::default(), PodUid::from("p"));
        for (outage, now, retry, named) in [(true, 0, 1, 0), (false, 1, 2, 1), (false, 2, 4, 1)] {
            failures.list_failed(&pod, outage, at(now));
            assert_eq!(failures.retry_at(&pod), Some(at(retry)));
            assert_eq!(failures.named().len(), named);
        }
        failures.listed(&pod);
        assert_eq!(failures, Failures::default());
    }
}
