//! The work queue: which pods are to be run, and when. Pure: time is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pleg::{Instant, PodUid};

/// At most one run per pod, at most so many at once, and the earliest due pod first.
///
/// A pod that is pushed while it is run is run again after that.
#[derive(Clone, Debug)]
pub struct Queue {
    concurrency: usize,
    due: BTreeMap<PodUid, Instant>,
    order: BTreeSet<(Instant, PodUid)>,
    /// The pods that are run, and when they are due again.
    running: BTreeMap<PodUid, Option<Instant>>,
}

impl Queue {
    /// A queue that hands out at most `concurrency` pods at once, but one at least.
    #[must_use]
    pub fn new(concurrency: usize) -> Self {
        Self {
            concurrency: concurrency.max(1),
            due: BTreeMap::new(),
            order: BTreeSet::new(),
            running: BTreeMap::new(),
        }
    }

    /// The pod is due at that instant. If it is due earlier already, nothing changes.
    pub fn push(&mut self, uid: &PodUid, at: Instant) {
        if let Some(again) = self.running.get_mut(uid) {
            *again = Some(again.map_or(at, |due| due.min(at)));
            return;
        }
        match self.due.get(uid) {
            Some(due) if *due <= at => {}
            _ => {
                self.remove(uid);
                self.due.insert(uid.clone(), at);
                self.order.insert((at, uid.clone()));
            }
        }
    }

    /// The next pod to run, if one is due and another run may begin. Call [`done`](Self::done)
    /// after the run.
    pub fn pop(&mut self, now: Instant) -> Option<PodUid> {
        if self.is_full() || self.order.first()?.0 > now {
            return None;
        }
        let (_, uid) = self.order.pop_first()?;
        self.due.remove(&uid);
        self.running.insert(uid.clone(), None);
        Some(uid)
    }

    /// The run of the pod has ended.
    pub fn done(&mut self, uid: &PodUid) {
        if let Some(Some(again)) = self.running.remove(uid) {
            self.push(uid, again);
        }
    }

    /// The pod need not be run again.
    pub fn remove(&mut self, uid: &PodUid) {
        if let Some(again) = self.running.get_mut(uid) {
            *again = None;
        }
        if let Some(due) = self.due.remove(uid) {
            self.order.remove(&(due, uid.clone()));
        }
    }

    /// When [`pop`](Self::pop) returns a pod, if no run ends before that. `None` while no further
    /// run may begin.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let first = self.order.first().filter(|_| !self.is_full());
        first.map(|(due, _)| *due)
    }

    /// Whether the pod is due again, at whatever time, or is run.
    #[must_use]
    pub fn contains(&self, uid: &PodUid) -> bool {
        self.due.contains_key(uid) || self.running.contains_key(uid)
    }

    /// The number of runs.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    fn is_full(&self) -> bool {
        self.running.len() >= self.concurrency
    }
}

