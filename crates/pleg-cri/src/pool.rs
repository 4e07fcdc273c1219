//! What was read before, so that the same is not kept, nor even made, twice: names of images,
//! namespaces and label keys, which whole workloads share, and of the last events all that they
//! told of an id.
//!
//! Bounded, by number and by size. Whoever owns one asks nobody else: the event stream has its own
//! (law 8).

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pleg_runtime::core::{Id, Labels, Report, Resources, Text};
use rapidhash::fast::GlobalState;

use crate::convert::POD_UID;

/// How many texts are shared, and how many labels; twice as many while the older half is on its way out.
const TEXTS: usize = 256;
/// No text that many share is longer.
const LONGEST: usize = 256;
/// How many lists of keys are shared, and how many resources.
const FEW: usize = 64;
/// Of how many ids is remembered what the last event told: of all on a node of a thousand pods. An
/// event of an id that is not remembered takes three times as long to read.
const IDS: usize = 2048;
/// A report that keeps more text than this is not remembered.
const LARGEST: usize = 16 << 10;

/// What many rows and statuses have in common: texts, and labels and resources as wholes, for the
/// pods of one workload are alike. Where labels differ, their keys are shared.
#[derive(Debug, Default)]
pub struct Pool {
    texts: Recent<Text, ()>,
    labels: Recent<Labels, ()>,
    keys: Ring<Arc<[Text]>>,
    resources: Ring<Arc<Resources>>,
}

/// Held for one row or status at a time.
pub(crate) fn lock(pool: &Mutex<Pool>) -> MutexGuard<'_, Pool> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// That text; the one that is there, if there is one. For texts that many ids have in common.
    pub(crate) fn text(&mut self, text: &str) -> Text {
        if text.is_empty() {
            return Text::default();
        }
        if text.len() > LONGEST {
            return text.into();
        }
        if let Some((shared, ())) = self.texts.get(text, TEXTS) {
            return shared.clone();
        }
        let shared = Text::from(text);
        self.texts.put(shared.clone(), (), TEXTS);
        shared
    }

    /// Those labels; the ones that are there, or at least their keys, if they are.
    pub(crate) fn labels(&mut self, pairs: &mut Vec<(&str, &str)>) -> Labels {
        if pairs.is_empty() {
            return Labels::default();
        }
        Labels::sort(pairs);
        let of_keys = |keys| Labels::of_keys(keys, pairs);
        let labels = self.keys.0.iter().find_map(of_keys).unwrap_or_else(|| {
            let keys = pairs.iter().map(|(key, _)| *key);
            let keys: Arc<[Text]> = keys.map(|key| self.text(key)).collect();
            self.keys.put(keys.clone());
            Labels::of_keys(&keys, pairs).unwrap_or_default()
        });
        // Those that name their pod are nobody else's.
        let own = |(key, value): &(&str, &str)| *key == POD_UID || value.len() > LONGEST;
        if pairs.iter().any(own) {
            return labels;
        }
        if let Some((shared, ())) = self.labels.get(&labels, TEXTS) {
            return shared.clone();
        }
        self.labels.put(labels.clone(), (), TEXTS);
        labels
    }

    /// Those resources; the ones that are there, if they are.
    pub(crate) fn resources(&mut self, resources: Resources) -> Arc<Resources> {
        if let Some(shared) = self.resources.0.iter().find(|r| ***r == resources) {
            return shared.clone();
        }
        let shared = Arc::new(resources);
        self.resources.put(shared.clone());
        shared
    }
}

/// A few; the oldest gives way.
#[derive(Debug)]
struct Ring<T>(VecDeque<T>);

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Ring<T> {
    fn put(&mut self, value: T) {
        if self.0.len() >= FEW {
            self.0.pop_back();
        }
        self.0.push_front(value);
    }
}

/// What was told of an id last, of those that were told of lately and not as deleted.
#[derive(Debug, Default)]
pub(crate) struct Told(Recent<Id, Box<Report>>);

impl Told {
    pub(crate) fn of(&mut self, id: &str) -> Option<&Report> {
        self.0.get(id, IDS).map(|(_, report)| &**report)
    }

    pub(crate) fn remember(&mut self, report: &Report, size: usize) {
        if size <= LARGEST {
            self.0.put(report.id.clone(), Box::new(report.clone()), IDS);
        }
    }

