//! Labels and annotations, stored compactly: they are most of the memory that is held for a node.
//!
//! The values of one map are one text. Its keys are a separate list, which all maps with the same
//! keys can share: the pods of one workload differ only in values.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::types::status::Text;

/// Labels or annotations, sorted by key. Cheap to clone.
#[derive(Clone, Default)]
pub struct Labels {
    keys: LabelKeys,
    /// For each key the end of its value, in [`DIGITS`] digits, then the values one after another.
    values: Text,
}

/// The keys of a map: sorted, without duplicates. Cheap to clone.
#[derive(Clone, Debug, Default)]
// One word; null if there are no keys.
pub struct LabelKeys(Option<Arc<Vec<Text>>>);

impl LabelKeys {
    /// The keys, one by one.
    pub fn as_slice(&self) -> &[Text] {
        self.0.as_ref().map_or(&[], |keys| keys.as_slice())
    }

    /// Whether both share memory, and so are equal.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }

    /// The keys of pairs that [`Labels::sort`] has sorted.
    pub fn of<T>(sorted: &[(T, T)], text: impl FnMut(&(T, T)) -> Text) -> Self {
        let keys: Vec<_> = sorted.iter().map(text).collect();
        Self((!keys.is_empty()).then(|| Arc::new(keys)))
    }
}

/// The number of seven-bit digits that give the end of a value. They are valid text, so that the
/// whole is text.
const DIGITS: usize = 4;

impl Labels {
    /// The value of that key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.position(key.as_bytes()).map(|at| self.value(at))
    }

    /// The index of a key.
    pub fn position(&self, key: &[u8]) -> Option<usize> {
        // There are few keys, and most differ in length.
        let keys = self.keys.as_slice();
        keys.iter().position(|k| k.as_bytes() == key)
    }

    /// The value of the key with that index; empty if there is none.
    pub fn value(&self, at: usize) -> &str {
        let begin = at.checked_sub(1).map_or(0, |before| self.end(before));
        let text = self.len() * DIGITS;
        let range = text + begin..text + self.end(at);
        self.values.get(range).unwrap_or_default()
    }

    fn end(&self, at: usize) -> usize {
        let digits = self.values.as_bytes().get(at * DIGITS..);
        let digits: Option<&[u8; DIGITS]> = digits.and_then(<[u8]>::first_chunk);
        digits.map_or(0, |digits| {
            let digits = u32::from_be_bytes(*digits) as usize;
            digits & 0x7f
                | digits >> 1 & 0x7f << 7
                | digits >> 2 & 0x7f << 14
                | digits >> 3 & 0x7f << 21
        })
    }

    /// The number of labels.
    pub fn len(&self) -> usize {
        self.keys.as_slice().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.0.is_none()
    }

    /// All labels, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let keys = self.keys.as_slice().iter().map(|key| &**key);
        keys.enumerate().map(|(at, key)| (key, self.value(at)))
    }

    /// The keys, to be shared.
    pub const fn keys(&self) -> &LabelKeys {
        &self.keys
    }

    /// Sorts pairs by key. Of pairs with the same key the last one is kept.
    pub fn sort<T: Ord + Copy>(pairs: &mut Vec<(T, T)>) {
        pairs.sort_by_key(|(key, _)| *key);
        pairs.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 = later.1;
            }
            same
        });
    }

    /// Labels with these keys, and their values in the same order. `None` if the numbers differ, or if
    /// a value is not valid UTF-8.
    pub fn with_keys<'v>(
        keys: &LabelKeys,
        values: impl Iterator<Item = &'v [u8]> + Clone,
    ) -> Option<Self> {
        let number = keys.as_slice().len();
        let mut packed =
            Vec::with_capacity(number * DIGITS + values.clone().map(<[u8]>::len).sum::<usize>());
        let mut end = 0usize;
        for value in values.clone() {
            end += value.len();
            packed.extend([21, 14, 7, 0].map(|shift| (end >> shift & 0x7f) as u8));
        }
        if packed.len() != number * DIGITS {
            return None;
        }
        for value in values {
            // Each value must be valid, not only their concatenation.
            packed.extend_from_slice(std::str::from_utf8(value).ok()?.as_bytes());
        }
        let values = Text::from(std::str::from_utf8(&packed).ok()?);
        Some(Self {
            keys: keys.clone(),
            values,
        })
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Labels {
    /// Of pairs with the same key the last one is used.
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(pairs: I) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        Self::sort(&mut pairs);
        if pairs.is_empty() {
            return Self::default();
        }
        let keys = LabelKeys::of(&pairs, |(key, _)| Text::from(*key));
        let values = pairs.iter().map(|(_, value)| value.as_bytes());
        Self::with_keys(&keys, values).unwrap_or_default()
    }
}

