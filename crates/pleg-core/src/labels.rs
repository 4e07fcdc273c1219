//! Labels and annotations, kept small: most of what is held of a node is these.
//!
//! The values of one map are one text, and its keys are a list of their own, which all maps with
//! the same keys can share: the pods of one workload differ in values only.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::status::Text;

/// Labels or annotations, sorted by key. Cheap to clone.
#[derive(Clone, Default)]
pub struct Labels {
    /// Sorted, without duplicates.
    keys: Arc<[Text]>,
    /// For each key where its value ends, in [`DIGITS`] digits, then the values one after another.
    values: Arc<str>,
}

/// The number of seven-bit digits that say where a value ends. Text, so that the whole is text.
const DIGITS: usize = 4;

impl Labels {
    /// The value of that key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.position(key.as_bytes()).map(|at| self.value(at))
    }

    /// Where that key stands among the keys.
    pub fn position(&self, key: &[u8]) -> Option<usize> {
        // There are few, and most differ in length.
        self.keys.iter().position(|k| k.as_bytes() == key)
    }

    /// The value of the key that stands there; empty if there is none.
    pub fn value(&self, at: usize) -> &str {
        let begin = at.checked_sub(1).map_or(0, |before| self.end(before));
        let text = self.keys.len() * DIGITS;
        let range = text + begin..text + self.end(at);
        self.values.get(range).unwrap_or_default()
    }

    fn end(&self, at: usize) -> usize {
        let digits = self.values.as_bytes().get(at * DIGITS..);
        let digits: Option<&[u8; DIGITS]> = digits.and_then(<[u8]>::first_chunk);
        digits.map_or(0, |digits| {
            let shifted = digits.map(usize::from);
            shifted.iter().fold(0, |end, digit| end << 7 | digit)
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// All of them, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let keys = self.keys.iter().map(|key| &**key);
        keys.enumerate().map(|(at, key)| (key, self.value(at)))
    }

    /// The keys, to be shared.
    pub const fn keys(&self) -> &Arc<[Text]> {
        &self.keys
    }

    /// Sorts pairs by key. Of pairs with the same key the last one stays.
    pub fn sort(pairs: &mut Vec<(&str, &str)>) {
        pairs.sort_by_key(|(key, _)| *key);
        pairs.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 = later.1;
            }
            same
        });
    }

    /// Those pairs under keys that are there already. The pairs must be sorted by key, without
    /// duplicates; `None` if their keys are others.
    pub fn of_keys(keys: &Arc<[Text]>, pairs: &[(&str, &str)]) -> Option<Self> {
        let same =
            keys.len() == pairs.len() && keys.iter().zip(pairs).all(|(k, (s, _))| &**k == *s);
        same.then(|| Self {
            keys: keys.clone(),
            values: packed(pairs),
        })
    }
}

fn packed(pairs: &[(&str, &str)]) -> Arc<str> {
    let length: usize = pairs.iter().map(|(_, value)| value.len() + DIGITS).sum();
    let mut text = String::with_capacity(length);
    let mut end = 0usize;
    for (_, value) in pairs {
        end += value.len();
        let digits = (0..DIGITS).rev().map(|n| (end >> (7 * n) & 0x7f) as u8);
        text.extend(digits.map(char::from));
    }
    text.extend(pairs.iter().map(|(_, value)| *value));
    text.into()
}

impl<'a> FromIterator<(&'a str, &'a str)> for Labels {
    /// Of pairs with the same key the last one counts.
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        Self::sort(&mut pairs);
        if pairs.is_empty() {
            return Self::default();
        }
        Self {
            keys: pairs.iter().map(|(key, _)| Text::from(*key)).collect(),
            values: packed(&pairs),
        }
    }
}

impl<'a, const N: usize> From<[(&'a str, &'a str); N]> for Labels {
    fn from(pairs: [(&'a str, &'a str); N]) -> Self {
        pairs.into_iter().collect()
    }
}

impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        let keys = Arc::ptr_eq(&self.keys, &other.keys) || self.keys == other.keys;
        keys && (Arc::ptr_eq(&self.values, &other.values) || self.values == other.values)
    }
}

impl Eq for Labels {}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Labels {
    /// Some order, not that of the pairs.
    fn cmp(&self, other: &Self) -> Ordering {
        let keys = match Arc::ptr_eq(&self.keys, &other.keys) {
            true => Ordering::Equal,
            false => self.keys.cmp(&other.keys),
        };
        keys.then_with(|| self.values.cmp(&other.values))
    }
}

impl Hash for Labels {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.keys.hash(state);
        self.values.hash(state);
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A map by any other measure.
        #[test]
        fn labels_are_a_map(
            pairs in prop::collection::vec(("[a-cé]{0,3}", "[x\\x00é]{0,200}"), 0..9),
            others in prop::collection::vec(("[ab]{0,1}", "[xy]{0,1}"), 0..3),
        ) {
            fn labels(pairs: &[(String, String)]) -> (Labels, BTreeMap<&str, &str>) {
                let pairs = || pairs.iter().map(|(k, v)| (&**k, &**v));
                (pairs().collect(), pairs().collect())
            }
            let (one, map) = labels(&pairs);
            prop_assert_eq!(one.iter().collect::<Vec<_>>(), map.clone().into_iter().collect::<Vec<_>>());
            prop_assert_eq!((one.len(), one.is_empty()), (map.len(), map.is_empty()));
            for key in ["", "a", "b", "é"] {
                prop_assert_eq!(one.get(key), map.get(key).copied());
            }
            let (other, other_map) = labels(&others);
            prop_assert_eq!(one == other, map == other_map);
            prop_assert_eq!(one.cmp(&other).is_eq(), map == other_map);
            prop_assert_eq!(one.cmp(&other), other.cmp(&one).reverse());
            let sorted: Vec<_> = map.into_iter().collect();
            let keys = one.keys().clone();
            prop_assert_eq!(Labels::of_keys(&keys, &sorted), Some(one));
            let same_keys = other_map.keys().eq(sorted.iter().map(|(k, _)| k));
            prop_assert_eq!(Labels::of_keys(other.keys(), &sorted).is_some(), same_keys);
        }
    }

    #[test]
    fn a_value_may_be_large() {
        let large = "é".repeat(1 << 20);
        let labels = Labels::from([("a", "1"), ("b", &large), ("c", "3")]);
        assert_eq!(labels.get("b"), Some(&*large));
        assert_eq!(labels.get("c"), Some("3"));
    }
}
