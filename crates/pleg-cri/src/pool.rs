//! What was read before, so that the same is not kept, nor even made, twice: names of images,
//! namespaces and label keys, which whole workloads share, and of the last events all that they
//! told of an id.
//!
//! Bounded, by number and by size. Whoever owns one asks nobody else: the event stream has its own
//! (law 8).

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pleg_runtime::core::{Id, LabelKeys, Labels, Packing, Report, Resources, Text};
use rapidhash::fast::GlobalState;

use crate::convert::POD_UID;
use crate::wire::{Pair, Unusual, text};

/// How many pairs of texts are shared, and how many pairs of labels.
const TEXTS: usize = 256;
/// No text that many share is longer.
const LONGEST: usize = 256;
/// How many lists of keys are shared, and how many resources.
const FEW: usize = 64;
/// Of how many ids is remembered what the last event told: of all on a node of a thousand pods. An
/// event of an id that is not remembered takes half as long again to read.
const IDS: usize = 2048;
/// A report that keeps more text than this is not remembered.
const LARGEST: usize = 16 << 10;

/// What many rows and statuses have in common: texts, and labels and resources as wholes, for the
/// pods of one workload are alike. Where labels differ, their keys are shared.
#[derive(Debug, Default)]
pub struct Pool {
    hashes: GlobalState,
    texts: Lately<Text>,
    labels: Lately<Labels>,
    keys: Ring<Keys>,
    resources: Ring<Arc<Resources>>,
    packing: Packing,
}

/// The keys of some labels.
#[derive(Debug)]
struct Keys {
    keys: LabelKeys,
    /// Labels that name their pod are nobody else's.
    name_their_pod: bool,
}

impl Keys {
    /// Whether these pairs have these keys, in this order.
    fn are_those_of(&self, pairs: &[Pair<'_>]) -> bool {
        let keys = self.keys.as_slice();
        let mut both = keys.iter().zip(pairs);
        keys.len() == pairs.len() && both.all(|(key, (said, _))| key.as_bytes() == *said)
    }
}

/// Held for one row or status at a time.
pub(crate) fn lock(pool: &Mutex<Pool>) -> MutexGuard<'_, Pool> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// That text; the one that is there, if there is one. For texts that many ids have in common.
    pub(crate) fn text(&mut self, said: &[u8]) -> Result<Text, Unusual> {
        if said.is_empty() {
            return Ok(Text::default());
        }
        if said.len() > LONGEST {
            return Ok(text(said)?.into());
        }
        let hash = self.hashes.hash_one(said);
        let is_said = |shared: &Text| shared.as_bytes() == said;
        self.texts.find_or(hash, is_said, || Ok(text(said)?.into()))
    }

