//! The announcements that wait for one subscriber. A subscriber that keeps up gets every announcement. For a subscriber
//! that lags, the inbox coalesces the announcements of each id; if it must drop them all, it counts them.

use std::collections::{BTreeSet, VecDeque};

use pleg_core::{Id, LifecycleType, PodLifecycleEvent, PodUid};

/// The number of ids beyond which an inbox drops all announcements. Nodes with 20,000 containers exist.
const IDS: usize = 100_000;

/// Announcements that one subscriber has not taken yet.
///
/// While at most `plain` announcements wait, all stay. Beyond `plain`, the inbox drops each Started or Changed followed
/// by an announcement of the same id, and all but the last PodSync of a pod. The last Died and the last Removed of an
/// id stay. Beyond 100,000 ids it drops all and counts them as missed, and the subscriber must take a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Inbox {
    waiting: VecDeque<PodLifecycleEvent>,
    plain: usize,
    compact_at: usize,
    missed: u64,
}

impl Inbox {
    /// An empty inbox.
    pub(crate) const fn new(plain: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            plain,
            compact_at: plain,
            missed: 0,
        }
    }

    /// Adds an announcement. Never blocks, never fails.
    pub(crate) fn push(&mut self, event: PodLifecycleEvent) {
        self.waiting.push_back(event);
        if self.waiting.len() > self.compact_at {
            self.compact();
            // Compacts again only once twice as many announcements wait, so the average cost of each is constant.
            self.compact_at = self.plain.max(self.waiting.len().saturating_mul(2));
        }
    }

    /// Removes the oldest announcement.
    pub(crate) fn pop(&mut self) -> Option<PodLifecycleEvent> {
        let event = self.waiting.pop_front();
        if self.waiting.len() <= self.plain {
            self.compact_at = self.plain;
        }
        event
    }

    /// Takes the number of dropped announcements, if any. The caller must deliver it before the next announcement.
    pub(crate) fn take_missed(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.missed)).filter(|&n| n > 0)
    }

    fn compact(&mut self) {
        let before = self.waiting.len() as u64;
        let mut seen: BTreeSet<Id> = BTreeSet::new();
        let mut ends: BTreeSet<(Id, LifecycleType)> = BTreeSet::new();
        let mut synced: BTreeSet<PodUid> = BTreeSet::new();
        let mut remaining = VecDeque::with_capacity(self.waiting.len());
        // From the newest to the oldest: drops a Started or Changed if its id has a later announcement.
        while let Some(event) = self.waiting.pop_back() {
            let is_end = matches!(
                event.event,
                LifecycleType::ContainerDied | LifecycleType::ContainerRemoved
            );
            let is_last = match &event.subject {
                None => synced.insert(event.uid.clone()),
                // If a read showed that an exit was wrong, the id can exit again. Only the last Died of an id stays.
                Some(subject) if is_end => {
                    seen.insert(subject.id.clone());
                    ends.insert((subject.id.clone(), event.event))
                }
                Some(subject) => seen.insert(subject.id.clone()),
            };
            if is_last {
                remaining.push_front(event);
            }
        }
        if seen.len() > IDS {
            remaining.clear();
            self.missed += before;
        }
        self.waiting = remaining;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pleg_core::{Instant, Kind, Subject};

    use super::*;

    fn event(at: u64, what: LifecycleType, id: &str, name: &str) -> PodLifecycleEvent {
        let subject = (!id.is_empty()).then(|| Subject::new(id, Kind::Container, name));
        let detected = Instant::from_origin(Duration::from_secs(at));
        PodLifecycleEvent::new(what, "pod", subject, detected)
    }

    fn drain(inbox: &mut Inbox) -> Vec<(LifecycleType, String)> {
        std::iter::from_fn(|| inbox.pop())
            .map(|e| {
                (
                    e.event,
                    e.subject.map_or(String::new(), |s| s.id.to_string()),
                )
            })
            .collect()
    }

    use LifecycleType::{
        ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted, PodSync,
    };

    #[test]
    fn subscriber_that_keeps_up_gets_every_announcement() {
        let mut inbox = Inbox::new(4);
        for what in [ContainerStarted, PodSync, ContainerDied, ContainerRemoved] {
            inbox.push(event(0, what, if what == PodSync { "" } else { "a" }, "a"));
        }
        assert_eq!(drain(&mut inbox).len(), 4);
        assert_eq!(inbox.take_missed(), None);
    }

    #[test]
    fn lagging_subscriber_loses_no_died_or_removed() {
        let mut inbox = Inbox::new(2);
        for id in ["a", "b", "c"] {
            inbox.push(event(0, ContainerStarted, id, id));
            inbox.push(event(0, ContainerDied, id, id));
            inbox.push(event(0, ContainerRemoved, id, id));
        }
        inbox.push(event(1, ContainerStarted, "d", "d"));
        let got = drain(&mut inbox);
        for id in ["a", "b", "c"] {
            for what in [ContainerDied, ContainerRemoved] {
                assert!(
                    got.contains(&(what, id.to_owned())),
                    "{what} {id} in {got:?}"
                );
            }
        }
        assert!(got.contains(&(ContainerStarted, "d".to_owned())));
        assert_eq!(inbox.take_missed(), None);
    }

    #[test]
    fn lagging_subscriber_gets_all_exits_of_containers_with_one_name() {
        let mut inbox = Inbox::new(2);
        for n in 0..10 {
            inbox.push(event(n, ContainerDied, &format!("c{n}"), "app"));
            inbox.push(event(n, ContainerRemoved, &format!("c{n}"), "app"));
        }
        assert_eq!(inbox.take_missed(), None);
        assert_eq!(drain(&mut inbox).len(), 20);
    }

    /// Reads can show again and again that the exit of an id was wrong.
    #[test]
    fn repeated_exits_of_one_id_are_coalesced_for_lagging_subscribers() {
        let mut inbox = Inbox::new(2);
        for n in 0..100 {
            inbox.push(event(n, ContainerStarted, "a", "app"));
            inbox.push(event(n, ContainerDied, "a", "app"));
            assert!(inbox.waiting.len() <= 4);
        }
        assert_eq!(inbox.take_missed(), None);
    }

    #[test]
    fn announcements_beyond_100_000_ids_are_counted_as_missed() {
        let mut inbox = Inbox::new(2);
        for n in 0..=2 * IDS {
            inbox.push(event(0, ContainerChanged, &n.to_string(), "app"));
            assert!(inbox.waiting.len() <= 2 * IDS);
        }
        let left = inbox.waiting.len();
        assert_eq!(inbox.take_missed(), Some((2 * IDS + 1 - left) as u64));
    }

    /// While a subscriber lags, its inbox coalesces at a higher limit; once it has caught up, at the original limit.
    #[test]
    fn caught_up_inbox_coalesces_at_its_original_limit_again() {
        for lag in [3, 6] {
            let mut inbox = Inbox::new(2);
            for n in 0..lag {
                inbox.push(event(n, ContainerDied, &n.to_string(), "app"));
            }
            assert_eq!(drain(&mut inbox).len() as u64, lag);
            for n in 0..3 {
                inbox.push(event(n, ContainerStarted, "x", "app"));
            }
            assert_eq!(inbox.waiting.len(), 1, "coalesced to one after lag {lag}");
        }
    }
}
