//! Pod uids, and ids of sandboxes and containers.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::convert::Infallible;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::types::status::Text;

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name {
            head: Head,
            text: Text,
        }

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.text
            }

            fn new(text: Text) -> Self {
                let head = Head::of(&text);
                Self { head, text }
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                // Equal if they share memory, or else by their text.
                self.head == other.head && self.text == other.text
            }
        }

        impl Eq for $name {}

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                let text = || match Text::ptr_eq(&self.text, &other.text) {
                    true => Ordering::Equal,
                    false => self.text.cmp(&other.text),
                };
                self.head.cmp(&other.head).then_with(text)
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        // As its text, for `Borrow<str>`.
        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.text.hash(state);
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::new(text.into())
            }
        }

        impl From<Text> for $name {
            fn from(text: Text) -> Self {
                Self::new(text)
            }
        }

        impl From<$name> for Text {
            fn from(name: $name) -> Self {
                name.text
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.as_str().to_owned()
            }
        }

        impl FromStr for $name {
            type Err = Infallible;

            fn from_str(text: &str) -> Result<Self, Infallible> {
                Ok(text.into())
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.text
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.text
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.text)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.text, f)
            }
        }
    };
}

/// The first eight bytes of a name, in the order of names. Maps are searched by name. Names differ
/// early, so comparing these in place avoids a read elsewhere in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Head(u64);

impl Head {
    fn of(text: &str) -> Self {
        let mut head = [0; 8];
        for (byte, of_text) in head.iter_mut().zip(text.bytes()) {
            *byte = of_text;
        }
        Self(u64::from_be_bytes(head))
    }
}

name_type! {
    /// A pod's uid: the sandbox's metadata uid, else the pod-uid label, else the sandbox id.
    PodUid
}

name_type! {
    /// The id of a sandbox or of a container. Both share one id space, and ids are never reused.
    Id
}

impl Id {
    /// Compares with a text, as the id of that text would.
    pub(crate) fn cmp_str(&self, text: &str) -> Ordering {
        let as_text = || self.text.as_str().cmp(text);
        self.head.cmp(&Head::of(text)).then_with(as_text)
    }
}

impl From<&Id> for PodUid {
    /// The uid of a pod of which only its sandbox is known.
    fn from(sandbox: &Id) -> Self {
        Self {
            head: sandbox.head,
            text: sandbox.text.clone(),
        }
    }
}

/// A few ids, in order: those of one pod. Takes less memory than a tree, which has room for eleven.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Ids(Box<[Id]>);

impl Ids {
    /// Inserts an id. Returns whether it was new.
    pub(crate) fn insert(&mut self, id: Id) -> bool {
        match self.0.binary_search(&id) {
            Ok(_) => false,
            Err(at) => {
                let mut ids = std::mem::take(&mut self.0).into_vec();
                ids.reserve_exact(1);
                ids.insert(at, id);
                self.0 = ids.into();
                true
            }
        }
    }

    /// Removes an id. Returns whether it was present.
    pub(crate) fn remove(&mut self, id: &Id) -> bool {
        let found = self.0.binary_search(id);
        if let Ok(at) = found {
            let mut ids = std::mem::take(&mut self.0).into_vec();
            ids.remove(at);
            self.0 = ids.into();
        }
        found.is_ok()
    }

    /// Whether the id is present.
    pub(crate) fn contains(&self, id: &Id) -> bool {
        self.0.binary_search(id).is_ok()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Id> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Ids {
    type Item = &'a Id;
    type IntoIter = std::slice::Iter<'a, Id>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// What an [`Id`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Kind {
    /// A pod sandbox.
    Sandbox,
    /// A container.
    Container,
}

impl Kind {
    /// A short lower-case name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Container => "container",
        }
    }

    /// The CRI operation that reads the status.
    pub const fn status_operation(self) -> &'static str {
        match self {
            Self::Sandbox => "PodSandboxStatus",
            Self::Container => "ContainerStatus",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use std::collections::BTreeSet;

    use super::{Id, Ids, Text};

    proptest! {
        /// A set by any other measure.
        #[test]
        fn a_few_ids_are_a_set(steps in prop::collection::vec(("[a-d]", any::<bool>()), 0..20)) {
            let (mut few, mut set) = (Ids::default(), BTreeSet::new());
            for (id, comes) in steps {
                let id = Id::from(id);
                if comes {
                    prop_assert_eq!(few.insert(id.clone()), set.insert(id));
                } else {
                    prop_assert_eq!(few.remove(&id), set.remove(&id));
                }
                prop_assert!(few.iter().eq(&set));
                prop_assert!(set.iter().all(|id| few.contains(id)));
                prop_assert_eq!(few.is_empty(), set.is_empty());
            }
        }

        #[test]
        fn conversions_keep_the_text(text in ".{0,20}") {
            let id: Id = text.parse().unwrap();
            prop_assert_eq!(id.as_ref(), &*text);
            prop_assert_eq!(String::from(id.clone()), &*text);
            prop_assert_eq!(Id::from(Text::from(id.clone())), id);
        }

        #[test]
        fn names_are_ordered_as_their_texts(a in "[\\x00ab]{0,10}", b in "[\\x00ab]{0,10}") {
            let (one, other) = (Id::from(&*a), Id::from(&*b));
            prop_assert_eq!(one.cmp(&other), a.cmp(&b));
            prop_assert_eq!(one == other, a == b);
        }
    }
}
