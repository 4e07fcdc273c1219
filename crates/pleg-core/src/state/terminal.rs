//! Terminal records: how containers ended, kept beyond their removal (invariant 9).
//!
//! Upstream loses an exit code when the container is removed before a worker has read it
//! (k#104107). Here the last three terminal records per (pod, container name) are kept, separately
//! from the pod's status, until they are acknowledged or the pod is gone for ten minutes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::types::ids::{Id, Kind, PodUid};
use crate::types::status::Text;
use crate::types::time::{Instant, WallTime};

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
    /// The incarnation: how often a read had overruled the recorded state of this id.
    pub incarnation: u32,
    /// The exit code, unless the runtime did not report it.
    pub exit_code: Option<i32>,
    /// The reason according to the runtime; empty if none.
    pub reason: Text,
    /// When it ended according to the runtime.
    pub finished_at: Option<WallTime>,
    /// When the generator detected it.
    pub detected: Instant,
    /// Whether it was removed.
    pub removed: bool,
}

impl TerminalRecord {
    /// How a container of that name ended, without details, for code that builds records, such as
    /// tests of consumers.
    pub fn new(id: impl Into<Id>, name: impl Into<Text>, detected: Instant) -> Self {
        Self {
            id: id.into(),
            kind: Kind::Container,
            name: name.into(),
            incarnation: 0,
            exit_code: None,
            reason: Text::default(),
            finished_at: None,
            detected,
            removed: false,
        }
    }
}

/// How many terminal records are kept per name.
const KEPT: usize = 3;

/// All terminal records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Terminals {
    pods: BTreeMap<PodUid, Vec<TerminalRecord>>,
    /// Since when the pod is gone.
    gone: BTreeMap<PodUid, Instant>,
    pod_of: BTreeMap<Id, PodUid>,
}

impl Terminals {
    /// Adds a record, or replaces the one of the same id and incarnation.
    pub(crate) fn keep(&mut self, uid: &PodUid, record: TerminalRecord) {
        let records = self.pods.entry(uid.clone()).or_default();
        self.pod_of.insert(record.id.clone(), uid.clone());
        let (kind, name) = (record.kind, record.name.clone());
        if let Some(old) = records
            .iter_mut()
            .find(|r| r.id == record.id && r.incarnation == record.incarnation)
        {
            let detected = old.detected;
            *old = TerminalRecord { detected, ..record };
        } else {
            records.push(record);
        }
        // Also if the record existed: its name may have become known only now.
        let same = |r: &&TerminalRecord| (r.kind, &r.name) == (kind, &name);
        if records.iter().filter(same).count() > KEPT
            && let Some(oldest) = records.iter().position(|r| same(&r))
        {
            let gone = records.remove(oldest);
            self.unindex(&gone.id);
        }
    }

    /// The id belongs to that pod. Returns the pod under which its records were kept until now, if
    /// it was another.
    pub(crate) fn move_to_pod(&mut self, id: &Id, to: &PodUid) -> Option<PodUid> {
        let from = self.pod_of.get(id).filter(|from| *from != to)?.clone();
        let records = self.pods.get_mut(&from)?;
        let moved: Vec<_> = records.extract_if(.., |r| r.id == *id).collect();
        if records.is_empty() {
            self.pods.remove(&from);
            self.gone.remove(&from);
        }
        for record in moved {
            self.keep(to, record);
        }
        Some(from)
    }

    /// Whether a record of that id and incarnation exists.
    pub(crate) fn holds(&self, id: &Id, incarnation: u32) -> bool {
        self.pod_of
            .get(id)
            .and_then(|uid| self.pods.get(uid))
            .is_some_and(|rs| {
                rs.iter()
                    .any(|r| r.id == *id && r.incarnation == incarnation)
            })
    }

    /// The consumer acknowledges the records of that id. Returns its pod, if there were any.
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

    /// The pod is gone since `now`. Returns whether it has records.
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

    /// Removes all records of a pod. Returns whether there were any.
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

    /// The records of a pod, oldest first.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn end(id: &str, name: &str, incarnation: u32, detected: u64) -> TerminalRecord {
        TerminalRecord {
            id: id.into(),
            kind: Kind::Container,
            name: name.into(),
            incarnation,
            exit_code: Some(1),
            reason: "".into(),
            finished_at: None,
            detected: Instant::from_nanos(detected),
            removed: false,
        }
    }

    fn ids(terminals: &Terminals) -> Vec<String> {
        let kept = terminals.of(&"p".into());
        kept.iter().map(|r| r.id.to_string()).collect()
    }

    #[test]
    fn the_last_three_of_each_name_are_kept() {
        let (mut terminals, p) = (Terminals::default(), PodUid::from("p"));
        for n in 1..=3 {
            terminals.keep(&p, end(&n.to_string(), "app", 0, n));
        }
        terminals.keep(&p, end("other", "side", 0, 4));
        assert_eq!(ids(&terminals), ["1", "2", "3", "other"]);
        terminals.keep(&p, end("4", "app", 0, 5));
        assert_eq!(ids(&terminals), ["2", "3", "other", "4"]);
        assert!(!terminals.holds(&"1".into(), 0));
        assert!(terminals.holds(&"4".into(), 0) && !terminals.holds(&"4".into(), 1));
        assert_eq!(terminals.acknowledge(&"1".into()), None);
    }

    #[test]
    fn what_becomes_known_later_replaces_all_but_the_instant() {
        let (mut terminals, p) = (Terminals::default(), PodUid::from("p"));
        terminals.keep(&p, end("1", "app", 0, 7));
        let mut later = end("1", "app", 0, 9);
        later.removed = true;
        terminals.keep(&p, later);
        let kept = terminals.of(&p);
        assert_eq!(kept.len(), 1);
        assert!(kept[0].removed);
        assert_eq!(kept[0].detected, Instant::from_nanos(7));
        // Another incarnation of the id is another record.
        terminals.keep(&p, end("1", "app", 1, 10));
        assert_eq!(terminals.of(&p).len(), 2);
    }

    #[test]
    fn an_acknowledged_end_goes_and_the_others_stay() {
        let (mut terminals, p) = (Terminals::default(), PodUid::from("p"));
        terminals.keep(&p, end("1", "app", 0, 1));
        terminals.keep(&p, end("2", "app", 0, 2));
        assert_eq!(terminals.acknowledge(&"1".into()), Some(p.clone()));
        assert_eq!(ids(&terminals), ["2"]);
        assert!(terminals.pod_gone(&p, Instant::from_nanos(5)));
        let age = std::time::Duration::from_nanos(10);
        assert!(!terminals.is_expired(&p, Instant::from_nanos(14), age));
        assert!(terminals.is_expired(&p, Instant::from_nanos(15), age));
        assert!(terminals.forget(&p));
        assert!(!terminals.forget(&p) && !terminals.pod_gone(&p, Instant::ORIGIN));
        assert_eq!(terminals.acknowledge(&"2".into()), None);
    }

    #[test]
    fn it_holds_what_is_kept_and_nothing_else() {
        let (mut terminals, p) = (Terminals::default(), PodUid::from("p"));
        terminals.keep(&p, end("1", "app", 0, 1));
        assert!(terminals.holds(&"1".into(), 0));
        assert!(!terminals.holds(&"1".into(), 1) && !terminals.holds(&"2".into(), 0));
    }
}
