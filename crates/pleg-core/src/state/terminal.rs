//! Terminal records: how containers ended, kept beyond their removal (invariant 9).
//!
//! Upstream loses an exit code when the container is removed before a worker has read it
//! (k#104107). Here terminal records are kept, separately from the pod's status, until every consumer
//! that was registered when the end was announced has acknowledged them, or the pod is gone for ten
//! minutes. The bound: the record of each id that exists, and the last three of other ends per
//! (pod, container name).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::state::awaited::Awaited;
use crate::types::ids::{Id, Kind, PodUid};
use crate::types::status::Text;
use crate::types::time::{Instant, WallTime};

/// How one container or sandbox ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct TerminalRecord {
    /// Its id.
    pub id: Id,
    /// Sandbox or container.
    pub kind: Kind,
    /// The container's name; empty for a sandbox.
    pub name: Text,
    /// The number of earlier attempts under the same name.
    pub attempt: u32,
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

/// A consumer that acknowledges terminal records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsumerId(u64);

impl ConsumerId {
    /// The consumer with that number. Numbers must not be reused.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }
}

impl TerminalRecord {
    /// How a container of that name ended, without details, for code that builds records, such as
    /// tests of consumers.
    pub fn new(id: impl Into<Id>, name: impl Into<Text>, detected: Instant) -> Self {
        Self {
            id: id.into(),
            kind: Kind::Container,
            name: name.into(),
            attempt: 0,
            incarnation: 0,
            exit_code: None,
            reason: Text::default(),
            finished_at: None,
            detected,
            removed: false,
        }
    }
}

/// A registered consumer has not acknowledged an end of a container or sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Unacknowledged {
    /// The name of the consumer.
    pub consumer: Text,
    /// When the end was detected.
    pub since: Instant,
}

impl Unacknowledged {
    /// A consumer of that name that owes since then, for code that builds the health, such as tests.
    pub fn new(consumer: impl Into<Text>, since: Instant) -> Self {
        Self {
            consumer: consumer.into(),
            since,
        }
    }
}

/// How many terminal records of past ends are kept per name.
const KEPT: usize = 3;

/// The terminal records of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct PodRecords {
    /// The last end of each id that exists.
    existing: BTreeMap<Id, TerminalRecord>,
    /// Ends of ids that were removed, and earlier incarnations; the last [`KEPT`] of each name.
    past: Vec<TerminalRecord>,
}

impl PodRecords {
    fn is_empty(&self) -> bool {
        self.existing.is_empty() && self.past.is_empty()
    }

    fn of_id(&self, id: &Id) -> impl Iterator<Item = &TerminalRecord> {
        let past = self.past.iter().filter(move |r| r.id == *id);
        self.existing.get(id).into_iter().chain(past)
    }

    /// Adds a record, or replaces the one of the same id and incarnation. Returns the ids of the records
    /// that exceed the bound and were removed.
    fn put(&mut self, mut record: TerminalRecord) -> Vec<Id> {
        let (id, kind, name) = (record.id.clone(), record.kind, record.name.clone());
        if let Some(known) = self.take(&id, record.incarnation) {
            record.detected = known.detected;
        }
        self.past.extend(self.existing.remove(&id));
        // Its name may have become known only now.
        for earlier in self.past.iter_mut().filter(|r| r.id == id) {
            earlier.name = name.clone();
        }
        if record.removed {
            self.past.push(record);
        } else {
            self.existing.insert(id, record);
        }
        let mut removed = Vec::new();
        loop {
            let of_name = |r: &TerminalRecord| (r.kind, &r.name) == (kind, &name);
            let past = self.past.iter().enumerate();
            let past = past.filter(|(_, r)| of_name(r));
            if past.clone().count() <= KEPT {
                return removed;
            }
            let oldest = past.min_by_key(|(_, r)| age(r));
            removed.extend(oldest.map(|(at, _)| at).map(|at| self.past.remove(at).id));
        }
    }

    fn take(&mut self, id: &Id, incarnation: u32) -> Option<TerminalRecord> {
        let is_same = |r: &TerminalRecord| r.id == *id && r.incarnation == incarnation;
        if self.existing.get(id).is_some_and(is_same) {
            return self.existing.remove(id);
        }
        let at = self.past.iter().position(is_same)?;
        Some(self.past.remove(at))
    }

