//! Terminal records: how containers ended, kept beyond their removal (law 9).
//!
//! Upstream forgets an exit code when the container is removed before a worker has read it
//! (k#104107). Here the last three ends per (pod, container name) stay, beside the pod's status
//! and never in it, until they are acknowledged or the pod is gone for ten minutes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::{Id, Kind, PodUid};
use crate::status::Text;
use crate::time::{Instant, WallTime};

/// How one container or sandbox ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TerminalRecord {
    /// Its id.
    pub id: Id,
    /// Sandbox or container.
    pub kind: Kind,
    /// The container's name; empty for a sandbox.
    pub name: Text,
    /// How often a read had overruled what was announced of this id.
    pub incarnation: u32,
    /// The exit code, unless it could not be had.
    pub exit_code: Option<i32>,
    /// The reason that the runtime gave; empty if none.
    pub reason: Text,
    /// When the runtime says that it ended.
    pub finished_at: Option<WallTime>,
    /// When we knew.
    pub detected: Instant,
    /// Whether it is removed.
    pub removed: bool,
}

/// How many ends are kept of one name.
const KEPT: usize = 3;

/// All terminal records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Terminals {
    pods: BTreeMap<PodUid, Vec<TerminalRecord>>,
    /// When the pod was last seen to be gone.
    gone: BTreeMap<PodUid, Instant>,
    pod_of: BTreeMap<Id, PodUid>,
}

impl Terminals {
    /// Keeps a record, or replaces the one of the same id and incarnation.
    pub(crate) fn keep(&mut self, uid: &PodUid, record: TerminalRecord) {
        let records = self.pods.entry(uid.clone()).or_default();
        self.pod_of.insert(record.id.clone(), uid.clone());
        if let Some(old) = records
            .iter_mut()
            .find(|r| r.id == record.id && r.incarnation == record.incarnation)
        {
            let detected = old.detected;
            *old = TerminalRecord {
                detected,
                ..record.clone()
            };
        } else {
            records.push(record.clone());
        }
        // Also where one is there already: its name may have become known only now.
        let key = (record.kind, record.name);
        let same = |r: &&TerminalRecord| (r.kind, &r.name) == (key.0, &key.1);
        if records.iter().filter(same).count() > KEPT
            && let Some(oldest) = records.iter().position(|r| same(&r))
        {
            let gone = records.remove(oldest);
            self.unindex(&gone.id);
        }
    }

    /// Whether a record of that id and incarnation is kept.
    pub(crate) fn holds(&self, id: &Id, incarnation: u32) -> bool {
        self.pod_of
            .get(id)
            .and_then(|uid| self.pods.get(uid))
            .is_some_and(|rs| {
                rs.iter()
                    .any(|r| r.id == *id && r.incarnation == incarnation)
            })
    }

    /// The consumer has what it needs of that id. Returns its pod, if anything was kept.
    pub(crate) fn acknowledge(&mut self, id: &Id) -> Option<PodUid> {
        let uid = self.pod_of.remove(id)?;
        if let Some(records) = self.pods.get_mut(&uid) {
            records.retain(|r| r.id != *id);
            if records.is_empty() {
                self.pods.remove(&uid);
                self.gone.remove(&uid);
            }
        }
        Some(uid)
    }

    /// The pod is gone since `now`. Whether anything is kept of it.
    pub(crate) fn pod_gone(&mut self, uid: &PodUid, now: Instant) -> bool {
        let any = self.pods.contains_key(uid);
        if any {
            self.gone.insert(uid.clone(), now);
        }
        any
    }

    /// Whether the pod is gone for `age`.
    pub(crate) fn is_expired(&self, uid: &PodUid, now: Instant, age: std::time::Duration) -> bool {
        self.gone
            .get(uid)
            .is_none_or(|gone| now.since(*gone) >= age)
    }

    /// Forgets all of a pod; whether anything was kept.
    pub(crate) fn forget(&mut self, uid: &PodUid) -> bool {
        self.gone.remove(uid);
        let Some(records) = self.pods.remove(uid) else {
            return false;
        };
        for record in records {
            self.pod_of.remove(&record.id);
        }
        true
    }

    /// What is kept of a pod, oldest first.
    pub(crate) fn of(&self, uid: &PodUid) -> Arc<[TerminalRecord]> {
        self.pods
            .get(uid)
            .map_or_else(|| Arc::from([]), |r| r.as_slice().into())
    }

    fn unindex(&mut self, id: &Id) {
        let kept = self
            .pod_of
            .get(id)
            .and_then(|uid| self.pods.get(uid))
            .is_some_and(|rs| rs.iter().any(|r| r.id == *id));
        if !kept {
            self.pod_of.remove(id);
        }
    }
}
