//! How far pod reads have come since the last relist: when the start is over, and which pods certainly do not exist.

use std::collections::BTreeMap;

use crate::types::ids::PodUid;
use crate::types::time::Instant;

/// The relist whose pods are being read, and the last one of which all were.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Progress {
    /// When the rows of a relist were requested, and the pods that it showed as new, changed or absent and that were not
    /// read since. Later relists are not followed until this one is settled.
    unsettled: Option<(Instant, BTreeMap<PodUid, SettledBy>)>,
    /// As of the last settled relist, pods that are not published did not exist.
    settled: Option<Instant>,
    /// Pods that are in the cache with an empty status, and as of when.
    emptied: BTreeMap<PodUid, Instant>,
}

/// The rows that settle what a relist showed of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SettledBy {
    /// They were requested at this instant or later.
    pub(crate) since: Instant,
    /// They must be those of a relist, because this one showed an id without label.
    pub(crate) relist: bool,
}

/// A relist that is settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub(crate) as_of: Instant,
    /// It is the first one: the start is over.
    pub(crate) is_first: bool,
    /// Pods with an empty status from before it: they leave the cache.
    pub(crate) gone: Vec<PodUid>,
}

impl Progress {
    pub(crate) const fn is_synced(&self) -> bool {
        self.settled.is_some()
    }

    /// As of when pods that are not published did not exist.
    pub(crate) const fn settled_as_of(&self) -> Option<Instant> {
        self.settled
    }

    /// A complete relist has ended that showed these pods as new, changed or absent.
    pub(crate) fn relisted(&mut self, began: Instant, pods: BTreeMap<PodUid, SettledBy>) {
        self.unsettled.get_or_insert((began, pods));
    }

    /// The pod was read with rows that were requested at `as_of`.
    pub(crate) fn read(&mut self, uid: &PodUid, as_of: Instant, of_relist: bool) {
        let settles = |by: &SettledBy| as_of >= by.since && (of_relist || !by.relist);
        if let Some((_, pods)) = &mut self.unsettled
            && pods.get(uid).is_some_and(settles)
        {
            pods.remove(uid);
        }
    }

    /// The pod is published as the last relist shows it.
    pub(crate) fn is_as_shown(&mut self, uid: &PodUid) {
        if let Some((_, pods)) = &mut self.unsettled {
            pods.remove(uid);
        }
    }

    /// Nothing of the pod exists any more.
    pub(crate) fn emptied(&mut self, uid: PodUid, as_of: Instant) {
        self.emptied.insert(uid, as_of);
    }

    /// The pod exists.
    pub(crate) fn exists(&mut self, uid: &PodUid) {
        self.emptied.remove(uid);
    }

    /// Returns the relist that is settled now, once.
    pub(crate) fn take_settled(&mut self) -> Option<Settled> {
        let (as_of, _) = self.unsettled.take_if(|(_, pods)| pods.is_empty())?;
        let is_first = self.settled.replace(as_of).is_none();
        let gone = self.emptied.extract_if(.., |_, at| *at <= as_of);
        Some(Settled {
            as_of,
            is_first,
            gone: gone.map(|(uid, _)| uid).collect(),
        })
    }

    /// The number of pods of which something is stored.
    pub(crate) fn len(&self) -> usize {
        self.emptied.len() + self.unsettled.as_ref().map_or(0, |(_, pods)| pods.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn unsettled(relist: bool) -> (Progress, PodUid) {
        let (mut progress, pod) = (Progress::default(), PodUid::from("p"));
        let by = SettledBy {
            since: at(10),
            relist,
        };
        progress.relisted(at(10), BTreeMap::from([(pod.clone(), by)]));
        (progress, pod)
    }

    #[test]
    fn relist_is_settled_when_its_pods_were_read() {
        let (mut progress, pod) = unsettled(false);
        progress.read(&pod, at(9), false);
        assert_eq!(progress.take_settled(), None);
        progress.read(&pod, at(11), false);
        let settled = progress.take_settled();
        assert!(settled.is_some_and(|settled| settled.is_first && settled.as_of == at(10)));
        assert_eq!((progress.take_settled(), progress.len()), (None, 0));
        assert_eq!(progress.settled_as_of(), Some(at(10)));
    }

    #[test]
    fn only_a_relist_settles_an_id_without_label() {
        let (mut progress, pod) = unsettled(true);
        progress.read(&pod, at(11), false);
        assert_eq!(progress.take_settled(), None);
        progress.read(&pod, at(11), true);
        assert!(progress.take_settled().is_some());
    }

    #[test]
    fn empty_pod_leaves_the_cache_with_the_next_settled_relist() {
        let mut progress = Progress::default();
        for (uid, as_of) in [("old", 10), ("young", 11), ("back", 10)] {
            progress.emptied(uid.into(), at(as_of));
        }
        progress.exists(&"back".into());
        progress.relisted(at(10), BTreeMap::new());
        let gone = progress.take_settled().map(|settled| settled.gone);
        assert_eq!(gone, Some(vec![PodUid::from("old")]));
        assert_eq!(progress.len(), 1);
    }
}