    /// Removes and returns the records of that id.
    fn extract(&mut self, id: &Id) -> Vec<TerminalRecord> {
        let past = self.past.extract_if(.., |r| r.id == *id);
        past.chain(self.existing.remove(id)).collect()
    }
}

/// One read may detect several ends at once, in any order: they ended in the order of attempts.
fn age(record: &TerminalRecord) -> (Instant, u32) {
    (record.detected, record.attempt)
}

/// All terminal records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Terminals {
    pods: BTreeMap<PodUid, PodRecords>,
    /// Since when the pod is gone.
    gone: BTreeMap<PodUid, Instant>,
    pod_of: BTreeMap<Id, PodUid>,
    awaited: Awaited,
}

impl Terminals {
    /// Records that are added from now on await this consumer's acknowledgement.
    pub(crate) fn register(&mut self, consumer: ConsumerId, name: &Text) {
        self.awaited.register(consumer, name);
    }

    /// No record awaits this consumer any more. Records that it did not acknowledge are not removed
    /// because of this.
    pub(crate) fn unregister(&mut self, consumer: ConsumerId) {
        self.awaited.unregister(consumer);
    }

    /// Whether the records of that id await an acknowledgement.
    pub(crate) fn is_awaited(&self, id: &Id) -> bool {
        self.awaited.contains(id)
    }

    /// The consumers that have not acknowledged ends.
    pub(crate) fn unacknowledged(&self) -> Vec<Unacknowledged> {
        self.awaited.by_consumer()
    }

    /// Adds a record, or replaces the one of the same id and incarnation.
    pub(crate) fn keep(&mut self, uid: &PodUid, record: TerminalRecord) {
        let is_new = !self.holds(&record.id, record.incarnation);
        if is_new {
            self.awaited.add(&record.id, record.detected);
        }
        self.put(uid, record);
    }

    fn put(&mut self, uid: &PodUid, record: TerminalRecord) {
        self.pod_of.insert(record.id.clone(), uid.clone());
        for id in self.pods.entry(uid.clone()).or_default().put(record) {
            let records = self.pods.get(uid);
            if records.is_none_or(|records| records.of_id(&id).next().is_none()) {
                self.pod_of.remove(&id);
                self.awaited.dropped(&id);
            }
        }
    }

    /// The id belongs to that pod. Returns the pod under which its records were kept until now, if
    /// it was another.
    pub(crate) fn move_to_pod(&mut self, id: &Id, to: &PodUid) -> Option<PodUid> {
        let from = self.pod_of.get(id).filter(|from| *from != to)?.clone();
        let records = self.pods.get_mut(&from)?;
        let moved = records.extract(id);
        if records.is_empty() {
            self.pods.remove(&from);
            self.gone.remove(&from);
        }
        for record in moved {
            self.put(to, record);
        }
        Some(from)
    }

    /// Whether a record of that id and incarnation exists.
    pub(crate) fn holds(&self, id: &Id, incarnation: u32) -> bool {
        let records = self.pod_of.get(id).and_then(|uid| self.pods.get(uid));
        records.is_some_and(|records| records.of_id(id).any(|r| r.incarnation == incarnation))
    }

    /// The consumer acknowledges the records of that id up to that incarnation. Without effect if there is a later one,
    /// which it has not seen. If they await no other consumer, they are removed; then this returns their pod.
    pub(crate) fn acknowledge(
        &mut self,
        consumer: ConsumerId,
        id: &Id,
        incarnation: u32,
    ) -> Option<PodUid> {
        let records = self.pods.get(self.pod_of.get(id)?)?;
        if records.of_id(id).any(|r| r.incarnation > incarnation) {
            return None;
        }
        if !self.awaited.acknowledge(id, consumer) {
            return None;
        }
        let uid = self.pod_of.remove(id)?;
        if let Some(records) = self.pods.get_mut(&uid) {
            records.extract(id);
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
        let past = records.past.iter().map(|r| &r.id);
        for id in records.existing.keys().chain(past) {
            self.pod_of.remove(id);
            self.awaited.remove(id);
        }
        true
    }

    /// The records of a pod, in the order in which the ends were detected.
    pub(crate) fn of(&self, uid: &PodUid) -> Arc<[TerminalRecord]> {
        let Some(records) = self.pods.get(uid) else {
            return Arc::from([]);
        };
        if records.past.is_empty() && records.existing.len() == 1 {
            // The usual case, with one allocation.
            return records
                .existing
                .values()
                .next()
                .cloned()
                .into_iter()
                .collect();
        }
        let mut all = records.past.clone();
        all.extend(records.existing.values().cloned());
        all.sort_by_key(age);
        all.into()
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
            attempt: 0,
            incarnation,
            exit_code: Some(1),
            reason: "".into(),
            finished_at: None,
            detected: Instant::from_nanos(detected),
            removed: false,
        }
    }

