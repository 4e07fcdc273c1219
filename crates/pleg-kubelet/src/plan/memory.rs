//! What a planner remembers between runs: the history of each pod, the crash back-off, and which
//! exits were reported.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;

use pleg::{Exit, Id, Instant, Pleg, PodStatus, PodUid};

use crate::backoff::BackOff;
use crate::history::PodHistory;
use crate::worker::{LastChange, Run};

/// How long the state of a pod is stored after its worker has ended: a minute longer than the generator stores the exit
/// records of a pod that is gone.
const FORGOTTEN_RETENTION: Duration = Duration::from_secs(11 * 60);

#[derive(Debug)]
pub(super) struct Memory {
    pub(super) back_off: BackOff,
    pods: BTreeMap<PodUid, Remembered>,
    /// Pods whose worker has ended. Their exits do not count for a new pod with the same uid.
    forgotten: BTreeMap<PodUid, Forgotten>,
    reported: BTreeMap<PodUid, BTreeSet<(Id, Instant)>>,
}

#[derive(Debug)]
struct Remembered {
    /// The worker of the pod. It has ended when nothing else refers to it.
    worker: Weak<LastChange>,
    history: PodHistory,
}

#[derive(Debug)]
struct Forgotten {
    at: Instant,
    /// Ids left behind, and ids with exit records. They belong to the earlier pod, even if they end later.
    left: BTreeSet<Id>,
    /// See [`PodHistory::is_given_up`].
    unanswered: Option<Instant>,
}

impl Memory {
    pub(super) const fn new(back_off: BackOff) -> Self {
        Self {
            back_off,
            pods: BTreeMap::new(),
            forgotten: BTreeMap::new(),
            reported: BTreeMap::new(),
        }
    }

    /// The history of the pod of this run. A new worker gets a new history.
    pub(super) fn history<S>(&mut self, run: &Run<S>) -> (&mut PodHistory, &mut BackOff) {
        let forgotten = &self.forgotten;
        let pod = self.pods.entry(run.uid.clone());
        let pod = pod.or_insert_with(|| Remembered {
            worker: run.worker(),
            history: match forgotten.get(&run.uid) {
                Some(earlier) => PodHistory::after(earlier.left.clone(), earlier.unanswered),
                None => PodHistory::default(),
            },
        });
        (&mut pod.history, &mut self.back_off)
    }

    /// Forgets pods whose worker has ended, and an earlier pod with the uid of this run.
    pub(super) fn forget_ended<S>(&mut self, run: &Run<S>) {
        let worker = run.worker();
        let has_ended = |uid: &PodUid, pod: &Remembered| match *uid == run.uid {
            true => !pod.worker.ptr_eq(&worker),
            false => pod.worker.strong_count() == 0,
        };
        let ended = self.pods.extract_if(.., |uid, pod| has_ended(uid, pod));
        for (uid, pod) in ended.collect::<Vec<_>>() {
            self.forget(uid, &pod.history, run.pleg());
        }
        let (pods, now) = (&self.pods, run.now());
        self.forgotten.retain(|uid, f| {
            pods.contains_key(uid) || *uid == run.uid || now.since(f.at) < FORGOTTEN_RETENTION
        });
    }

    fn forget(&mut self, uid: PodUid, history: &PodHistory, pleg: &Pleg) {
        self.back_off.forget(&uid);
        let status = &pleg.get(&uid).status;
        let mut left = BTreeSet::new();
        if !status.exists() {
            self.reported.remove(&uid);
        } else {
            let records = pleg.exits(&uid);
            let exits = self.exits(&uid, &records, Some(status));
            left.extend(exits.into_iter().map(|exit| exit.id));
            left.extend(ids(status).cloned());
        }
        let forgotten = Forgotten {
            at: pleg.now(),
            left,
            unanswered: history.unanswered,
        };
        self.forgotten.insert(uid, forgotten);
    }

    /// The exits of this pod, without those of an earlier pod with the same uid: a manifest may be removed and put
    /// back. With the status of the pod, also the exits of containers and sandboxes left over from the earlier pod.
    pub(super) fn exits(&self, uid: &PodUid, of: &[Exit], status: Option<&PodStatus>) -> Vec<Exit> {
        let is_own = |earlier: &Forgotten, r: &Exit| match status {
            None => r.detected > earlier.at && !earlier.left.contains(&r.id),
            Some(status) => {
                let is_left = earlier.left.contains(&r.id) || ids(status).any(|id| *id == r.id);
                r.detected > earlier.at || is_left
            }
        };
        let mut own = of.to_vec();
        if let Some(earlier) = self.forgotten.get(uid) {
            own.retain(|r| is_own(earlier, r));
        }
        own
    }

    /// The exits in `exits` that were not reported yet.
    pub(super) fn unreported(&mut self, uid: &PodUid, exits: &[Exit]) -> Vec<Exit> {
        let Some(reported) = self.reported.get_mut(uid) else {
            return exits.to_vec();
        };
        reported.retain(|key| exits.iter().any(|exit| key_of(exit) == *key));
        let is_new = |exit: &&Exit| !reported.contains(&key_of(exit));
        exits.iter().filter(is_new).cloned().collect()
    }

    pub(super) fn reported(&mut self, uid: &PodUid, exit: &Exit) {
        let reported = self.reported.entry(uid.clone()).or_default();
        reported.insert(key_of(exit));
    }
}

/// The key of an exit. An id may end twice, if the first report was wrong.
fn key_of(exit: &Exit) -> (Id, Instant) {
    (exit.id.clone(), exit.detected)
}

fn ids(status: &PodStatus) -> impl Iterator<Item = &Id> {
    let containers = status.containers.iter().map(|c| &c.id);
    containers.chain(status.sandboxes.iter().map(|s| &s.id))
}
