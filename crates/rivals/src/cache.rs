//! Upstream's pod cache: one lock, a timestamp per entry and a global timestamp.
//! A change of either wakes waiters.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pleg_core::{CallError, PodUid};
use tokio::sync::oneshot;

use crate::status::PodStatus;
use crate::subject::Answer;
use crate::time::Time;

/// The cache. It has several writers: generic and evented both set entries.
#[derive(Debug)]
pub struct Cache {
    /// With the feature gate EventedPLEG, an entry with a later timestamp is not overwritten.
    rejects_older: bool,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<PodUid, Entry>,
    /// Upstream assumes that every pod is at least this fresh, but also sets it by timer (B3).
    global: Option<Time>,
    waiting: BTreeMap<PodUid, Vec<Waiter>>,
}

#[derive(Debug)]
struct Entry {
    answer: Answer,
    /// The timestamp that the writer set.
    modified: Time,
    /// The start of the last relist of this pod.
    observed: Time,
}

#[derive(Debug)]
struct Waiter {
    after: Time,
    answer: oneshot::Sender<Answer>,
}

impl Cache {
    /// Creates an empty cache. `rejects_older` is the state of the feature gate EventedPLEG.
    #[must_use]
    pub fn new(rejects_older: bool) -> Self {
        Self {
            rejects_older,
            state: RwLock::default(),
        }
    }

    /// The cached status, or the default status if the pod is not cached.
    #[must_use]
    pub fn get(&self, uid: &PodUid) -> Answer {
        self.read().answer(uid)
    }

    /// Whether the pod is cached.
    #[must_use]
    pub fn contains(&self, uid: &PodUid) -> bool {
        self.read().entries.contains_key(uid)
    }

    /// The global timestamp.
    #[must_use]
    pub fn global(&self) -> Option<Time> {
        self.read().global
    }

    /// Waits for a status that is newer than `after`. A status with the timestamp `after` also ends
    /// the wait if it is set during the wait. There is no timeout (C18).
    pub async fn newer_than(&self, uid: &PodUid, after: Time) -> Answer {
        let receiver = {
            let mut state = self.write();
            if let Some(answer) = state.newer(uid, after) {
                return answer;
            }
            let (answer, receiver) = oneshot::channel();
            let waiters = state.waiting.entry(uid.clone()).or_default();
            waiters.retain(|w| !w.answer.is_closed());
            waiters.push(Waiter { after, answer });
            receiver
        };
        match receiver.await {
            Ok(answer) => answer,
            Err(_cache_dropped) => std::future::pending().await,
        }
    }

    /// Sets the status of a pod. Returns false if it was rejected as older.
    pub fn set(
        &self,
        uid: &PodUid,
        status: Arc<PodStatus>,
        error: Option<CallError>,
        at: Time,
    ) -> bool {
        let mut state = self.write();
        let newer = |entry: &Entry| entry.modified > at;
        if self.rejects_older && state.entries.get(uid).is_some_and(newer) {
            return false;
        }
        let entry = Entry {
            answer: Answer { status, error },
            modified: at,
            observed: at,
        };
        state.entries.insert(uid.clone(), entry);
        state.notify(uid, at);
        true
    }

    /// Notes that a relist of this pod, which began at that time, found no change.
    pub fn set_observed(&self, uid: &PodUid, at: Time) {
        let mut state = self.write();
        if let Some(entry) = state.entries.get_mut(uid) {
            entry.observed = at;
        }
        state.notify(uid, at);
    }

    /// Deletes the entry of a pod. Waiters are not notified, and there is no tombstone (B2).
    pub fn delete(&self, uid: &PodUid) {
        self.write().entries.remove(uid);
    }

    /// Sets the global timestamp. It may go backwards (B3).
    pub fn update_time(&self, at: Time) {
        let mut state = self.write();
        state.global = Some(at);
        let uids: Vec<PodUid> = state.waiting.keys().cloned().collect();
        for uid in uids {
            state.notify(&uid, at);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn answer(&self, uid: &PodUid) -> Answer {
        match self.entries.get(uid) {
            Some(entry) => entry.answer.clone(),
            None => Answer {
                status: Arc::new(PodStatus::empty(uid.clone())),
                error: None,
            },
        }
    }

    fn newer(&self, uid: &PodUid, after: Time) -> Option<Answer> {
        let is_newer = |at: Time| at > after;
        let global_is_newer = self.global.is_some_and(is_newer);
        let entry_is_newer = self
            .entries
            .get(uid)
            .is_some_and(|e| is_newer(e.modified) || is_newer(e.observed));
        (global_is_newer || entry_is_newer).then(|| self.answer(uid))
    }

    /// Answers the waiters for `at` or an earlier time.
    fn notify(&mut self, uid: &PodUid, at: Time) {
        let Some(waiting) = self.waiting.remove(uid) else {
            return;
        };
        let answer = self.answer(uid);
        let mut remaining = Vec::new();
        for waiter in waiting {
            if at < waiter.after {
                remaining.push(waiter);
            } else {
                // The waiter may have been cancelled.
                let _ = waiter.answer.send(answer.clone());
            }
        }
        if !remaining.is_empty() {
            self.waiting.insert(uid.clone(), remaining);
        }
    }
}