/// A time between `base` and `base * (1 + factor)`. `random` is between 0 and 1.
#[must_use]
pub fn jitter(base: Duration, factor: f64, random: f64) -> Duration {
    let spread = base.as_secs_f64() * factor.max(0.0) * random.clamp(0.0, 1.0);
    base.saturating_add(Duration::try_from_secs_f64(spread).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    fn popped(queue: &mut Queue, now: u64) -> Vec<String> {
        std::iter::from_fn(|| queue.pop(at(now)))
            .map(|uid| uid.to_string())
            .collect()
    }

    fn filled(concurrency: usize, entries: &[(&str, u64)]) -> Queue {
        let mut queue = Queue::new(concurrency);
        for (uid, due) in entries {
            queue.push(&(*uid).into(), at(*due));
        }
        queue
    }

    #[test]
    fn earliest_due_is_popped_first_and_none_before_it_is_due() {
        let mut queue = filled(9, &[("c", 3), ("a", 2), ("b", 1), ("d", 9)]);
        assert_eq!(queue.next_due(), Some(at(1)));
        assert_eq!(popped(&mut queue, 0), [""; 0]);
        assert_eq!(popped(&mut queue, 3), ["b", "a", "c"]);
        assert_eq!(queue.next_due(), Some(at(9)));
    }

    #[test]
    fn earlier_push_replaces_a_later_one_and_not_the_reverse() {
        let mut queue = filled(9, &[("a", 5), ("a", 2), ("a", 7)]);
        assert_eq!(queue.next_due(), Some(at(2)));
        assert_eq!(popped(&mut queue, 9), ["a"], "once");
    }

    #[test]
    fn pod_pushed_during_its_run_is_popped_after_it_and_once() {
        let mut queue = filled(9, &[("a", 1)]);
        assert_eq!(popped(&mut queue, 1), ["a"]);
        queue.push(&"a".into(), at(8));
        queue.push(&"a".into(), at(2));
        assert_eq!(popped(&mut queue, 9), [""; 0], "it is run");
        assert_eq!(queue.next_due(), None);
        queue.done(&"a".into());
        assert_eq!(queue.next_due(), Some(at(2)));
        assert_eq!(popped(&mut queue, 9), ["a"]);
        queue.done(&"a".into());
        assert!(!queue.contains(&"a".into()));
    }

    #[test]
    fn full_queue_pops_nothing_until_a_run_ends() {
        let mut queue = filled(2, &[("a", 1), ("b", 1), ("c", 1)]);
        assert_eq!(popped(&mut queue, 1), ["a", "b"]);
        assert_eq!(queue.next_due(), None);
        queue.done(&"b".into());
        assert_eq!(queue.next_due(), Some(at(1)));
        assert_eq!(popped(&mut queue, 1), ["c"]);
    }

    #[test]
    fn removed_pod_is_not_popped_even_if_it_was_pushed_during_its_run() {
        let mut queue = filled(9, &[("a", 1), ("b", 2)]);
        assert_eq!(popped(&mut queue, 1), ["a"]);
        queue.push(&"a".into(), at(1));
        queue.remove(&"a".into());
        queue.remove(&"b".into());
        queue.done(&"a".into());
        assert_eq!(popped(&mut queue, 9), [""; 0]);
    }

    #[test]
    fn jitter_is_between_the_base_and_its_multiple() {
        let base = Duration::from_secs(60);
        assert_eq!(jitter(base, 0.5, 0.0), base);
        assert_eq!(jitter(base, 0.5, 1.0), Duration::from_secs(90));
        assert_eq!(jitter(base, 0.5, f64::NAN), base);
    }

    proptest! {
        /// Beside a model that keeps every push: no pod is run twice at once, none is lost, and the
        /// bound holds.
        #[test]
        fn every_pushed_pod_is_run_after_its_push(
            steps in prop::collection::vec((0..3u8, 0..4usize, 0..20u64), 0..60),
        ) {
            let uids: Vec<PodUid> = ["a", "b", "c", "d"].map(PodUid::from).into();
            let mut queue = Queue::new(2);
            let (mut owed, mut running) = ([None::<u64>; 4], BTreeSet::new());
            for (step, pod, time) in steps {
                match step {
                    0 => {
                        queue.push(&uids[pod], at(time));
                        owed[pod] = Some(owed[pod].map_or(time, |due| due.min(time)));
                    }
                    1 => {
                        let popped = queue.pop(at(time));
                        let free = owed.iter().enumerate().filter(|(p, _)| !running.contains(p));
                        let first = free.filter_map(|(_, due)| *due).min();
                        let expected = first.filter(|due| *due <= time && running.len() < 2);
                        prop_assert_eq!(popped.is_some(), expected.is_some());
                        if let Some(uid) = popped {
                            let pod = uids.iter().position(|u| *u == uid).unwrap();
                            prop_assert_eq!(owed[pod].take(), expected);
                            prop_assert!(running.insert(pod));
                        }
                    }
                    _ => {
                        queue.done(&uids[pod]);
                        running.remove(&pod);
                    }
                }
                prop_assert_eq!(queue.running(), running.len());
            }
        }
    }
}
