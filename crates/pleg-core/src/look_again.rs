//! The schedule of retries after stale reads.
//!
//! containerd 2.4 listed a container as running after containerd had sent the container's STOPPED event. The reconciler
//! retries a read that contradicts an event, with pauses of 0.1, 0.3, 1, 3 and 10 s. Then only relists read the pod.

use std::collections::BTreeMap;

use crate::constants::LOOK_AGAIN;
use crate::types::{Instant, PodUid};

/// The pods whose last read was stale or differs from an overlapping relist. Under `None`: ids that only relists show.
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
    /// before the planned retry does not count as a retry: else a busy pod worker would use up all retries at once.
    pub(crate) fn plan(&mut self, pod: Option<&PodUid>, now: Instant) -> Option<Instant> {
        let looks = self.pods.entry(pod.cloned()).or_default();
        if looks.next.is_none_or(|next| next <= now) {
            looks.next = LOOK_AGAIN.get(looks.count).map(|&pause| now.after(pause));
            looks.count += 1;
        }
        looks.next
    }

    /// Ends the retries, because the last read of the pod was not stale.
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

    /// Returns true if the pod's last read was stale or differs from an overlapping relist.
    pub(crate) fn has(&self, pod: &PodUid) -> bool {
        !self.pods.is_empty() && self.pods.contains_key(&Some(pod.clone()))
    }

    /// The number of pods with a schedule of retries.
    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }
}
