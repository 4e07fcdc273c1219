//! Upstream's pod cache: one lock, a timestamp per pod, a timestamp for all pods. A new timestamp wakes waiters.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pleg_core::{Instant, PodUid, Report, Text};
use tokio::sync::oneshot;

/// The cached status of a pod, with its sandboxes and containers as the runtime reported them.
#[derive(Clone, Debug)]
pub(crate) struct PodStatus {
    pub(crate) uid: PodUid,
    pub(crate) namespace: Text,
    pub(crate) name: Text,
    /// The sandboxes, newest first.
    pub(crate) sandboxes: Vec<Report>,
    /// The containers, newest first.
    pub(crate) containers: Vec<Report>,
}

#[derive(Debug, Default)]
pub(crate) struct Cache(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<PodUid, Entry>,
    /// The start of the last relist of the node. The cached status of every pod is at least this fresh.
    global: Option<Instant>,
    waiting: BTreeMap<PodUid, Vec<Waiter>>,
}

#[derive(Debug)]
struct Entry {
    /// The pod's status; `None` after a failed inspection, because upstream overwrites the last good status.
    status: Option<Arc<PodStatus>>,
    /// The start of the relist that last updated this entry.
    as_of: Instant,
}

#[derive(Debug)]
struct Waiter {
    after: Instant,
    wake: oneshot::Sender<()>,
}

impl Cache {
    pub(crate) fn get(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.lock().entries.get(uid)?.status.clone()
    }

    /// Waits for a status that is newer than `after`. A status that is set during the wait ends the wait even if its
    /// timestamp is exactly `after`.
    pub(crate) async fn newer_than(&self, uid: &PodUid, after: Instant) {
        let woken = {
            let mut state = self.lock();
            if state.is_newer(uid, after) {
                return;
            }
            let (wake, woken) = oneshot::channel();
            let waiters = state.waiting.entry(uid.clone()).or_default();
            waiters.retain(|w| !w.wake.is_closed());
            waiters.push(Waiter { after, wake });
            woken
        };
        if woken.await.is_err() {
            // The cache was dropped: wait for ever.
            std::future::pending::<()>().await;
        }
    }

    /// Sets the status of a pod; `None` if its inspection failed.
    pub(crate) fn set(&self, uid: &PodUid, status: Option<PodStatus>, as_of: Instant) {
        let mut state = self.lock();
        let status = status.map(Arc::new);
        state.entries.insert(uid.clone(), Entry { status, as_of });
        state.wake(uid, as_of);
    }

    /// Sets the timestamp of a pod after a relist that began at `at` and found no change.
    pub(crate) fn set_observed(&self, uid: &PodUid, at: Instant) {
        let mut state = self.lock();
        if let Some(entry) = state.entries.get_mut(uid) {
            entry.as_of = entry.as_of.max(at);
        }
        state.wake(uid, at);
    }

    /// Deletes the entry of a pod.
    pub(crate) fn delete(&self, uid: &PodUid) {
        self.lock().entries.remove(uid);
    }

    /// Sets the global timestamp.
    pub(crate) fn update_time(&self, at: Instant) {
        let mut state = self.lock();
        state.global = Some(at);
        let uids: Vec<PodUid> = state.waiting.keys().cloned().collect();
        for uid in uids {
            state.wake(&uid, at);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_newer(&self, uid: &PodUid, after: Instant) -> bool {
        self.global.is_some_and(|at| at > after)
            || self.entries.get(uid).is_some_and(|e| e.as_of > after)
    }

    /// Wakes the waiters of the pod that wait for a status as of `at` or an earlier instant.
    fn wake(&mut self, uid: &PodUid, at: Instant) {
        let Some(waiting) = self.waiting.remove(uid) else {
            return;
        };
        let (ready, later): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|w| w.after <= at);
        for waiter in ready {
            // The waiter may have been cancelled.
            let _ = waiter.wake.send(());
        }
        if !later.is_empty() {
            self.waiting.insert(uid.clone(), later);
        }
    }
}