    fn removed(id: &str, name: &str, incarnation: u32, detected: u64) -> TerminalRecord {
        TerminalRecord {
            removed: true,
            ..end(id, name, incarnation, detected)
        }
    }

    fn ids(terminals: &Terminals) -> Vec<String> {
        let kept = terminals.of(&"p".into());
        kept.iter().map(|r| r.id.to_string()).collect()
    }

    #[test]
    fn last_three_removed_ids_of_each_name_are_kept() {
        let (mut terminals, p) = (Terminals::default(), PodUid::from("p"));
        for n in 1..=3 {
            terminals.keep(&p, removed(&n.to_string(), "app", 0, n));
        }
        terminals.keep(&p, removed("other", "side", 0, 4));
        assert_eq!(ids(&terminals), ["1", "2", "3", "other"]);
        terminals.keep(&p, removed("4", "app", 0, 5));
        assert_eq!(ids(&terminals), ["2", "3", "other", "4"]);
        assert!(!terminals.holds(&"1".into(), 0));
        assert!(terminals.holds(&"4".into(), 0) && !terminals.holds(&"4".into(), 1));
    }

    /// After a restart, the ends of older containers may be detected later than that of the newest one.
    #[test]
    fn every_id_that_exists_is_kept_whenever_its_end_was_detected() {
        let (mut terminals, p) = (Terminals::default(), PodUid::from("p"));
        terminals.register(ONE, &"one".into());
        for (id, detected) in [("9", 1), ("1", 2), ("3", 2), ("8", 2)] {
            terminals.keep(&p, end(id, "app", 0, detected));
        }
        assert_eq!(ids(&terminals), ["9", "1", "3", "8"]);
        assert!(terminals.is_awaited(&"9".into()));
        // Once they are removed, the bound holds.
        for id in ["1", "3", "8", "9"] {
            terminals.keep(&p, removed(id, "app", 0, 7));
        }
        assert_eq!(ids(&terminals), ["1", "3", "8"]);
        assert!(!terminals.is_awaited(&"9".into()));
    }

    #[test]
    fn last_three_earlier_incarnations_are_kept_beside_the_present_one() {
        let (mut terminals, p) = (Terminals::default(), PodUid::from("p"));
        for incarnation in 0..6 {
            // The name becomes known late.
            let name = if incarnation < 2 { "" } else { "app" };
            terminals.keep(&p, end("1", name, incarnation, incarnation.into()));
        }
        let kept = terminals.of(&p);
        let incarnations: Vec<_> = kept.iter().map(|r| r.incarnation).collect();
        assert_eq!(incarnations, [2, 3, 4, 5]);
    }

    #[test]
    fn of_ends_detected_at_once_the_earliest_attempt_is_dropped() {
        let (mut terminals, p) = (Terminals::default(), PodUid::from("p"));
        for attempt in [4, 3, 1, 2] {
            let record = removed(&attempt.to_string(), "app", 0, 7);
            terminals.keep(&p, TerminalRecord { attempt, ..record });
        }
        assert_eq!(ids(&terminals), ["2", "3", "4"]);
        assert!(!terminals.holds(&"1".into(), 0));
    }