    /// Those labels; the ones that are there, or at least their keys, if they are. Of pairs with
    /// the same key the last one counts.
    pub(crate) fn labels(&mut self, pairs: &mut [Pair<'_>]) -> Result<Labels, Unusual> {
        if pairs.is_empty() {
            return Ok(Labels::default());
        }
        pairs.sort_by_key(|(key, _)| *key);
        let Some(keys) = self.keys.0.iter().find(|keys| keys.are_those_of(pairs)) else {
            return self.labels_of_new_keys(pairs);
        };
        let values = pairs.iter().map(|(_, value)| *value);
        let is_long = values.clone().any(|value| value.len() > LONGEST);
        let packed = self.packing.pack(values).ok_or(Unusual)?;
        let make = || Labels::under(&keys.keys, &packed).ok_or(Unusual);
        if keys.name_their_pod || is_long {
            return make();
        }
        let hash = self.hashes.hash_one(packed.as_str());
        let are = |shared: &Labels| shared.are(&keys.keys, &packed);
        self.labels.find_or(hash, are, make)
    }

    #[cold]
    fn labels_of_new_keys(&mut self, pairs: &[Pair<'_>]) -> Result<Labels, Unusual> {
        // Also a value that does not count must be a text.
        for (_, value) in pairs {
            text(value)?;
        }
        let mut once = pairs.to_vec();
        Labels::sort(&mut once);
        // Without duplicates they may be known.
        if !self.keys.0.iter().any(|keys| keys.are_those_of(&once)) {
            for (key, _) in &once {
                text(key)?;
            }
            let keys = Keys {
                keys: LabelKeys::of(&once, |(key, _)| self.text(key).unwrap_or_default()),
                name_their_pod: once.iter().any(|(key, _)| *key == POD_UID.as_bytes()),
            };
            self.keys.put(keys);
        }
        self.labels(&mut once)
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

/// What was met lately, each in one of the two places that its hash names: what is met again has the
/// first of them, and what is new takes the second.
#[derive(Debug)]
struct Lately<T>(Vec<[Option<T>; 2]>);

impl<T> Default for Lately<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone> Lately<T> {
    fn find_or<E>(
        &mut self,
        hash: u64,
        is: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if self.0.is_empty() {
            self.0.resize_with(TEXTS, || [None, None]);
        }
        let Some([first, second]) = self.0.get_mut(hash as usize % TEXTS) else {
            return make();
        };
        if let Some(found) = first.as_ref().filter(|met| is(met)) {
            return Ok(found.clone());
        }
        if let Some(found) = second.take_if(|met| is(met)) {
            *second = first.replace(found.clone());
            return Ok(found);
        }
        let place = if first.is_none() { first } else { second };
        let made = make()?;
        Ok(place.insert(made).clone())
    }
}

/// What was told of an id last, of those that were told of lately and not as deleted.
#[derive(Debug, Default)]
pub(crate) struct Told(Recent<Key, Box<Report>>);

/// An id, looked for by its bytes.
#[derive(Debug, PartialEq, Eq)]
struct Key(Id);

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.0.as_str().as_bytes()
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_str().as_bytes().hash(state);
    }
}

impl Told {
    pub(crate) fn of(&mut self, id: &[u8]) -> Option<&Report> {
        self.0.get(id, IDS).map(|report| &**report)
    }

    pub(crate) fn remember(&mut self, report: &Report, size: usize) {
        if size <= LARGEST {
            let id = Key(report.id.clone());
            self.0.put(id, Box::new(report.clone()), IDS);
        }
    }

    pub(crate) fn forget(&mut self, id: &[u8]) {
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
    fn get<Q: Hash + Eq + ?Sized>(&mut self, key: &Q, most: usize) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.turn(most);
        if !self.old.is_empty()
            && let Some((key, value)) = self.old.remove_entry(key)
        {
            self.young.insert(key, value);
        }
        self.young.get(key)
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

    fn labels(pool: &mut Pool, pairs: &[(&str, &str)]) -> Labels {
        let pairs = pairs.iter().map(|(k, v)| (k.as_bytes(), v.as_bytes()));
        pool.labels(&mut pairs.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn the_same_text_is_there_once() {
        let mut pool = Pool::default();
        let mut text = |text: &str| pool.text(text.as_bytes()).unwrap();
        let one = text("registry.example/app:1");
        assert!(Text::ptr_eq(&one, &text("registry.example/app:1")));
        let long = "x".repeat(LONGEST + 1);
        assert!(!Text::ptr_eq(&text(&long), &text(&long)));
        assert_eq!(pool.text(b"\xff"), Err(Unusual));
    }

    #[test]
    fn the_same_keys_are_there_once_whatever_their_order() {
        let mut pool = Pool::default();
        let one = labels(&mut pool, &[("a", "1"), ("b", "2")]);
        let other = labels(&mut pool, &[("b", "3"), ("a", "4")]);
        assert_eq!(other, Labels::from([("a", "4"), ("b", "3")]));
        assert!(one.keys().ptr_eq(other.keys()));
        // Of the same key twice the last one counts, and no other keys are kept for it.
        let twice = labels(&mut pool, &[("a", "5"), ("b", "6"), ("a", "7")]);
        assert_eq!(twice, Labels::from([("a", "7"), ("b", "6")]));
        assert_eq!(pool.keys.0.len(), 1);
        assert_eq!(
            pool.labels(&mut [(b"a", b"\xc3"), (b"b", b"\xa9")]),
            Err(Unusual)
        );
    }

    #[test]
    fn the_same_labels_and_resources_are_there_once() {
        let mut pool = Pool::default();
        let mut value = |value| {
            let labels = labels(&mut pool, &[("a", value)]);
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
        labels(&mut pool, &[(POD_UID, "1")]);
        assert!(pool.labels.0.is_empty());
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
        assert_eq!(told.of(b"0"), None);
        let last = (3 * IDS - 1).to_string();
        assert!(told.of(last.as_bytes()).is_some());
        assert!(told.0.young.len() + told.0.old.len() <= 2 * IDS);
        told.forget(last.as_bytes());
        assert_eq!(told.of(last.as_bytes()), None);
        told.remember(&report(0), LARGEST + 1);
        assert_eq!(told.of(b"0"), None);
    }

    #[test]
    fn it_is_bounded_and_keeps_what_is_asked_for() {
        let mut pool = Pool::default();
        let asked_for = pool.text(b"asked for").unwrap();
        for n in 0..10 * TEXTS {
            let n = n.to_string();
            pool.text(n.as_bytes()).unwrap();
            labels(&mut pool, &[(&n, "")]);
            assert!(Text::ptr_eq(&asked_for, &pool.text(b"asked for").unwrap()));
        }
        assert_eq!(pool.texts.0.len(), TEXTS);
        assert_eq!(pool.keys.0.len(), FEW);
    }
}
