//! The planner's memory between runs: the history of each pod, its crash back-off, and the reported exits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use pleg::{Exit, Id, Instant, Pleg, PodUid};

use crate::backoff::BackOffSettings;
use crate::history::{PodHistory, ids};
use crate::worker::{LastChange, Run};

#[derive(Debug)]
pub(super) struct Memory {
    pub(super) back_off: BackOffSettings,
    pub(super) pods: BTreeMap<PodUid, Remembered>,
}

#[derive(Debug, Default)]
pub(super) struct Remembered {
    /// A weak reference to the pod's worker, which is dead once the worker has ended. `None` after `forget`.
    worker: Option<Weak<LastChange>>,
    /// The history of the pod. A new worker of the pod gets a new history.
    pub(super) history: PodHistory,
    /// The exits that were reported. After a wrong report of the runtime, an id may exit again at another instant.
    reported: BTreeSet<(Id, Instant)>,
}

impl Memory {
    /// Returns the memory of this run's pod. Forgets every pod whose worker has ended, even an earlier pod with this
    /// uid. Its container and sandbox ids, reported exits and `unanswered` stay until the generator forgets the pod.
    pub(super) fn update<S>(&mut self, run: &Run<S>) -> &mut Remembered {
        let (own, pleg) = (Arc::downgrade(&run.last_change), &run.pleg);
        for (uid, pod) in &mut self.pods {
            let has_ended = |worker: &Weak<_>| match *uid == run.uid {
                true => !worker.ptr_eq(&own),
                false => worker.strong_count() == 0,
            };
            if pod.worker.as_ref().is_some_and(has_ended) {
                pod.forget(uid, pleg);
            }
        }
        let is_known = |uid: &PodUid| pleg.get(uid).status.exists() || !pleg.exits(uid).is_empty();
        self.pods
            .retain(|uid, pod| pod.worker.is_some() || is_known(uid));
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
        let (status, exits) = (&pleg.get(uid).status, pleg.exits(uid));
        if !status.exists() {
            self.reported(&exits);
        }
        self.worker = None;
        let earlier = exits.iter().map(|exit| &exit.id).chain(ids(status));
        let unanswered = self.history.unanswered;
        self.history = PodHistory::default();
        self.history.earlier.extend(earlier.cloned());
        self.history.unanswered = unanswered;
    }

    /// Returns those of `exits` that were not reported yet.
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
