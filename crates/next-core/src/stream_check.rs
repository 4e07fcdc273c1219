//! Checks the event stream against what reads show: which events were expected, which did not come, and whether the
//! stream is mute.

use std::collections::{BTreeMap, BTreeSet};

use crate::constants::{EVENT_GRACE, MUTE_FOR, SUBJECTS};
use crate::loss::{LossWindow, StreamLoss};
use crate::pods::Change;
use crate::types::event::EventType;
use crate::types::hint::Types;
use crate::types::ids::Id;
use crate::types::profile::EventProfile;
use crate::types::time::Instant;

/// An event that should report a change that a read has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExpectedEvent {
    /// STARTED of a container.
    ContainerStarted,
    /// STOPPED of a container.
    ContainerStopped,
}

impl ExpectedEvent {
    const ALL: [Self; 2] = [Self::ContainerStarted, Self::ContainerStopped];

    const fn of(change: Change) -> Self {
        match change {
            Change::Runs => Self::ContainerStarted,
            Change::Ended | Change::Gone => Self::ContainerStopped,
        }
    }

    /// Returns true if one of these events is the expected one.
    const fn is_among(self, types: Types) -> bool {
        types.contains(match self {
            Self::ContainerStarted => EventType::Started,
            Self::ContainerStopped => EventType::Stopped,
        })
    }
}

/// The events that have arrived about one id on this stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Arrived {
    types: Types,
    last: Instant,
}

/// The check of the present stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct StreamCheck {
    profile: EventProfile,
    /// Published ids, and others until a relist that began after their last event is settled.
    arrived: BTreeMap<Id, Arrived>,
    /// The events that have not come yet, by number, and when each will be missed. All may be late by the same time, so
    /// they are missed in the order of their numbers.
    expected: BTreeMap<u64, (Instant, Id, ExpectedEvent)>,
    numbers: BTreeSet<(Id, ExpectedEvent, u64)>,
    /// The number of the last event that was expected.
    last_number: u64,
    loss: LossWindow,
    /// When an event was missed since which none has arrived.
    mute_since: Option<Instant>,
}

impl StreamCheck {
    pub(crate) const fn set_profile(&mut self, profile: EventProfile) {
        self.profile = profile;
    }

    pub(crate) const fn profile(&self) -> &EventProfile {
        &self.profile
    }

    /// The stream has ended or was subscribed to: nothing of the previous one is expected any more.
    pub(crate) fn stream_changed(&mut self) {
        self.expected.clear();
        self.numbers.clear();
        self.arrived.clear();
        self.mute_since = None;
    }

    /// Events about an id arrived, the last one at `last`. Returns false if there is no room for one more id, so that a
    /// relist must replace them.
    pub(crate) fn arrived(&mut self, id: &Id, types: Types, last: Instant, now: Instant) -> bool {
        self.mute_since = None;
        for event in ExpectedEvent::ALL {
            if event.is_among(types) {
                let came = self.forget(id, event);
                (0..came).for_each(|_| self.loss.arrived(now));
            }
        }
        if let Some(known) = self.arrived.get_mut(id) {
            known.types.add(types);
            known.last = known.last.max(last);
        } else if self.arrived.len() < SUBJECTS {
            self.arrived.insert(id.clone(), Arrived { types, last });
        } else {
            return false;
        }
        true
    }

    /// A read that ended now has changed what is published of an id.
    pub(crate) fn changed(&mut self, id: &Id, change: Change, now: Instant) {
        if change == Change::Gone && self.profile.removal_suppresses_stopped {
            return;
        }
        let event = ExpectedEvent::of(change);
        let arrived = self.arrived.get(id);
        if arrived.is_some_and(|arrived| event.is_among(arrived.types)) {
            return self.loss.arrived(now);
        }
        self.last_number += 1;
        let number = self.last_number;
        self.numbers.insert((id.clone(), event, number));
        let missed_at = now.after(EVENT_GRACE);
        self.expected.insert(number, (missed_at, id.clone(), event));
    }

    /// The id is not published any more.
    pub(crate) fn left(&mut self, id: &Id) {
        self.arrived.remove(id);
        if self.profile.removal_suppresses_stopped {
            self.forget(id, ExpectedEvent::ContainerStopped);
        }
    }

    /// Expects the event no longer. Returns how often it was expected.
    fn forget(&mut self, id: &Id, event: ExpectedEvent) -> usize {
        let of_id = (id.clone(), event, 0)..=(id.clone(), event, u64::MAX);
        let numbers: Vec<_> = self.numbers.range(of_id).cloned().collect();
        for known in &numbers {
            self.numbers.remove(known);
            self.expected.remove(&known.2);
        }
        numbers.len()
    }

    /// Every pod that a relist of that instant showed was read.
    pub(crate) fn settled(&mut self, began: Instant, is_published: impl Fn(&Id) -> bool) {
        self.arrived
            .retain(|id, arrived| arrived.last >= began || is_published(id));
    }

