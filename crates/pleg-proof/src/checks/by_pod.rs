//! A map by pod, indexed by the number in the uid; other uids are looked up by name.

use std::collections::BTreeMap;

use pleg_core::PodUid;

use crate::runtime::{pod_of, uid};

#[derive(Clone, Debug)]
pub(super) struct ByPod<T> {
    numbered: Vec<Option<T>>,
    others: BTreeMap<PodUid, T>,
}

impl<T> Default for ByPod<T> {
    fn default() -> Self {
        Self {
            numbered: Vec::new(),
            others: BTreeMap::new(),
        }
    }
}

impl<T> ByPod<T> {
    pub(super) fn get(&self, uid: &PodUid) -> Option<&T> {
        match pod_of(uid) {
            Some(pod) => self.numbered.get(pod)?.as_ref(),
            None => self.others.get(uid),
        }
    }

    pub(super) fn get_mut(&mut self, uid: &PodUid) -> Option<&mut T> {
        match pod_of(uid) {
            Some(pod) => self.numbered.get_mut(pod)?.as_mut(),
            None => self.others.get_mut(uid),
        }
    }

    pub(super) fn insert(&mut self, uid: &PodUid, value: T) {
        match pod_of(uid) {
            Some(pod) => *self.place(pod) = Some(value),
            None => {
                self.others.insert(uid.clone(), value);
            }
        }
    }

    pub(super) fn remove(&mut self, uid: &PodUid) -> Option<T> {
        match pod_of(uid) {
            Some(pod) => self.numbered.get_mut(pod)?.take(),
            None => self.others.remove(uid),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (PodUid, &T)> {
        let numbered = self.numbered.iter().enumerate();
        let numbered = numbered.filter_map(|(pod, value)| Some((uid(pod), value.as_ref()?)));
        let others = self.others.iter().map(|(uid, value)| (uid.clone(), value));
        numbered.chain(others)
    }

    fn place(&mut self, pod: usize) -> &mut Option<T> {
        if self.numbered.len() <= pod {
            self.numbered.resize_with(pod + 1, || None);
        }
        &mut self.numbered[pod]
    }
}

impl<T: Default> ByPod<T> {
    pub(super) fn entry(&mut self, uid: &PodUid) -> &mut T {
        match pod_of(uid) {
            Some(pod) => self.place(pod).get_or_insert_default(),
            None => self.others.entry(uid.clone()).or_default(),
        }
    }
}
