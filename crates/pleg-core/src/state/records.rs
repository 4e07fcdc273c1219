//! All records by id, and which of them a list request names.
//!
//! On a quiet node one list equals the other. The result of the last one is kept until a record may
//! have changed, so that an equal list needs no lookup of any record.

use std::collections::BTreeMap;
use std::ops::Deref;

use crate::state::record::Record;
use crate::types::ids::{Id, PodUid};
use crate::types::reads::{KnownIds, Rows};
use crate::types::time::Instant;

/// Tree nodes have spare slots, so large values are boxed.
type Tree = BTreeMap<Id, Box<Record>>;

/// All records by id. Every change of a record goes through a method of this type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Records {
    all: Tree,
    /// Valid until a record may have changed.
    known: Option<KnownIds>,
    /// The rows of a list that showed the recorded state of every id; valid until a record may
    /// have changed.
    unchanged: Option<Rows>,
}

impl Records {
    pub(crate) fn get_mut(&mut self, id: &Id) -> Option<&mut Record> {
        let record = self.all.get_mut(id)?;
        (self.known, self.unchanged) = (None, None);
        Some(record)
    }

    /// The status of an id was requested. This changes nothing that is known of the id.
    pub(crate) fn attempted(&mut self, id: &Id, at: Instant) {
        if let Some(record) = self.all.get_mut(id) {
            record.attempted = Some(at);
        }
    }

    pub(crate) fn insert(&mut self, id: Id, record: Record) {
        (self.known, self.unchanged) = (None, None);
        self.all.insert(id, Box::new(record));
    }

    pub(crate) fn remove(&mut self, id: &Id) {
        (self.known, self.unchanged) = (None, None);
        self.all.remove(id);
    }

    /// All records, in order of their ids.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Id, &mut Record)> {
        (self.known, self.unchanged) = (None, None);
        self.all.iter_mut().map(|(id, record)| (id, &mut **record))
    }

    /// The ids that exist and whose identity is complete.
    pub(crate) fn known(&mut self) -> KnownIds {
        let all = &self.all;
        let known = || {
            let known = all.iter().filter(|(id, r)| r.is_known_to_exist(id));
            KnownIds::new(known.map(|(id, r)| (id.clone(), r.kind())).collect())
        };
        self.known.get_or_insert_with(known).clone()
    }

    /// The pod of a sandbox, if an answer has named it. Until then the sandbox's id stands in for the uid.
    pub(crate) fn pod_of_sandbox(&self, sandbox: &Id) -> Option<&PodUid> {
        let pod = self.all.get(sandbox)?.identity.pod.as_ref()?;
        (pod.as_str() != sandbox.as_str()).then_some(pod)
    }

    /// A list with these rows was applied. It showed the recorded state of every existing id, and
    /// no other id.
    pub(crate) fn set_unchanged(&mut self, rows: &Rows) {
        self.known = Some(rows.known_ids());
        self.unchanged = Some(rows.clone());
    }

    /// Whether an equal list was applied without a change, and no record can have changed since.
    /// Then applying this one would change nothing.
    pub(crate) fn are_unchanged_by(&self, rows: &Rows) -> bool {
        let unchanged = self.unchanged.as_ref();
        unchanged.is_some_and(|unchanged| unchanged.is_same(rows))
    }
}

impl Deref for Records {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ids::Kind;
    use crate::types::report::Identity;

    #[test]
    fn equal_list_is_unchanged_until_a_record_is_removed() {
        let (mut records, id) = (Records::default(), Id::from("s"));
        let record = Record::new(Identity::new(Kind::Sandbox), Instant::ORIGIN);
        records.insert(id.clone(), record);
        let rows = Rows::new(records.known());
        assert!(!records.are_unchanged_by(&rows));
        records.set_unchanged(&rows);
        assert!(records.are_unchanged_by(&rows));
        records.remove(&id);
        assert!(!records.are_unchanged_by(&rows));
        assert!(records.get(&id).is_none());
    }
}
