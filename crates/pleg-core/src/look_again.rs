//! Which pods are read again because a read showed less than an event had reported, and when.
//!
//! containerd 2.4 listed a container as running after it had sent its STOPPED. So such a pod is read again after 0.1,
//! 0.3, 1, 3 and 10 s. After that only relists look at it.

use std::collections::BTreeMap;

use crate::constants::LOOK_AGAIN;
use crate::types::{Instant, PodUid};

/// The pods that are read again. Under `None`: ids that only relists show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LookAgain {
    pods: BTreeMap<Option<PodUid>, Looks>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Looks {
    /// The number of looks so far, with the next one.
    count: usize,
    /// When the next one is due. `None`: the last one was made.
    next: Option<Instant>,
}

impl LookAgain {
    /// A read of the pod showed less than events had reported. Returns when the next look is due, or `None` after the
    /// last one. A read that began for another reason before the next look is due does not advance the schedule: a busy
    /// worker would use it up within milliseconds.
    pub(crate) fn plan(&mut self, pod: Option<&PodUid>, now: Instant) -> Option<Instant> {
        let looks = self.pods.entry(pod.cloned()).or_default();
        if looks.next.is_none_or(|next| next <= now) {
            looks.next = LOOK_AGAIN.get(looks.count).map(|&pause| now.after(pause));
            looks.count += 1;
        }
        looks.next
    }

    /// Ends the looks: the pod shows everything that events have reported.
    pub(crate) fn stop(&mut self, pod: Option<&PodUid>) {
        self.pods.remove(&pod.cloned());
    }

    /// A new event about the pod starts its schedule anew, but does not delay the look that is planned.
    pub(crate) fn restart(&mut self, pod: Option<&PodUid>) {
        let key = pod.cloned();
        match self.pods.get_mut(&key) {
            Some(looks) if looks.next.is_some() => looks.count = 0,
            _ => {
                self.pods.remove(&key);
            }
        }
    }

    /// When the pod must be read again.
    pub(crate) fn due(&self, pod: Option<&PodUid>) -> Option<Instant> {
        self.pods.get(&pod.cloned())?.next
    }

    /// The number of pods with a schedule.
    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }
}