    pub(crate) fn forget(&mut self, id: &str) {
        self.0.young.remove(id);
        self.0.old.remove(id);
    }
}

/// A map that forgets what was not asked for lately. When the young ones are as many as allowed,
/// they become the old ones, and the old ones go.
#[derive(Debug)]
struct Recent<K, V> {
    young: HashMap<K, V, GlobalState>,
    old: HashMap<K, V, GlobalState>,
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self {
            young: HashMap::default(),
            old: HashMap::default(),
        }
    }
}

impl<K: Hash + Eq, V> Recent<K, V> {
    fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q, most: usize) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        self.turn(most);
        if !self.old.is_empty()
            && let Some((key, value)) = self.old.remove_entry(key)
        {
            self.young.insert(key, value);
        }
        self.young.get_key_value(key)
    }

    fn put(&mut self, key: K, value: V, most: usize) {
        self.turn(most);
        self.young.insert(key, value);
    }

    fn turn(&mut self, most: usize) {
        if self.young.len() >= most {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

#[cfg(test)]
mod tests {
    use pleg_runtime::core::{Details, Identity, Kind, Shown};

    use super::*;

    #[test]
    fn the_same_text_is_there_once() {
        let mut pool = Pool::default();
        let one = pool.text("registry.example/app:1");
        assert!(Arc::ptr_eq(&one, &pool.text("registry.example/app:1")));
        let long = "x".repeat(LONGEST + 1);
        assert!(!Arc::ptr_eq(&pool.text(&long), &pool.text(&long)));
    }

    #[test]
    fn the_same_keys_are_there_once_whatever_their_order() {
        let mut pool = Pool::default();
        let one = pool.labels(&mut vec![("a", "1"), ("b", "2")]);
        let other = pool.labels(&mut vec![("b", "3"), ("a", "4")]);
        assert_eq!(other, Labels::from([("a", "4"), ("b", "3")]));
        assert!(Arc::ptr_eq(one.keys(), other.keys()));
    }

    #[test]
    fn the_same_labels_and_resources_are_there_once() {
        let mut pool = Pool::default();
        let mut value = |value| {
            let labels = pool.labels(&mut vec![("a", value)]);
            labels.get("a").map(str::as_ptr)
        };
        assert_eq!(value("1"), value("1"));
        assert_ne!(value("1"), value("2"));
        let resources = |cpu_shares| Resources {
            cpu_shares,
            ..Resources::default()
        };
        let one = pool.resources(resources(1));
        assert!(Arc::ptr_eq(&one, &pool.resources(resources(1))));
        assert_eq!(pool.resources(resources(2)).cpu_shares, 2);
    }

    /// A thousand different pods have nothing to share, and would push out what others share.
    #[test]
    fn labels_that_name_their_pod_are_not_kept() {
        let mut pool = Pool::default();
        pool.labels(&mut vec![(POD_UID, "1")]);
        assert!(pool.labels.young.is_empty());
        assert_eq!(pool.keys.0.len(), 1);
    }

    #[test]
    fn what_was_told_is_bounded_and_forgotten() {
        let mut told = Told::default();
        let report = |n: usize| Report {
            id: n.to_string().into(),
            shown: Shown::Running,
            identity: Identity::unknown(Kind::Sandbox),
            details: Details::none(Kind::Sandbox),
        };
        for n in 0..3 * IDS {
            told.remember(&report(n), 0);
        }
        assert_eq!(told.of("0"), None);
        let last = (3 * IDS - 1).to_string();
        assert!(told.of(&last).is_some());
        assert!(told.0.young.len() + told.0.old.len() <= 2 * IDS);
        told.forget(&last);
        assert_eq!(told.of(&last), None);
        told.remember(&report(0), LARGEST + 1);
        assert_eq!(told.of("0"), None);
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_asked_for() {
        let mut pool = Pool::default();
        let asked_for = pool.text("asked for");
        for n in 0..10 * TEXTS {
            pool.text(&n.to_string());
            pool.labels(&mut vec![(&n.to_string(), "")]);
            assert!(Arc::ptr_eq(&asked_for, &pool.text("asked for")));
        }
        assert!(pool.texts.young.len() + pool.texts.old.len() <= 2 * TEXTS);
        assert_eq!(pool.keys.0.len(), FEW);
    }
}
