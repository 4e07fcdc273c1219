//! All records, and the list as whose rows they have stood since.
//!
//! On a node where nothing happens one list is like the other, and of thousands of records none has
//! to be looked at to see that.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::ids::Id;
use crate::observed::Unchanged;
use crate::record::Record;

/// A tree has room to spare in its nodes: what is large is kept outside of them.
type Tree = BTreeMap<Id, Box<Record>>;

/// All records, by their ids. Whoever may change one does so through a method of this.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Records {
    all: Tree,
    /// Each of these rows showed what was believed, and nobody has touched a record since.
    stand_as: Option<Arc<[Unchanged]>>,
}

impl Records {
    pub(crate) fn get_mut(&mut self, id: &Id) -> Option<&mut Record> {
        let record = self.all.get_mut(id)?;
        self.stand_as = None;
        Some(record)
    }

    pub(crate) fn insert(&mut self, id: Id, record: Record) {
        self.stand_as = None;
        self.all.insert(id, Box::new(record));
    }

    pub(crate) fn remove(&mut self, id: &Id) {
        self.stand_as = None;
        self.all.remove(id);
    }

    /// All of them, in order of their ids.
    pub(crate) fn walk(&mut self) -> impl Iterator<Item = (&Id, &mut Record)> {
        self.stand_as = None;
        self.all.iter_mut().map(|(id, record)| (id, &mut **record))
    }

    /// It was found that each of these rows shows what is believed, and what follows from that was
    /// noted.
    pub(crate) fn stand_as(&mut self, rows: Arc<[Unchanged]>) {
        self.stand_as = Some(rows);
    }

    /// Whether that was found of this very slice, and no record can have changed since: to go
    /// through it once more would find the same and note nothing.
    pub(crate) fn still_stand_as(&self, rows: &Arc<[Unchanged]>) -> bool {
        let stand_as = self.stand_as.as_ref();
        stand_as.is_some_and(|stand_as| Arc::ptr_eq(stand_as, rows))
    }
}

impl Deref for Records {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        &self.all
    }
}
