//! Pending events: states that a read showed first and that an event should report (invariant 10).
//!
//! Reads check the stream, and so does the stream itself: some events prove that an earlier one was
//! not delivered. A pending event ends in one of three ways. It is settled by an event about its
//! subject; it is voided when the event can no longer be expected; or it times out and counts as
//! missed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::state::reports::{ExpectedEvent, Reports};
use crate::types::ids::Id;
use crate::types::time::Instant;

/// How long after its miss an event may withdraw it.
const WITHDRAWN_WITHIN: Duration = Duration::from_secs(60);

/// The maximum number of misses kept for withdrawal.
const MISSED_MAX: usize = 10_000;

type Key = (Id, ExpectedEvent);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pending {
    /// In the order in which they became pending.
    number: u64,
    since: Instant,
    due: Instant,
}

/// What the arrival of an event did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// The event was not pending.
    NotExpected,
    /// It was pending.
    Pending,
    /// It had been counted as missed, and is withdrawn.
    Missed,
}

/// All pending events, and those missed in the last minute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PendingEvents {
    pending: BTreeMap<Key, Pending>,
    missed: BTreeMap<Key, Instant>,
    last: u64,
}

impl PendingEvents {
    /// An event is pending since `since`. It counts as missed if it has not arrived by `due`.
    pub(crate) fn insert(&mut self, id: &Id, event: ExpectedEvent, since: Instant, due: Instant) {
        self.last += 1;
        let number = self.last;
        let pending = Pending { number, since, due };
        self.pending.entry((id.clone(), event)).or_insert(pending);
    }

    /// The event of that subject has arrived.
    pub(crate) fn settle(&mut self, id: &Id, event: ExpectedEvent) -> Settled {
        if self.pending.is_empty() && self.missed.is_empty() {
            return Settled::NotExpected;
        }
        let key = (id.clone(), event);
        if self.pending.remove(&key).is_some() {
            Settled::Pending
        } else if self.missed.remove(&key).is_some() {
            Settled::Missed
        } else {
            Settled::NotExpected
        }
    }

    /// The event can no longer be expected. Returns whether it was pending.
    pub(crate) fn void(&mut self, id: &Id, event: ExpectedEvent) -> bool {
        self.pending.remove(&(id.clone(), event)).is_some()
    }

    /// No event can be expected any more: the stream has ended.
    pub(crate) fn void_all(&mut self) {
        self.pending.clear();
    }

    /// When the event counts as missed, if it is pending.
    pub(crate) fn due(&self, id: &Id, event: ExpectedEvent) -> Option<Instant> {
        self.pending.get(&(id.clone(), event)).map(|p| p.due)
    }

    /// The event did not arrive in time. Returns since when it was pending.
    pub(crate) fn miss(&mut self, id: &Id, event: ExpectedEvent, now: Instant) -> Option<Instant> {
        let key = (id.clone(), event);
        let pending = self.pending.remove(&key)?;
        if self.missed.len() < MISSED_MAX {
            self.missed.insert(key, now);
        }
        Some(pending.since)
    }

    /// Removes the misses that can no longer be withdrawn.
    pub(crate) fn forget_old_misses(&mut self, now: Instant) {
        self.missed
            .retain(|_, at| at.after(WITHDRAWN_WITHIN) >= now);
    }

    /// The number of the last event that became pending.
    pub(crate) const fn last(&self) -> u64 {
        self.last
    }

    /// The lowest number among the pending events.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.pending.values().map(|p| p.number).min()
    }
}

/// Events about ids that are not recorded, because the events were implausible or named no pod. If
/// a read shows such an id later, its event was not missed. Kept until a complete list that began
/// later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Unrecorded(BTreeMap<Id, (Reports, Instant)>);

impl Unrecorded {
    /// The maximum number of ids. Beyond it, an event may wrongly count as missed.
    const MAX: usize = 10_000;

    pub(crate) fn insert(&mut self, id: &Id, event: ExpectedEvent, arrived: Instant) {
        if self.0.len() < Self::MAX || self.0.contains_key(id) {
            let (reports, last) = self
                .0
                .entry(id.clone())
                .or_insert((Reports::default(), arrived));
            reports.set_arrived(event);
            *last = arrived;
        }
    }

    /// The id is now recorded.
    pub(crate) fn take(&mut self, id: &Id) -> Reports {
        self.0
            .remove(id)
            .map_or(Reports::default(), |(reports, _)| reports)
    }

