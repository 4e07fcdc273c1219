//! Upstream's pod cache (reference, 1.10): one lock, a timestamp per entry and one for all, and
//! whoever waits is woken by whichever of them moves.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use pleg_core::{CallError, PodUid};
use tokio::sync::oneshot;

use crate::status::PodStatus;
use crate::subject::Answer;
use crate::time::Time;

/// The cache. Many writers: generic and evented both set entries.
#[derive(Debug)]
pub struct Cache {
    /// With events in use, an entry that is newer by its writer's claim is not overwritten.
    rejects_older: bool,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<PodUid, Entry>,
    /// Every pod is as fresh as this: so upstream says, and breaks it by timer (B3).
    global: Option<Time>,
    waiting: BTreeMap<PodUid, Vec<Waiter>>,
}

/// What is held of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The status and the error of the read.
    pub answer: Answer,
    /// What its writer claims that it is of.
    pub modified: Time,
    /// When a relist of this pod last saw it.
    pub observed: Time,
}

#[derive(Debug)]
struct Waiter {
    after: Time,
    answer: oneshot::Sender<Answer>,
}

impl Cache {
    /// An empty cache; `rejects_older` with events in use.
    #[must_use]
    pub fn new(rejects_older: bool) -> Self {
        Self {
            rejects_older,
            state: RwLock::default(),
        }
    }

    /// What is there; a pod that is not has the default status.
    #[must_use]
    pub fn get(&self, uid: &PodUid) -> Answer {
        self.read().answer(uid)
    }

    /// The entry of a pod.
    #[must_use]
    pub fn entry(&self, uid: &PodUid) -> Option<Entry> {
        self.read().entries.get(uid).cloned()
    }

    /// The timestamp of all.
    #[must_use]
    pub fn global(&self) -> Option<Time> {
        self.read().global
    }

    /// Waits for an answer strictly newer than `after`; one that is stamped exactly `after` wakes
    /// it nonetheless if it comes while it waits. Waits for ever (C18).
    pub async fn newer_than(&self, uid: &PodUid, after: Time) -> Answer {
        let waits = {
            let mut state = self.write();
            if let Some(answer) = state.newer(uid, after) {
                return answer;
            }
            let (answer, waits) = oneshot::channel();
            let of_pod = state.waiting.entry(uid.clone()).or_default();
            of_pod.retain(|w| !w.answer.is_closed());
            of_pod.push(Waiter { after, answer });
            waits
        };
        match waits.await {
            Ok(answer) => answer,
            Err(_the_cache_is_gone) => std::future::pending().await,
        }
    }

    /// Stores what was read; whether it was taken.
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

    /// A relist of this pod that began then has changed nothing.
    pub fn set_observed(&self, uid: &PodUid, at: Time) {
        let mut state = self.write();
        if let Some(entry) = state.entries.get_mut(uid) {
            entry.observed = at;
        }
        state.notify(uid, at);
    }

    /// Forgets a pod: nobody is told, and nothing remembers that it was there (B2).
    pub fn delete(&self, uid: &PodUid) {
        self.write().entries.remove(uid);
    }

    /// Everything is as fresh as that, whoever says so; it may go backwards (B3).
    pub fn update_time(&self, at: Time) {
        let mut state = self.write();
        state.global = Some(at);
        let waited_for: Vec<PodUid> = state.waiting.keys().cloned().collect();
        for uid in waited_for {
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
                status: Arc::new(PodStatus::nothing(uid.clone())),
                error: None,
            },
        }
    }

    fn newer(&self, uid: &PodUid, after: Time) -> Option<Answer> {
        let is_newer = |at: Time| at > after;
        let by_all = self.global.is_some_and(is_newer);
        let by_itself = self
            .entries
            .get(uid)
            .is_some_and(|e| is_newer(e.modified) || is_newer(e.observed));
        (by_all || by_itself).then(|| self.answer(uid))
    }

    /// Wakes those who wait for `at` or earlier.
    fn notify(&mut self, uid: &PodUid, at: Time) {
        let Some(waiting) = self.waiting.remove(uid) else {
            return;
        };
        let answer = self.answer(uid);
        let mut still = Vec::new();
        for waiter in waiting {
            if at < waiter.after {
                still.push(waiter);
            } else {
                // One who has given up takes no answer.
                let _ = waiter.answer.send(answer.clone());
            }
        }
        if !still.is_empty() {
            self.waiting.insert(uid.clone(), still);
        }
    }
}
