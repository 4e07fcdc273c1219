//! Lets equal values share one allocation: image names, namespaces, labels and resources, which many
//! pods of a workload have in common. That is a quarter of the memory that is held for a pod.
//!
//! The interner is bounded in number and in size. The event stream has its own, so that its reader
//! waits for no lock that is held elsewhere (invariant 8).

use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pleg_runtime::core::{LabelKeys, Labels, Resources, Text};
use rapidhash::fast::GlobalState;

use crate::convert::POD_UID;
use crate::metrics::Irregular;
use crate::wire::{Fallback, Pair, text};

/// The number of cache slots for texts, and for labels. Each slot has two entries.
const SLOTS: usize = 256;
/// The maximum length of an interned text, in bytes.
const MAX_TEXT: usize = 256;
/// The maximum size of the labels, or annotations, of an object that are kept. The API server accepts
/// annotations of at most 256 KiB, to which kubelet and runtime add some. More comes from a broken
/// runtime, and would be held for each object.
const MAX_LABELS: usize = 320 << 10;
/// The maximum number of interned key lists, and of interned resources.
const RING_CAPACITY: usize = 64;
/// Interned texts, labels and resources. The pods of a workload have many of them in common. Labels
/// with different values share their keys.
#[derive(Debug, Default)]
pub struct Interner {
    hashes: GlobalState,
    texts: Cache<Text>,
    labels: Cache<Labels>,
    keys: Ring<Keys>,
    resources: Ring<Arc<Resources>>,
}

/// The keys of some labels.
#[derive(Debug)]
struct Keys {
    keys: LabelKeys,
    /// One of the keys is the pod uid, so no other pod has the same labels.
    contains_pod_uid: bool,
}

