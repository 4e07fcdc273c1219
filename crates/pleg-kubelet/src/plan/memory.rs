//! What a planner remembers between runs: the history of each pod, its crash back-off, and the reported exits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;

use pleg::{Exit, Id, Instant, Pleg, PodStatus, PodUid};

use crate::backoff::BackOffSettings;
use crate::history::{PodHistory, ids};
use crate::worker::{LastChange, Run};

/// How long a pod's state outlives its worker: a minute longer than the generator stores exit records of gone pods.
const FORGOTTEN_RETENTION: Duration = Duration::from_secs(11 * 60);

#[derive(Debug)]
pub(super) struct Memory {
    pub(super) back_off: BackOffSettings,
    pub(super) pods: BTreeMap<PodUid, Remembered>,
}

#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// A reference to the pod's worker, dead once the worker has ended. `None` after `forget`.
    worker: Option<Weak<LastChange>>,
    /// A new worker gets a new history.
    pub(super) history: PodHistory,
    /// The exits that were reported. An id may be reported as ended twice, if the runtime's first report was wrong.
    reported: BTreeSet<(Id, Instant)>,
    earlier: Option<Earlier>,
}

/// An earlier pod of the same uid (its manifest was put back), whose worker has ended. Its exits do not count now.
#[derive(Debug)]
struct Earlier {
    ended: Instant,
    /// Ids of leftovers and of exit records. All belong to the earlier pod, even if their containers end later.
    left: BTreeSet<Id>,
}

impl Memory {
    /// Returns what is known of the pod of this run. Forgets pods whose worker has ended, even one with the same uid.
    pub(super) fn update<S>(&mut self, run: &Run<S>) -> &mut Remembered {
        let (own, now) = (run.worker(), run.now());
        for (uid, pod) in &mut self.pods {
            let has_ended = |worker: &Weak<_>| match *uid == run.uid {
                true => !worker.ptr_eq(&own),
                false => worker.strong_count() == 0,
            };
            if pod.worker.as_ref().is_some_and(has_ended) {
                pod.forget(uid, &run.pleg);
            }
        }
        self.pods.retain(|uid, pod| {
            let is_remembered = |earlier: &Earlier| now.since(earlier.ended) < FORGOTTEN_RETENTION;
            *uid == run.uid
                || pod.worker.is_some()
                || pod.earlier.as_ref().is_some_and(is_remembered)
        });
        let pod = self.pods.entry(run.uid.clone()).or_default();
        if pod.worker.is_none() {
            pod.worker = Some(own);
            pod.history.back_off.settings = self.back_off;
        }
        pod
    }
}

impl Remembered {
    fn forget(&mut self, uid: &PodUid, pleg: &Pleg) {
        let status = &pleg.get(uid).status;
        let mut left = BTreeSet::new();
        if status.exists() {
            let exits = self.exits(&pleg.exits(uid), Some(status));
            left.extend(exits.into_iter().map(|exit| exit.id));
            left.extend(ids(status).cloned());
        } else {
            self.reported.clear();
        }
        self.worker = None;
        let unanswered = self.history.unanswered;
        self.history = PodHistory::default();
        (self.history.earlier, self.history.unanswered) = (left.clone(), unanswered);
        let ended = pleg.now();
        self.earlier = Some(Earlier { ended, left });
    }

    /// The exits of this pod, without those of an earlier pod with the same uid. If `status` is given, the result also
    /// has the exits of containers and sandboxes left over from the earlier pod.
    pub(super) fn exits(&self, of: &[Exit], status: Option<&PodStatus>) -> Vec<Exit> {
        let is_own = |earlier: &Earlier, exit: &Exit| {
            let is_later = exit.detected > earlier.ended;
            let is_left = earlier.left.contains(&exit.id);
            match status {
                None => is_later && !is_left,
                Some(status) => is_later || is_left || ids(status).any(|id| *id == exit.id),
            }
        };
        let is_own = |exit: &&Exit| self.earlier.as_ref().is_none_or(|e| is_own(e, exit));
        of.iter().filter(is_own).cloned().collect()
    }

    /// The exits in `exits` that were not reported yet.
    pub(super) fn unreported(&mut self, exits: &[Exit]) -> Vec<Exit> {
        let keys: BTreeSet<_> = exits.iter().map(key_of).collect();
        self.reported.retain(|key| keys.contains(key));
        let is_new = |exit: &&Exit| !self.reported.contains(&key_of(exit));
        exits.iter().filter(is_new).cloned().collect()
    }

    pub(super) fn reported(&mut self, exits: &[Exit]) {
        self.reported.extend(exits.iter().map(key_of));
    }
}

fn key_of(exit: &Exit) -> (Id, Instant) {
    (exit.id.clone(), exit.detected)
}
