//! The published cache. The driver is its only writer. Readers never block the driver: statuses are reference-counted,
//! and a reader locks the map only while it clones one view.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pleg_core::{Confirmed, Instant, PodUid, PodView};

use crate::exit_records::Exit;
use crate::sync::{AtomicU64, DashMap};

/// The data that the driver has published.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pods: DashMap<PodUid, Entry>,
    ends: DashMap<PodUid, Arc<[Exit]>>,
    /// The start of the last complete list whose pods were all read, in nanoseconds; zero if there was none.
    swept: AtomicU64,
    /// The start of the last list that showed every pod unchanged, in nanoseconds.
    confirmed: AtomicU64,
}

/// The cache entry of a pod.
#[derive(Clone, Debug)]
struct Entry {
    view: PodView,
    /// The value of [`Published::confirmed`] when this entry was written. Only later lists confirm the entry.
    written_after: u64,
}

impl Entry {
    /// The view with its present `as_of`. The caller must have loaded `confirmed` before it looked up this entry.
    fn view(&self, confirmed: u64) -> PodView {
        let mut view = self.view.clone();
        if confirmed > self.written_after {
            view.as_of = view.as_of.max(Some(Instant::from_nanos(confirmed)));
        }
        view
    }
}

impl Published {
    pub(crate) fn put(&self, uid: PodUid, view: PodView) {
        // A relist does not change the `as_of` of a pod that has no sandbox and no container.
        let written_after = match view.status.exists() {
            true => self.confirmed.load(Ordering::Acquire),
            false => u64::MAX,
        };
        self.pods.insert(
            uid,
            Entry {
                view,
                written_after,
            },
        );
    }

    /// Applies a complete list that began at `as_of`: pods without an entry did not exist then. Removes `gone` pods.
    pub(crate) fn sweep(&self, as_of: Instant, gone: &[PodUid]) {
        // Stores `swept` before the removals: a reader that finds no pod must load the `swept` of that removal.
        self.swept.store(as_of.as_nanos(), Ordering::Release);
        for uid in gone {
            let is_gone = |_: &PodUid, shown: &Entry| !shown.view.status.exists();
            self.pods.remove_if(uid, is_gone);
        }
    }

    /// Confirms `pods`: a list requested at `as_of` showed them unchanged.
    ///
    /// To confirm all pods, the driver stores one number, `confirmed`, which readers apply to every entry that is
    /// older. So confirming a quiet node does not write every entry.
    pub(crate) fn confirm(&self, as_of: Instant, pods: &Confirmed) {
        match pods {
            Confirmed::All => {
                // Only the driver writes `confirmed`, so no compare-and-swap is needed.
                let before = self.confirmed.load(Ordering::Acquire);
                let confirmed = before.max(as_of.as_nanos());
                self.confirmed.store(confirmed, Ordering::Release);
            }
            Confirmed::These(pods) => {
                for uid in pods {
                    if let Some(mut shown) = self.pods.get_mut(uid) {
                        shown.view.as_of = shown.view.as_of.max(Some(as_of));
                    }
                }
            }
        }
    }

    pub(crate) fn set_ends(&self, uid: PodUid, records: Arc<[Exit]>) {
        if records.is_empty() {
            self.ends.remove(&uid);
        } else {
            self.ends.insert(uid, records);
        }
    }

    pub(crate) fn get(&self, uid: &PodUid) -> PodView {
        loop {
            let swept = self.swept();
            // `confirmed` is loaded before the entry: a list that ends later may confirm a newer entry than this one.
            let confirmed = self.confirmed.load(Ordering::Acquire);
            if let Some(shown) = self.pods.get(uid) {
                return shown.view(confirmed);
            }
            // `swept` before the lookup may be older than the list that removed the pod; `swept` now may be newer than
            // a list that found the pod. So repeats the lookup until both are equal: lists are a second apart.
            if self.swept() == swept {
                return PodView::nothing(uid, swept);
            }
        }
    }

    pub(crate) fn snapshot(&self) -> Vec<PodView> {
        let confirmed = self.confirmed.load(Ordering::Acquire);
        self.pods
            .iter()
            .map(|e| e.value().view(confirmed))
            .filter(|v| v.status.exists())
            .collect()
    }

    pub(crate) fn ends(&self, uid: &PodUid) -> Arc<[Exit]> {
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

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use pleg_core::{PodStatus, SandboxState, SandboxStatus};

    fn at(nanos: u64) -> Option<Instant> {
        Some(Instant::from_nanos(nanos))
    }

    /// One number, `confirmed`, confirms all entries, except those written after it and those of pods that are gone.
    #[test]
    fn list_does_not_confirm_cache_entries_written_after_the_list() {
        let (cache, p) = (Published::default(), PodUid::from("p"));
        let put = |status: PodStatus, as_of| {
            cache.put(p.clone(), PodView::new(Arc::new(status), as_of, None));
        };
        let exists = || {
            let mut status = PodStatus::nothing(p.clone());
            status.sandboxes = [SandboxStatus::new("s", SandboxState::Ready)].into();
            status
        };
        let confirm = |nanos| cache.confirm(Instant::from_nanos(nanos), &Confirmed::All);
        put(exists(), None);
        assert_eq!(cache.get(&p).as_of, None);
        confirm(5);
        assert_eq!(cache.get(&p).as_of, at(5));
        put(exists(), None);
        assert_eq!(cache.get(&p).as_of, None, "written after that list");
        confirm(7);
        put(exists(), at(9));
        confirm(8);
        assert_eq!(cache.get(&p).as_of, at(9), "as_of never goes back");
        put(PodStatus::nothing(p.clone()), at(9));
        confirm(12);
        assert_eq!(cache.get(&p).as_of, at(9), "no list confirms it");
    }
}