    #[test]
    fn later_details_replace_all_but_the_instant_of_detection() {
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

    const ONE: ConsumerId = ConsumerId::new(1);
    const TWO: ConsumerId = ConsumerId::new(2);

    #[test]
    fn acknowledged_record_is_removed_and_others_stay() {
        let (mut terminals, p) = (Terminals::default(), PodUid::from("p"));
        terminals.register(ONE, &"one".into());
        terminals.keep(&p, end("1", "app", 0, 1));
        terminals.keep(&p, end("2", "app", 0, 2));
        assert_eq!(terminals.acknowledge(ONE, &"1".into(), 0), Some(p.clone()));
        assert_eq!(ids(&terminals), ["2"]);
        assert!(terminals.pod_gone(&p, Instant::from_nanos(5)));
        let age = std::time::Duration::from_nanos(10);
        assert!(!terminals.is_expired(&p, Instant::from_nanos(14), age));
        assert!(terminals.is_expired(&p, Instant::from_nanos(15), age));
        assert!(terminals.forget(&p));
        assert!(!terminals.forget(&p) && !terminals.pod_gone(&p, Instant::ORIGIN));
        assert_eq!(terminals.acknowledge(ONE, &"2".into(), 0), None);
    }

    #[test]
    fn acknowledgement_of_an_earlier_incarnation_has_no_effect() {
        let (mut terminals, p) = (Terminals::default(), PodUid::from("p"));
        terminals.register(ONE, &"one".into());
        terminals.keep(&p, end("1", "app", 0, 1));
        terminals.keep(&p, end("1", "app", 1, 2));
        assert_eq!(terminals.acknowledge(ONE, &"1".into(), 0), None);
        assert!(terminals.is_awaited(&"1".into()) && terminals.holds(&"1".into(), 1));
        assert_eq!(terminals.acknowledge(ONE, &"1".into(), 1), Some(p));
        assert!(ids(&terminals).is_empty());
    }

    #[test]
    fn only_consumers_registered_before_an_end_are_awaited() {
        let (mut terminals, p) = (Terminals::default(), PodUid::from("p"));
        terminals.keep(&p, end("0", "app", 0, 1));
        terminals.register(ONE, &"one".into());
        terminals.keep(&p, end("1", "app", 0, 2));
        terminals.register(TWO, &"two".into());
        terminals.keep(&p, end("2", "app", 0, 3));
        // Its exit code becomes known: that is no new end.
        terminals.keep(&p, end("1", "app", 0, 2));
        for id in ["0", "1", "2"] {
            terminals.acknowledge(ONE, &id.into(), 0);
        }
        assert_eq!(ids(&terminals), ["0", "2"]);
        assert!(!terminals.is_awaited(&"0".into()) && terminals.is_awaited(&"2".into()));
        terminals.unregister(TWO);
        assert!(!terminals.is_awaited(&"2".into()));
        assert_eq!(ids(&terminals), ["0", "2"], "kept within the bounds");
    }

    #[test]
    fn records_dropped_by_the_bounds_are_not_awaited() {
        let (mut terminals, p) = (Terminals::default(), PodUid::from("p"));
        terminals.register(ONE, &"one".into());
        for n in 1..=4 {
            terminals.keep(&p, removed(&n.to_string(), "app", 0, n));
        }
        assert!(!terminals.is_awaited(&"1".into()));
        assert!(
            ids(&terminals)
                .iter()
                .all(|id| terminals.is_awaited(&id.as_str().into()))
        );
        // A move to another pod is no new end.
        terminals.register(TWO, &"two".into());
        let to = PodUid::from("q");
        assert_eq!(terminals.move_to_pod(&"2".into(), &to), Some(p.clone()));
        assert_eq!(terminals.acknowledge(ONE, &"2".into(), 0), Some(to));
        terminals.forget(&p);
        assert!(terminals.unacknowledged().is_empty());
    }

    #[test]
    fn it_holds_what_is_kept_and_nothing_else() {
        let (mut terminals, p) = (Terminals::default(), PodUid::from("p"));
        terminals.keep(&p, end("1", "app", 0, 1));
        assert!(terminals.holds(&"1".into(), 0));
        assert!(!terminals.holds(&"1".into(), 1) && !terminals.holds(&"2".into(), 0));
    }

    #[test]
    fn pod_whose_last_record_was_acknowledged_or_moved_has_none() {
        let (mut terminals, p, q) = (Terminals::default(), PodUid::from("p"), PodUid::from("q"));
        terminals.register(ONE, &"one".into());
        terminals.keep(&p, end("1", "app", 0, 1));
        assert_eq!(terminals.move_to_pod(&"1".into(), &q), Some(p.clone()));
        assert!(!terminals.pod_gone(&p, Instant::ORIGIN));
        assert!(terminals.pod_gone(&q, Instant::ORIGIN));
        assert_eq!(terminals.acknowledge(ONE, &"1".into(), 0), Some(q.clone()));
        assert!(!terminals.pod_gone(&q, Instant::ORIGIN));
    }
}