impl Keys {
    /// Whether these are the keys of the pairs, in this order.
    fn match_pairs(&self, pairs: &[Pair<'_>]) -> bool {
        let keys = self.keys.as_slice();
        let mut both = keys.iter().zip(pairs);
        keys.len() == pairs.len() && both.all(|(key, (other, _))| key.as_bytes() == *other)
    }
}

fn size(pairs: &[Pair<'_>]) -> usize {
    let sizes = pairs.iter().map(|(key, value)| key.len() + value.len());
    sizes.sum()
}

/// Locks the interner. The lock is held for one row or status at a time.
pub(crate) fn lock(interner: &Mutex<Interner>) -> MutexGuard<'_, Interner> {
    interner.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Interner {
    /// Returns the interned text. For texts that many ids have in common.
    pub(crate) fn text(&mut self, bytes: &[u8]) -> Result<Text, Fallback> {
        if bytes.is_empty() {
            return Ok(Text::default());
        }
        if bytes.len() > MAX_TEXT {
            return Ok(text(bytes)?.into());
        }
        let hash = self.hashes.hash_one(bytes);
        let equals = |interned: &Text| interned.as_bytes() == bytes;
        self.texts
            .get_or_insert(hash, equals, || Ok(text(bytes)?.into()))
    }

    /// Returns the interned text, if there is one.
    pub(crate) fn optional(&mut self, bytes: Option<&[u8]>) -> Result<Option<Text>, Fallback> {
        bytes.map(|bytes| self.text(bytes)).transpose()
    }

    /// Returns the interned labels, or new labels with interned keys. The last of several pairs
    /// with the same key counts.
    pub(crate) fn labels(&mut self, pairs: &mut [Pair<'_>]) -> Result<Labels, Fallback> {
        if pairs.is_empty() {
            return Ok(Labels::default());
        }
        if size(pairs) > MAX_LABELS {
            return self.short_labels(pairs);
        }
        pairs.sort_by_key(|(key, _)| *key);
        let Some(keys) = self.keys.0.iter().find(|keys| keys.match_pairs(pairs)) else {
            return self.labels_with_new_keys(pairs);
        };
        let values = pairs.iter().map(|(_, value)| *value);
        let is_long = values.clone().any(|value| value.len() > MAX_TEXT);
        let labels = Labels::with_keys(&keys.keys, values).ok_or(Fallback)?;
        if keys.contains_pod_uid || is_long {
            return Ok(labels);
        }
        let hash = self.hashes.hash_one(&labels);
        let equals = |interned: &Labels| *interned == labels;
        self.labels
            .get_or_insert(hash, equals, || Ok(labels.clone()))
    }

    /// Of labels that are too large, those with a long value are left out. The ones that identify an
    /// object are short.
    #[cold]
    fn short_labels(&mut self, pairs: &[Pair<'_>]) -> Result<Labels, Fallback> {
        Irregular::LabelsTooLarge.count();
        let is_short = |pair: &&Pair<'_>| size(&[**pair]) <= 2 * MAX_TEXT;
        let mut short: Vec<Pair<'_>> = pairs.iter().filter(is_short).copied().collect();
        match size(&short) <= MAX_LABELS {
            true => self.labels(&mut short),
            false => Ok(Labels::default()),
        }
    }

    #[cold]
    fn labels_with_new_keys(&mut self, pairs: &[Pair<'_>]) -> Result<Labels, Fallback> {
        // A value that a duplicate key overrides must be UTF-8, too.
        for (_, value) in pairs {
            text(value)?;
        }
        let mut unique = pairs.to_vec();
        Labels::sort(&mut unique);
        // The keys may be known without the duplicates.
        if !self.keys.0.iter().any(|keys| keys.match_pairs(&unique)) {
            for (key, _) in &unique {
                text(key)?;
            }
            let keys = Keys {
                keys: LabelKeys::of(&unique, |(key, _)| self.text(key).unwrap_or_default()),
                contains_pod_uid: unique.iter().any(|(key, _)| *key == POD_UID.as_bytes()),
            };
            self.keys.push(keys);
        }
        self.labels(&mut unique)
    }

    /// Returns the interned resources.
    pub(crate) fn resources(&mut self, resources: Resources) -> Arc<Resources> {
        if let Some(interned) = self.resources.0.iter().find(|r| ***r == resources) {
            return interned.clone();
        }
        let interned = Arc::new(resources);
        self.resources.push(interned.clone());
        interned
    }
}

/// A ring buffer of [`RING_CAPACITY`] values. A new value replaces the oldest.
#[derive(Debug)]
struct Ring<T>(VecDeque<T>);

impl<T> Default for Ring<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Ring<T> {
    fn push(&mut self, value: T) {
        if self.0.len() >= RING_CAPACITY {
            self.0.pop_back();
        }
        self.0.push_front(value);
    }
}

/// A cache with two entries per slot. The hash of a value selects the slot. A new value replaces
/// the second entry, and a hit in the second entry swaps the two.
#[derive(Debug)]
struct Cache<T>(Vec<[Option<T>; 2]>);

impl<T> Default for Cache<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Clone> Cache<T> {
    fn get_or_insert<E>(
        &mut self,
        hash: u64,
        equals: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        if self.0.is_empty() {
            self.0.resize_with(SLOTS, || [None, None]);
        }
        let Some([first, second]) = self.0.get_mut(hash as usize % SLOTS) else {
            return make();
        };
        if let Some(found) = first.as_ref().filter(|value| equals(value)) {
            return Ok(found.clone());
        }
        if let Some(found) = second.take_if(|value| equals(value)) {
            *second = first.replace(found.clone());
            return Ok(found);
        }
        let entry = if first.is_none() { first } else { second };
        let value = make()?;
        Ok(entry.insert(value).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(interner: &mut Interner, pairs: &[(&str, &str)]) -> Labels {
        let pairs = pairs.iter().map(|(k, v)| (k.as_bytes(), v.as_bytes()));
        interner.labels(&mut pairs.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn equal_texts_are_shared() {
        let mut interner = Interner::default();
        let mut text = |text: &str| interner.text(text.as_bytes()).unwrap();
        let one = text("registry.example/app:1");
        assert!(Text::ptr_eq(&one, &text("registry.example/app:1")));
        let long = "x".repeat(MAX_TEXT + 1);
        assert!(!Text::ptr_eq(&text(&long), &text(&long)));
        assert_eq!(interner.text(b"\xff"), Err(Fallback));
    }

    #[test]
    fn long_values_of_too_large_labels_are_left_out() {
        let mut interner = Interner::default();
        let (long, half) = ("x".repeat(MAX_LABELS), "x".repeat(MAX_LABELS / 2));
        let kept = labels(&mut interner, &[("a", "1"), ("b", &long)]);
        assert_eq!(kept, Labels::from([("a", "1")]));
        let kept = labels(&mut interner, &[("a", "1"), ("b", &half)]);
        assert_eq!(kept.get("b"), Some(&*half));
    }

    #[test]
    fn equal_label_keys_are_shared_in_any_order() {
        let mut interner = Interner::default();
        let one = labels(&mut interner, &[("a", "1"), ("b", "2")]);
        let other = labels(&mut interner, &[("b", "3"), ("a", "4")]);
        assert_eq!(other, Labels::from([("a", "4"), ("b", "3")]));
        assert!(one.keys().ptr_eq(other.keys()));
        // The last of two pairs with the same key counts, and the keys are the same as before.
        let duplicate = labels(&mut interner, &[("a", "5"), ("b", "6"), ("a", "7")]);
        assert_eq!(duplicate, Labels::from([("a", "7"), ("b", "6")]));
        assert_eq!(interner.keys.0.len(), 1);
        assert_eq!(
            interner.labels(&mut [(b"a", b"\xc3"), (b"b", b"\xa9")]),
            Err(Fallback)
        );
    }

    #[test]
    fn equal_labels_and_resources_are_shared() {
        let mut interner = Interner::default();
        let mut value = |value| {
            let labels = labels(&mut interner, &[("a", value)]);
            labels.get("a").map(str::as_ptr)
        };
        assert_eq!(value("1"), value("1"));
        assert_ne!(value("1"), value("2"));
        let resources = |cpu_shares| {
            let mut resources = Resources::default();
            resources.cpu_shares = cpu_shares;
            resources
        };
        let one = interner.resources(resources(1));
        assert!(Arc::ptr_eq(&one, &interner.resources(resources(1))));
        assert_eq!(interner.resources(resources(2)).cpu_shares, 2);
    }

    /// These labels differ between pods and would displace labels that pods have in common.
    #[test]
    fn labels_with_pod_uid_are_not_interned() {
        let mut interner = Interner::default();
        labels(&mut interner, &[(POD_UID, "1")]);
        assert!(interner.labels.0.is_empty());
        assert_eq!(interner.keys.0.len(), 1);
    }

    #[test]
    fn interner_is_bounded_and_keeps_used_entries() {
        let mut interner = Interner::default();
        let used = interner.text(b"used").unwrap();
        for n in 0..10 * SLOTS {
            let n = n.to_string();
            interner.text(n.as_bytes()).unwrap();
            labels(&mut interner, &[(&n, "")]);
            assert!(Text::ptr_eq(&used, &interner.text(b"used").unwrap()));
        }
        assert_eq!(interner.texts.0.len(), SLOTS);
        assert_eq!(interner.keys.0.len(), RING_CAPACITY);
    }
}
