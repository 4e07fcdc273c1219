//! The schedule of retries after stale reads.
//!
//! containerd 2.4 listed a container as running after it had sent its STOPPED event. So the reconciler repeats a read
//! that contradicts an event after 0.1, 0.3, 1, 3 and 10 s. After the last retry, only relists read the pod.

use std::collections::BTreeMap;

use crate::constants::LOOK_AGAIN;
use crate::types::{Instant, PodUid};

/// The pods whose last read was stale. Under `None`: ids that only relists show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LookAgain {
    pods: BTreeMap<Option<PodUid>, Looks>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Looks {
    /// The number of retries planned so far.
    count: usize,
    /// The instant of the next retry. `None`: all retries are used up.
    next: Option<Instant>,
}

impl LookAgain {
    /// Plans a retry after a stale read of the pod. Returns its instant, or `None` after the last retry. A stale read
    /// that ends before the planned retry uses up none: else the reads of a busy pod worker would use up all at once.
    pub(crate) fn plan(&mut self, pod: Option<&PodUid>, now: Instant) -> Option<Instant> {
        let looks = self.pods.entry(pod.cloned()).or_default();
        if looks.next.is_none_or(|next| next <= now) {
            looks.next = LOOK_AGAIN.get(looks.count).map(|&pause| now.after(pause));
            looks.count += 1;
        }
        looks.next
    }

    /// Ends the retries: the pod shows everything that events have reported.
    pub(crate) fn stop(&mut self, pod: Option<&PodUid>) {
        self.pods.remove(&pod.cloned());
    }

    /// Restarts the series of pauses after a new event about the pod, without delaying a planned retry.
    pub(crate) fn restart(&mut self, pod: Option<&PodUid>) {
        let key = pod.cloned();
        match self.pods.get_mut(&key) {
            Some(looks) if looks.next.is_some() => looks.count = 0,
            _ => {
                self.pods.remove(&key);
            }
        }
    }

    /// The instant of the pod's next retry.
    pub(crate) fn due(&self, pod: Option<&PodUid>) -> Option<Instant> {
        self.pods.get(&pod.cloned())?.next
    }

    /// Returns true if the pod's last read was stale.
    pub(crate) fn has(&self, pod: &PodUid) -> bool {
        !self.pods.is_empty() && self.pods.contains_key(&Some(pod.clone()))
    }

    /// The number of pods with a schedule.
    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }
}
