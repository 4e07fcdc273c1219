//! The announcements that wait for one subscriber (invariant 9). A subscriber that keeps up gets
//! every announcement. For one that lags, they are coalesced per id, and every lost Died or Removed
//! is counted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::types::ids::{Id, Kind, PodUid};
use crate::types::lifecycle::{LifecycleType, PodLifecycleEvent};
use crate::types::status::Text;

/// How many ends are kept per (pod, container name) for a lagging subscriber.
const ENDS: usize = 3;
/// How long the ends of a removed id, and what was said last of a pod or id that may be gone, are kept for a
/// lagging subscriber.
const AGE: Duration = Duration::from_secs(600);

/// Announcements that one subscriber has not taken yet.
///
/// Up to `plain` announcements are kept as they are. Beyond that, a Started or Changed that a later
/// state of its id has overtaken is dropped, and so is every PodSync of a pod but the last. A Died
/// or Removed stays. Of removed ids, the last three ends per (pod, container name) are kept, for
/// ten minutes, and so are the last PodSync of a pod and the last Changed of an id. What exceeds that
/// is dropped and counted as missed, and the subscriber must take a snapshot.
#[derive(Clone, Debug)]
pub struct Inbox {
    waiting: VecDeque<PodLifecycleEvent>,
    plain: usize,
    compact_at: usize,
    missed: u64,
    coalesced: u64,
}

impl Inbox {
    /// An empty inbox.
    pub const fn new(plain: usize) -> Self {
        Self {
            waiting: VecDeque::new(),
            plain,
            compact_at: plain,
            missed: 0,
            coalesced: 0,
        }
    }

    /// Adds an announcement. Never blocks, never fails.
    pub fn push(&mut self, event: PodLifecycleEvent) {
        self.waiting.push_back(event);
        if self.waiting.len() > self.compact_at {
            self.compact();
            // Keeps the cost of compacting per announcement constant.
            self.compact_at = self.plain.max(self.waiting.len().saturating_mul(2));
        }
    }

    /// Removes the oldest announcement.
    pub fn pop(&mut self) -> Option<PodLifecycleEvent> {
        let event = self.waiting.pop_front();
        if self.waiting.len() <= self.plain {
            self.compact_at = self.plain;
        }
        event
    }

    /// How many announcements were lost since the last call, if any. To be delivered before the next
    /// announcement.
    pub fn take_missed(&mut self) -> Option<u64> {
        Some(std::mem::take(&mut self.missed)).filter(|&n| n > 0)
    }

    /// How many announcements were coalesced since the start.
    pub const fn coalesced(&self) -> u64 {
        self.coalesced
    }