    /// A complete list that began at that instant did not show the other ids.
    pub(crate) fn forget_before(&mut self, began: Instant) {
        self.0.retain(|_, (_, arrived)| *arrived >= began);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: ExpectedEvent = ExpectedEvent::ContainerStopped;

    fn at(seconds: u64) -> Instant {
        Instant::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn event_settles_what_is_pending_once() {
        let (mut events, id) = (PendingEvents::default(), Id::from("a"));
        assert_eq!(events.settle(&id, EVENT), Settled::NotExpected);
        events.insert(&id, EVENT, at(0), at(5));
        assert_eq!(events.due(&id, EVENT), Some(at(5)));
        let other = ExpectedEvent::ContainerStarted;
        assert_eq!(events.settle(&id, other), Settled::NotExpected);
        assert_eq!(events.settle(&id, EVENT), Settled::Pending);
        assert_eq!(events.settle(&id, EVENT), Settled::NotExpected);
        assert_eq!(events.miss(&id, EVENT, at(5)), None);
    }

    #[test]
    fn late_event_withdraws_miss_of_last_minute() {
        let (mut events, id) = (PendingEvents::default(), Id::from("a"));
        events.insert(&id, EVENT, at(0), at(5));
        assert_eq!(events.miss(&id, EVENT, at(5)), Some(at(0)));
        assert_eq!(events.settle(&id, EVENT), Settled::Missed);
        assert_eq!(events.settle(&id, EVENT), Settled::NotExpected);
        events.insert(&id, EVENT, at(0), at(5));
        events.miss(&id, EVENT, at(5));
        events.forget_old_misses(at(65));
        assert_eq!(events.missed.len(), 1);
        events.forget_old_misses(at(66));
        assert_eq!(events.settle(&id, EVENT), Settled::NotExpected);
    }

    #[test]
    fn misses_beyond_the_maximum_cannot_be_withdrawn() {
        let mut events = PendingEvents::default();
        let ids: Vec<Id> = (0..=MISSED_MAX).map(|n| n.to_string().into()).collect();
        for id in &ids {
            events.insert(id, EVENT, at(0), at(5));
            assert_eq!(events.miss(id, EVENT, at(5)), Some(at(0)));
        }
        assert_eq!(events.settle(&ids[MISSED_MAX], EVENT), Settled::NotExpected);
        assert_eq!(events.settle(&ids[MISSED_MAX - 1], EVENT), Settled::Missed);
    }

    #[test]
    fn unrecorded_ids_beyond_the_maximum_are_not_kept() {
        let mut unrecorded = Unrecorded::default();
        let ids: Vec<Id> = (0..=Unrecorded::MAX)
            .map(|n| n.to_string().into())
            .collect();
        for id in &ids {
            unrecorded.insert(id, EVENT, at(0));
        }
        let started = ExpectedEvent::ContainerStarted;
        unrecorded.insert(&ids[0], started, at(1));
        assert_eq!(
            unrecorded.take(&ids[Unrecorded::MAX]),
            Reports::default(),
            "one id too many"
        );
        assert_ne!(
            unrecorded.take(&ids[Unrecorded::MAX - 1]),
            Reports::default()
        );
        let mut both = Reports::default();
        both.set_arrived(EVENT);
        both.set_arrived(started);
        assert_eq!(unrecorded.take(&ids[0]), both, "a kept id takes events");
    }

    #[test]
    fn oldest_number_grows_as_events_settle() {
        let mut events = PendingEvents::default();
        for id in ["a", "b", "c"] {
            events.insert(&id.into(), EVENT, at(0), at(5));
        }
        assert_eq!((events.oldest(), events.last()), (Some(1), 3));
        events.settle(&"a".into(), EVENT);
        assert_eq!(events.oldest(), Some(2));
        assert!(events.void(&"b".into(), EVENT) && !events.void(&"b".into(), EVENT));
        events.void_all();
        assert_eq!(events.oldest(), None);
    }

    #[test]
    fn list_forgets_unrecorded_ids_whose_events_arrived_before_its_begin() {
        let mut unrecorded = Unrecorded::default();
        for (id, arrived) in [("before", 4), ("at", 5)] {
            unrecorded.insert(&id.into(), EVENT, at(arrived));
        }
        unrecorded.forget_before(at(5));
        assert_eq!(unrecorded.take(&"before".into()), Reports::default());
        assert_ne!(unrecorded.take(&"at".into()), Reports::default());
    }
}
