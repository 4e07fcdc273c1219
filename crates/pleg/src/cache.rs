//! The published map. One writer (the driver) puts views in; anyone reads, at any time, and
//! never blocks it: what is shared is a reference-counted status, and no guard of the map is held
//! for longer than a copy takes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pleg_core::{Instant, PodStatus, PodUid, PodView, TerminalRecord};

use crate::sync::{AtomicU64, DashMap};

/// What the writer has published.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pods: DashMap<PodUid, PodView>,
    ends: DashMap<PodUid, Arc<[TerminalRecord]>>,
    /// The begin of the last complete list in nanoseconds; zero if there was none.
    swept: AtomicU64,
}

impl Published {
    pub(crate) fn put(&self, uid: PodUid, view: PodView) {
        self.pods.insert(uid, view);
    }

    /// Nothing of the pod exists any more; that is known as freshly as the pod was.
    pub(crate) fn withdraw(&self, uid: &PodUid) {
        if let Some(mut view) = self.pods.get_mut(uid) {
            let nothing = Arc::new(PodStatus::nothing(uid.clone()));
            *view = PodView::new(nothing, view.as_of, view.inspected);
        }
    }

    /// A complete list began: what is not in the map does not exist as of then.
    pub(crate) fn sweep(&self, as_of: Instant, gone: &[PodUid]) {
        // First, so that whoever misses a pod that goes here also finds that there was a sweep.
        self.swept.store(as_of.as_nanos(), Ordering::Release);
        for uid in gone {
            self.pods.remove_if(uid, |_, view| view.status.is_nothing());
        }
    }

    /// A list showed these pods unchanged.
    pub(crate) fn confirm(&self, as_of: Instant, pods: &[PodUid]) {
        for uid in pods {
            if let Some(mut view) = self.pods.get_mut(uid) {
                view.as_of = view.as_of.max(Some(as_of));
            }
        }
    }

    pub(crate) fn set_ends(&self, uid: PodUid, records: Arc<[TerminalRecord]>) {
        if records.is_empty() {
            self.ends.remove(&uid);
        } else {
            self.ends.insert(uid, records);
        }
    }

    pub(crate) fn get(&self, uid: &PodUid) -> PodView {
        loop {
            let swept = self.swept();
            if let Some(view) = self.pods.get(uid) {
                return view.clone();
            }
            // Read before the map, it may be older than what was swept out of the map; read after
            // it, newer than a pod that appeared. There is a sweep a second at most.
            if self.swept() == swept {
                return PodView::new(Arc::new(PodStatus::nothing(uid.clone())), swept, None);
            }
        }
    }

    pub(crate) fn snapshot(&self) -> Vec<PodView> {
        self.pods
            .iter()
            .map(|e| e.value().clone())
            .filter(|v| !v.status.is_nothing())
            .collect()
    }

    pub(crate) fn ends(&self, uid: &PodUid) -> Arc<[TerminalRecord]> {
        self.ends
            .get(uid)
            .map_or_else(|| [].into(), |e| e.value().clone())
    }

    fn swept(&self) -> Option<Instant> {
        match self.swept.load(Ordering::Acquire) {
            0 => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }
}
