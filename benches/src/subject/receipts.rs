//! The time at which the reader received each event.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pleg_core::{EventType, Id, RuntimeEvent};
use pleg_runtime::clock::wall;

/// The wall-clock time in ns at which each event was received, by id and type.
#[derive(Clone, Debug, Default)]
pub(super) struct Receipts(Arc<Mutex<HashMap<(Id, EventType), i64>>>);

impl Receipts {
    pub(super) fn received(&self, event: &RuntimeEvent) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (event.id.clone(), event.event);
        all.insert(key, wall().as_nanos());
    }

    pub(super) fn take(&self, id: &Id, event: EventType) -> Option<i64> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&(id.clone(), event))
    }
}
