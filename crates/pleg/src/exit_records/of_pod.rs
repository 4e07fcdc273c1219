//! The exit records of one pod, and the limits of their number.

use std::collections::BTreeMap;
use std::sync::Arc;

use pleg_core::{Id, Instant};

use super::Exit;

/// The maximum number of exit records of removed containers that have the same name.
const OF_NAME: usize = 3;
/// The maximum number of exit records per pod. A pod has far fewer containers.
const OF_POD: usize = 1000;

/// The exit records of one pod, at most one per id.
#[derive(Debug, Default)]
pub(super) struct PodRecords {
    /// The records of ids that exist.
    existing: BTreeMap<Id, Exit>,
    /// The records of removed ids: for each container name at most [`OF_NAME`].
    removed: Vec<Exit>,
    /// The instant since which the pod has had no sandbox or container.
    pub(super) gone: Option<Instant>,
}

impl PodRecords {
    pub(super) fn is_empty(&self) -> bool {
        self.existing.is_empty() && self.removed.is_empty()
    }

    pub(super) fn get(&self, id: &Id) -> Option<&Exit> {
        let removed = || self.removed.iter().find(|record| record.id == *id);
        self.existing.get(id).or_else(removed)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = &Id> {
        let removed = self.removed.iter().map(|record| &record.id);
        self.existing.keys().chain(removed)
    }

    /// Removes and returns the record of the id.
    pub(super) fn take(&mut self, id: &Id) -> Option<Exit> {
        if let Some(record) = self.existing.remove(id) {
            return Some(record);
        }
        let at = self.removed.iter().position(|record| record.id == *id)?;
        Some(self.removed.remove(at))
    }

    /// Adds the record of an id that has no record yet. If its name or pod then has too many, removes the oldest ones
    /// and returns their ids.
    pub(super) fn put(&mut self, record: Exit) -> Vec<Id> {
        let (kind, name) = (record.kind, record.name.clone());
        if record.removed {
            self.removed.push(record);
        } else {
            self.existing.insert(record.id.clone(), record);
        }
        let mut dropped = Vec::new();
        let of_name = |r: &Exit| (r.kind, &r.name) == (kind, &name);
        while self.removed.iter().filter(|r| of_name(r)).count() > OF_NAME {
            dropped.extend(self.drop_oldest(of_name));
        }
        while self.removed.len() + self.existing.len() > OF_POD {
            dropped.extend(self.drop_oldest(|_| true));
        }
        dropped
    }

    /// Removes the oldest record of a removed id that matches `is_meant`; if none matches, the oldest record of an
    /// existing id, matching or not. Returns the id.
    fn drop_oldest(&mut self, is_meant: impl Fn(&Exit) -> bool) -> Option<Id> {
        let removed = self.removed.iter().filter(|record| is_meant(record));
        let oldest = removed.min_by_key(|record| age(record));
        let oldest = oldest.or_else(|| self.existing.values().min_by_key(|record| age(record)));
        let id = oldest?.id.clone();
        self.take(&id);
        Some(id)
    }

    /// All records, in the order in which the ends were detected.
    pub(super) fn all(&self) -> Arc<[Exit]> {
        let mut all = self.removed.clone();
        all.extend(self.existing.values().cloned());
        all.sort_by_key(age);
        all.into()
    }
}

/// Orders records by detection time. If one read detected several exits, the attempt number orders them.
fn age(record: &Exit) -> (Instant, u32) {
    (record.detected, record.attempt)
}