impl<'a, const N: usize> From<[(&'a str, &'a str); N]> for Labels {
    fn from(pairs: [(&'a str, &'a str); N]) -> Self {
        pairs.into_iter().collect()
    }
}

impl PartialEq for LabelKeys {
    fn eq(&self, other: &Self) -> bool {
        self.ptr_eq(other) || self.as_slice() == other.as_slice()
    }
}

impl Eq for LabelKeys {}

impl PartialOrd for LabelKeys {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LabelKeys {
    fn cmp(&self, other: &Self) -> Ordering {
        match self.ptr_eq(other) {
            true => Ordering::Equal,
            false => self.as_slice().cmp(other.as_slice()),
        }
    }
}

impl PartialEq for Labels {
    fn eq(&self, other: &Self) -> bool {
        self.keys == other.keys && self.values == other.values
    }
}

impl Eq for Labels {}

impl PartialOrd for Labels {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Labels {
    /// An order other than that of the pairs.
    fn cmp(&self, other: &Self) -> Ordering {
        let values = || self.values.cmp(&other.values);
        self.keys.cmp(&other.keys).then_with(values)
    }
}

impl Hash for Labels {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.keys.as_slice().hash(state);
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
    use std::hash::DefaultHasher;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A reference map.
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
            let values = || map.values().map(|v| v.as_bytes());
            let of_other = Labels::with_keys(other.keys(), values());
            prop_assert_eq!(of_other.is_some(), map.len() == other_map.len());
            prop_assert_eq!(Labels::with_keys(one.keys(), values()), Some(one));
        }

        #[test]
        fn each_value_must_be_valid_utf8(
            values in prop::collection::vec(prop::collection::vec(prop::sample::select(&[b'x', 0xc3, 0xa9][..]), 0..4), 0..4),
        ) {
            let are_valid = values.iter().all(|v| std::str::from_utf8(v).is_ok());
            let keys: Vec<_> = ["a", "b", "c", "d"].iter().take(values.len()).map(|k| (*k, "")).collect();
            let labels: Labels = keys.into_iter().collect();
            let values = values.iter().map(|v| &v[..]);
            prop_assert_eq!(Labels::with_keys(labels.keys(), values).is_some(), are_valid);
        }
    }

    #[test]
    fn maps_that_differ_in_keys_or_values_are_different() {
        let hash = |labels: &Labels| {
            let mut hasher = DefaultHasher::new();
            labels.hash(&mut hasher);
            hasher.finish()
        };
        let one = Labels::from([("a", "x")]);
        assert!(one.keys().ptr_eq(one.clone().keys()));
        for (other, of_keys, order) in [
            (Labels::from([("a", "x")]), Ordering::Equal, Ordering::Equal),
            (Labels::from([("a", "y")]), Ordering::Equal, Ordering::Less),
            (Labels::from([("b", "x")]), Ordering::Less, Ordering::Less),
        ] {
            let is_equal = order.is_eq();
            assert!(!one.keys().ptr_eq(other.keys()), "{other:?}");
            assert_eq!(one == other, is_equal, "{other:?}");
            assert_eq!(hash(&one) == hash(&other), is_equal, "{other:?}");
            assert_eq!(one.keys().partial_cmp(other.keys()), Some(of_keys));
            assert_eq!(one.partial_cmp(&other), Some(order), "{other:?}");
        }
    }

    #[test]
    fn a_value_may_be_large() {
        // No digit of its end is zero.
        let large = "é".repeat(0x12_3456);
        let labels = Labels::from([("a", "1"), ("b", &large), ("c", "3")]);
        assert_eq!(labels.get("b"), Some(&*large));
        assert_eq!(labels.get("c"), Some("3"));
    }
}
