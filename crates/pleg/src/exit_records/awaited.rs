//! Exits that registered consumers must still acknowledge.

use std::collections::{BTreeMap, BTreeSet};

use pleg_core::{Id, Instant, Text, Unacknowledged};

use super::ConsumerId;

/// The exits that consumers have not acknowledged, by consumer and by id.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Awaited {
    consumers: BTreeMap<ConsumerId, Owing>,
    ends: BTreeMap<Id, End>,
}

/// The exits that one consumer has not acknowledged.
#[derive(Debug, Default, PartialEq, Eq)]
struct Owing {
    name: Text,
    ends: BTreeSet<(Instant, Id)>,
    /// The detection time of the first exit since this consumer's last acknowledgement whose record was dropped because
    /// its name or pod had too many. Without this time, a consumer would never seem late for a container that crashes
    /// every few seconds, because each record of that container is dropped within seconds.
    dropped: Option<Instant>,
}

impl Owing {
    fn remove(&mut self, end: &(Instant, Id)) {
        self.ends.remove(end);
        if self.ends.is_empty() {
            self.dropped = None;
        }
    }

    fn since(&self) -> Option<Instant> {
        let (first, _) = self.ends.first()?;
        Some(self.dropped.map_or(*first, |dropped| dropped.min(*first)))
    }
}

/// An exit that some consumers have not acknowledged.
#[derive(Debug, PartialEq, Eq)]
struct End {
    detected: Instant,
    by: BTreeSet<ConsumerId>,
}

impl Awaited {
    /// Registers a consumer: exits added later await its acknowledgement.
    pub(super) fn register(&mut self, consumer: ConsumerId, name: &Text) {
        let owing = self.consumers.entry(consumer).or_default();
        if owing.name != *name {
            owing.name.clone_from(name);
        }
    }

    /// Unregisters a consumer: no exit awaits its acknowledgement any more.
    pub(super) fn unregister(&mut self, consumer: ConsumerId) {
        let owing = self.consumers.remove(&consumer).unwrap_or_default();
        for (_, id) in owing.ends {
            self.acknowledged(&id, consumer);
        }
    }

    /// Adds an exit, which awaits the acknowledgement of each registered consumer.
    pub(super) fn add(&mut self, id: &Id, detected: Instant) {
        self.remove(id);
        if self.consumers.is_empty() {
            return;
        }
        for owing in self.consumers.values_mut() {
            owing.ends.insert((detected, id.clone()));
        }
        let by = self.consumers.keys().copied().collect();
        self.ends.insert(id.clone(), End { detected, by });
    }

    /// Notes that the record of the id was dropped because of a limit. Its consumers still count as late.
    pub(super) fn dropped(&mut self, id: &Id) {
        if let Some(End { detected, by }) = self.ends.get(id) {
            for consumer in by {
                if let Some(owing) = self.consumers.get_mut(consumer) {
                    owing.dropped.get_or_insert(*detected);
                }
            }
        }
        self.remove(id);
    }

    /// Removes the exit of the id, so that it awaits no acknowledgement any more.
    pub(super) fn remove(&mut self, id: &Id) {
        let Some(End { detected, by }) = self.ends.remove(id) else {
            return;
        };
        let end = (detected, id.clone());
        for consumer in by {
            if let Some(owing) = self.consumers.get_mut(&consumer) {
                owing.remove(&end);
            }
        }
    }

    /// Notes that the consumer acknowledged the exit of the id. Returns true if no other acknowledgement is missing.
    pub(super) fn acknowledge(&mut self, id: &Id, consumer: ConsumerId) -> bool {
        if let Some(end) = self.ends.get(id)
            && let Some(owing) = self.consumers.get_mut(&consumer)
        {
            owing.dropped = None;
            owing.remove(&(end.detected, id.clone()));
        }
        self.acknowledged(id, consumer)
    }

    fn acknowledged(&mut self, id: &Id, consumer: ConsumerId) -> bool {
        let Some(end) = self.ends.get_mut(id) else {
            return false;
        };
        let was_last = end.by.remove(&consumer) && end.by.is_empty();
        if was_last {
            self.ends.remove(id);
        }
        was_last
    }

    pub(super) fn contains(&self, id: &Id) -> bool {
        self.ends.contains_key(id)
    }

    /// The consumers with unacknowledged exits, each with the detection time of the earliest such exit.
    pub(super) fn by_consumer(&self) -> Vec<Unacknowledged> {
        let owing = self.consumers.values();
        let owing =
            owing.filter_map(|owing| Some(Unacknowledged::new(owing.name.clone(), owing.since()?)));
        owing.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ONE, TWO, at};
    use super::*;

    fn owing(awaited: &Awaited) -> Vec<(String, u64)> {
        let all = awaited.by_consumer().into_iter();
        all.map(|u| (u.consumer.to_string(), u.since.as_nanos()))
            .collect()
    }

    #[test]
    fn consumer_is_late_since_its_earliest_unacknowledged_exit() {
        let mut awaited = Awaited::default();
        awaited.add(&"0".into(), at(0));
        assert!(!awaited.contains(&"0".into()), "nobody was registered");
        awaited.register(ONE, &"one".into());
        awaited.add(&"1".into(), at(1));
        awaited.register(TWO, &"two".into());
        awaited.add(&"2".into(), at(2));
        let name = |name: &str, since| (name.to_owned(), since);
        assert_eq!(owing(&awaited), [name("one", 1), name("two", 2)]);
        assert!(awaited.acknowledge(&"1".into(), ONE));
        assert!(!awaited.acknowledge(&"2".into(), ONE));
        assert_eq!(owing(&awaited), [name("two", 2)]);
        // The container with the id "2" has exited again.
        awaited.add(&"2".into(), at(3));
        assert_eq!(owing(&awaited), [name("one", 3), name("two", 3)]);
        // The record of the earliest exit is dropped because its name or pod has too many.
        awaited.add(&"4".into(), at(4));
        awaited.dropped(&"2".into());
        assert_eq!(owing(&awaited), [name("one", 3), name("two", 3)]);
        awaited.add(&"5".into(), at(5));
        awaited.acknowledge(&"5".into(), TWO);
        assert_eq!(owing(&awaited), [name("one", 3), name("two", 4)]);
        awaited.remove(&"5".into());
        awaited.unregister(TWO);
        assert!(awaited.contains(&"4".into()));
        awaited.remove(&"4".into());
        awaited.unregister(ONE);
        assert_eq!(awaited, Awaited::default());
    }
}