    /// How many announcements wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no announcement waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.missed == 0
    }

    fn compact(&mut self) {
        let Some(now) = self.waiting.back().map(|e| e.detected) else {
            return;
        };
        let before = self.waiting.len() as u64;
        let lost = self.ends_beyond_bound(now);
        let mut overtaken: BTreeSet<Id> = BTreeSet::new();
        let mut synced: BTreeSet<PodUid> = BTreeSet::new();
        let mut kept = VecDeque::with_capacity(self.waiting.len());
        let mut old = 0;
        // From the newest to the oldest: an announcement that a later one of its id overtakes is
        // dropped.
        while let Some(event) = self.waiting.pop_back() {
            let is_last = match (&event.subject, event.event) {
                (None, _) => synced.insert(event.uid.clone()),
                (Some(s), LifecycleType::ContainerDied | LifecycleType::ContainerRemoved) => {
                    overtaken.insert(s.id.clone());
                    !lost.contains(&(s.id.clone(), s.incarnation))
                }
                (Some(s), _) => overtaken.insert(s.id.clone()),
            };
            // Nothing later overtakes the last one of what is gone.
            let may_be_of_gone = matches!(
                event.event,
                LifecycleType::PodSync | LifecycleType::ContainerChanged
            );
            let is_old = may_be_of_gone && now.since(event.detected) > AGE;
            old += u64::from(is_last && is_old);
            if is_last && !is_old {
                kept.push_front(event);
            }
        }
        self.waiting = kept;
        self.coalesced += before.saturating_sub(self.waiting.len() as u64);
        self.missed += lost.len() as u64 + old;
    }

    /// The ids whose ends exceed the bound. The ends of ids that still exist never do: the bound
    /// applies to ids that were removed or have begun a new incarnation.
    fn ends_beyond_bound(&self, now: crate::types::time::Instant) -> BTreeSet<(Id, u32)> {
        type Name<'a> = (&'a PodUid, Kind, &'a Text);
        let subjects = self.waiting.iter().filter_map(|e| e.subject.as_ref());
        let mut newest: BTreeMap<&Id, u32> = BTreeMap::new();
        for subject in subjects {
            let newest = newest.entry(&subject.id).or_default();
            *newest = subject.incarnation.max(*newest);
        }
        let mut ends: BTreeMap<Name<'_>, Vec<(&Id, u32)>> = BTreeMap::new();
        let mut lost = BTreeSet::new();
        for event in &self.waiting {
            let Some(s) = event.subject.as_ref() else {
                continue;
            };
            let is_over = newest.get(&s.id).is_some_and(|&n| s.incarnation < n);
            let is_end = match event.event {
                LifecycleType::ContainerRemoved => true,
                LifecycleType::ContainerDied => is_over,
                _ => false,
            };
            if !is_end {
                continue;
            }
            if now.since(event.detected) > AGE {
                lost.insert((s.id.clone(), s.incarnation));
            }
            let of_name = ends.entry((&event.uid, s.kind, &s.name)).or_default();
            // Died and Removed of one incarnation are one end.
            if of_name.last() != Some(&(&s.id, s.incarnation)) {
                of_name.push((&s.id, s.incarnation));
            }
        }
        for of_name in ends.values() {
            let beyond = of_name.len().saturating_sub(ENDS);
            lost.extend(
                of_name
                    .iter()
                    .take(beyond)
                    .map(|(id, n)| ((*id).clone(), *n)),
            );
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::lifecycle::{Source, Subject};
    use crate::types::time::Instant;

    fn event(at: u64, what: LifecycleType, id: &str, name: &str) -> PodLifecycleEvent {
        PodLifecycleEvent {
            event: what,
            uid: "pod".into(),
            namespace: "ns".into(),
            pod_name: "pod".into(),
            subject: (!id.is_empty()).then(|| Subject {
                id: id.into(),
                kind: Kind::Container,
                name: name.into(),
                attempt: 0,
                incarnation: 0,
                exit_code: Some(1),
                reason: "Error".into(),
            }),
            source: Source::Stream,
            initial: false,
            detected: Instant::from_origin(Duration::from_secs(at)),
            happened_at: None,
        }
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
    fn one_that_keeps_up_gets_everything() {
        let mut inbox = Inbox::new(4);
        for what in [ContainerStarted, PodSync, ContainerDied, ContainerRemoved] {
            inbox.push(event(0, what, if what == PodSync { "" } else { "a" }, "a"));
        }
        assert_eq!(drain(&mut inbox).len(), 4);
        assert_eq!(inbox.take_missed(), None);
    }

    #[test]
    fn one_that_lags_loses_no_end() {
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
    fn beyond_three_ends_of_one_name_it_is_told_that_it_lags() {
        let mut inbox = Inbox::new(4);
        for n in 0..10 {
            inbox.push(event(n, ContainerDied, &format!("c{n}"), "app"));
            inbox.push(event(n, ContainerRemoved, &format!("c{n}"), "app"));
        }
        let missed = inbox.take_missed();
        let got = drain(&mut inbox);
        assert!(got.contains(&(ContainerDied, "c9".to_owned())));
        assert_eq!(missed, Some(10 - got.len() as u64 / 2));
        assert!(got.len() >= 2 * ENDS);
    }

    #[test]
    fn the_end_of_what_still_exists_is_never_lost() {
        let mut inbox = Inbox::new(2);
        for n in 0..10 {
            inbox.push(event(n, ContainerDied, &format!("c{n}"), "app"));
        }
        assert_eq!(inbox.take_missed(), None);
        assert_eq!(drain(&mut inbox).len(), 10);
    }

    #[test]
    fn ends_of_what_was_removed_long_ago_are_told_as_lag() {
        let mut inbox = Inbox::new(2);
        inbox.push(event(0, ContainerDied, "a", "a"));
        inbox.push(event(0, ContainerRemoved, "a", "a"));
        inbox.push(event(700, ContainerStarted, "b", "b"));
        assert_eq!(inbox.take_missed(), Some(1));
        assert_eq!(drain(&mut inbox), [(ContainerStarted, "b".to_owned())]);
    }

    #[test]
    fn an_end_is_old_after_ten_minutes_and_not_before() {
        for (at, missed) in [(600, None), (601, Some(1))] {
            let mut inbox = Inbox::new(2);
            inbox.push(event(0, ContainerDied, "a", "a"));
            inbox.push(event(0, ContainerRemoved, "a", "a"));
            inbox.push(event(at, ContainerStarted, "b", "b"));
            assert_eq!(inbox.take_missed(), missed, "after {at} s");
        }
    }

    #[test]
    fn it_is_empty_when_nothing_waits_and_nothing_was_missed() {
        let mut inbox = Inbox::new(2);
        assert!(inbox.is_empty());
        inbox.push(event(0, ContainerDied, "a", "a"));
        assert!(!inbox.is_empty());
        inbox.push(event(0, ContainerRemoved, "a", "a"));
        inbox.push(event(700, PodSync, "", ""));
        assert_eq!((drain(&mut inbox).len(), inbox.is_empty()), (1, false));
        assert_eq!(inbox.take_missed(), Some(1));
        assert!(inbox.is_empty());
        assert_eq!(inbox.coalesced(), 2);
    }

    /// Pods that come and go leave nothing but their last PodSync, which nothing overtakes.
    #[test]
    fn pod_syncs_of_ten_minutes_at_most_wait() {
        let mut inbox = Inbox::new(2);
        let mut pushed = 0;
        for minute in 0..1000 {
            let mut sync = event(60 * minute, PodSync, "", "");
            sync.uid = format!("pod-{minute}").as_str().into();
            inbox.push(sync);
            let changed = event(60 * minute, ContainerChanged, &format!("c{minute}"), "c");
            inbox.push(changed);
            pushed += 2;
            assert!(inbox.len() <= 50, "{}", inbox.len());
        }
        let missed = inbox.take_missed().expect("it lags");
        assert_eq!(missed + inbox.len() as u64, pushed);
    }

    /// After catching up, it keeps announcements as they are, as before.
    #[test]
    fn one_that_caught_up_gets_everything_again() {
        for lag in [3, 6] {
            let mut inbox = Inbox::new(2);
            for n in 0..lag {
                inbox.push(event(n, ContainerDied, &n.to_string(), "app"));
            }
            assert_eq!(drain(&mut inbox).len() as u64, lag);
            for n in 0..3 {
                inbox.push(event(n, ContainerStarted, "x", "app"));
            }
            assert_eq!(inbox.len(), 1, "coalesced beyond two, after {lag}");
        }
    }
}