    /// The expected events that did not come in time.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<ExpectedEvent> {
        let mut overdue = Vec::new();
        while let Some(first) = self.expected.first_entry()
            && first.get().0 <= now
        {
            let (number, (_, id, event)) = first.remove_entry();
            self.numbers.remove(&(id, event, number));
            self.loss.missed(now);
            self.mute_since.get_or_insert(now);
            overdue.push(event);
        }
        overdue
    }

    /// Returns true, once, if the stream has been mute for so long that it must be subscribed again.
    pub(crate) fn must_renew(&mut self, now: Instant) -> bool {
        let is_long = |since: &mut Instant| since.after(MUTE_FOR) <= now;
        !self.profile.disconnect_may_crash && self.mute_since.take_if(is_long).is_some()
    }

    /// Returns true if an event was missed and none has come since, on this stream.
    pub(crate) const fn is_mute(&self) -> bool {
        self.mute_since.is_some()
    }

    /// The number of the last event that was expected.
    pub(crate) const fn last_number(&self) -> u64 {
        self.last_number
    }

    /// The number of the first event that has not come yet.
    pub(crate) fn first_open(&self) -> Option<u64> {
        self.expected.first_key_value().map(|(number, _)| *number)
    }

    /// When the next expected event will have been missed.
    pub(crate) fn due(&self) -> Option<Instant> {
        let (_, (missed_at, ..)) = self.expected.first_key_value()?;
        Some(*missed_at)
    }

    pub(crate) fn loss(&self, now: Instant) -> StreamLoss {
        self.loss.of_last_minutes(now)
    }

    /// The number of ids and events of which something is stored.
    pub(crate) fn len(&self) -> usize {
        self.arrived.len() + self.expected.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const STARTED: Types = Types::of(EventType::Started);
    const STOPPED: Types = Types::of(EventType::Stopped);

    fn at(seconds: u64) -> Instant {
        Instant::from_origin(Duration::from_secs(seconds))
    }

    fn check() -> (StreamCheck, Id) {
        let mut check = StreamCheck::default();
        let mut profile = EventProfile::UNKNOWN;
        profile.removal_suppresses_stopped = false;
        check.set_profile(profile);
        (check, "c".into())
    }

    #[test]
    fn event_that_does_not_come_in_time_is_missed() {
        let (mut check, c) = check();
        check.changed(&c, Change::Runs, at(10));
        check.changed(&c, Change::Ended, at(11));
        assert_eq!(check.due(), Some(at(20)));
        assert!(check.arrived(&c, STOPPED, at(12), at(12)));
        assert_eq!((check.last_number(), check.first_open()), (2, Some(1)));
        assert!(check.overdue(at(19)).is_empty());
        assert_eq!(check.overdue(at(20)), [ExpectedEvent::ContainerStarted]);
        assert!(check.is_mute());
        assert_eq!(check.loss(at(20)), StreamLoss::new(2, 1));
        assert_eq!(check.numbers, BTreeSet::new());
    }

    #[test]
    fn event_that_came_before_is_not_expected() {
        let (mut check, c) = check();
        check.arrived(&c, STARTED, at(1), at(1));
        check.settled(at(1), |_| false);
        check.changed(&c, Change::Runs, at(2));
        assert_eq!(check.due(), None);
        check.settled(at(3), |_| true);
        check.changed(&c, Change::Runs, at(4));
        assert_eq!(check.due(), None);
        check.settled(at(5), |_| false);
        check.changed(&c, Change::Runs, at(6));
        assert_eq!(check.due(), Some(at(16)));
        check.stream_changed();
        assert_eq!((check.due(), check.len()), (None, 0));
    }

    #[test]
    fn removal_cancels_stopped_where_the_runtime_suppresses_it() {
        let (mut check, c) = check();
        check.set_profile(EventProfile::UNKNOWN);
        check.changed(&c, Change::Gone, at(1));
        assert_eq!(check.due(), None);
        check.changed(&c, Change::Ended, at(1));
        check.left(&c);
        assert_eq!((check.due(), check.len()), (None, 0));
    }

    #[test]
    fn stream_that_is_mute_for_ten_minutes_is_renewed_once() {
        let (mut check, c) = check();
        for n in 0..2 {
            check.changed(&c, Change::Ended, at(100 + n));
            assert_eq!(check.overdue(at(110 + n)).len(), 1);
        }
        assert!(!check.must_renew(at(709)) && check.must_renew(at(710)));
        assert!(!check.must_renew(at(711)));
    }

    #[test]
    fn id_beyond_the_bound_is_not_stored() {
        let (mut check, c) = check();
        for n in 0..SUBJECTS {
            assert!(check.arrived(&n.to_string().into(), STARTED, at(1), at(1)));
        }
        assert!(!check.arrived(&c, STARTED, at(1), at(1)));
        assert!(check.arrived(&"0".into(), STOPPED, at(1), at(1)));
    }
}
