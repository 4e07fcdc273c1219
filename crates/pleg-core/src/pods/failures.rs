//! The pods that cannot be read: when they are tried again, and which of them health names.

use std::collections::{BTreeMap, BTreeSet};

use crate::backoff::Backoff;
use crate::types::ids::PodUid;
use crate::types::time::Instant;

/// The pods that cannot be read, published or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Failures {
    /// Pods whose last list failed.
    lists: BTreeMap<PodUid, ListFailure>,
    /// Pods with an id whose status cannot be read.
    statuses: BTreeSet<PodUid>,
    /// Pods with failures since the last answer of `Version`, which shows whether they count.
    unjudged: BTreeSet<PodUid>,
    /// The pods that health names.
    named: BTreeSet<PodUid>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ListFailure {
    backoff: Backoff,
    /// The pod is at fault, not the runtime as a whole.
    counts: bool,
}

impl Failures {
    /// A list of the pod has failed.
    pub(crate) fn list_failed(&mut self, uid: &PodUid, now: Instant) {
        let previous = self.lists.get(uid);
        let failure = ListFailure {
            backoff: Backoff::uncounted(previous.map(|previous| previous.backoff), now),
            counts: previous.is_some_and(|previous| previous.counts),
        };
        self.lists.insert(uid.clone(), failure);
        self.unjudged.insert(uid.clone());
    }

    /// The pod was listed.
    pub(crate) fn listed(&mut self, uid: &PodUid) {
        if self.lists.remove(uid).is_some() {
            self.name(uid);
        }
    }

    /// A status call of the pod has failed.
    pub(crate) fn status_failed(&mut self, uid: &PodUid) {
        if !self.unjudged.contains(uid) {
            self.unjudged.insert(uid.clone());
        }
    }

    /// The status of some id of the pod can, or cannot, be read.
    pub(crate) fn set_status_failing(&mut self, uid: &PodUid, fails: bool) {
        let changes = match fails {
            true => self.statuses.insert(uid.clone()),
            false => self.statuses.remove(uid),
        };
        if changes {
            self.name(uid);
        }
    }

    /// `Version` has answered. `counts`: the runtime as a whole works, so the failures since its last answer count. Returns
    /// the pods that had failures.
    pub(crate) fn judge(&mut self, counts: bool, now: Instant) -> BTreeSet<PodUid> {
        let unjudged = std::mem::take(&mut self.unjudged);
        for uid in unjudged.iter().filter(|_| counts) {
            if let Some(failure) = self.lists.get_mut(uid) {
                failure.backoff = Backoff::after(Some(failure.backoff), now);
                failure.counts = true;
                self.name(uid);
            }
        }
        unjudged
    }

    fn name(&mut self, uid: &PodUid) {
        let is_failing = self.lists.get(uid).is_some_and(|failure| failure.counts);
        if is_failing || self.statuses.contains(uid) {
            self.named.insert(uid.clone());
        } else {
            self.named.remove(uid);
        }
    }

    /// When the pod must be listed again because its last list failed. Nobody but a caller reads it before.
    pub(crate) fn retry_at(&self, uid: &PodUid) -> Option<Instant> {
        self.lists.get(uid).map(|failure| failure.backoff.retry_at)
    }

    /// The pods that health names.
    pub(crate) const fn named(&self) -> &BTreeSet<PodUid> {
        &self.named
    }

    /// How many pods are stored here.
    pub(crate) fn len(&self) -> usize {
        self.lists.len() + self.unjudged.len() + self.named.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_origin(std::time::Duration::from_secs(seconds))
    }

    #[test]
    fn list_failure_counts_if_version_succeeds() {
        let (mut failures, pod) = (Failures::default(), PodUid::from("p"));
        for (counts, now, retry, named) in [(false, 0, 1, 0), (true, 1, 2, 1), (true, 2, 4, 1)] {
            failures.list_failed(&pod, at(now));
            assert_eq!(failures.judge(counts, at(now)).len(), 1);
            assert_eq!(failures.retry_at(&pod), Some(at(retry)));
            assert_eq!(failures.named().len(), named);
        }
        failures.listed(&pod);
        assert_eq!(failures, Failures::default());
    }
}
