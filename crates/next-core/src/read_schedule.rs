//! Which pod is read next, and which reads overlap a relist.
//!
//! A pod has reasons to be read, each with an instant; the earliest counts. One read of a pod is in flight at a time.
//! Eight reads run in slots. One that takes long gives its slot back and goes on, so that a pod that hangs delays no
//! other (kubernetes#94829: one hung status call made a node NotReady).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::types::ids::PodUid;
use crate::types::time::Instant;

/// The reason to read a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reason {
    /// A caller waits.
    Waiter,
    /// A relist showed that the pod changed: its rows are at hand.
    Rows,
    /// Events.
    Hint,
    /// The last read showed less than an event had reported.
    Again,
    /// A call failed.
    Retry,
}

impl Reason {
    const ALL: [Self; 5] = [
        Self::Waiter,
        Self::Rows,
        Self::Hint,
        Self::Again,
        Self::Retry,
    ];
}

/// When a pod must be read, by reason.
type Reasons = [Option<Instant>; Reason::ALL.len()];

/// The read of a pod in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flight {
    since: Instant,
    /// It has the slot for the pod that has waited longest.
    is_oldest: bool,
    /// Its own rows were requested and not answered yet.
    rows_under_way: bool,
}

/// The pods that must be read, and those that are being read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReadSchedule {
    slots: usize,
    slot_time: Duration,
    reasons: BTreeMap<PodUid, Reasons>,
    /// Pods whose first reason is due later.
    later: BTreeSet<(Instant, PodUid)>,
    /// Pods that wait for a slot: those for which a caller waits first (false), then the earliest reason.
    ready: BTreeSet<(bool, Instant, PodUid)>,
    /// Pods that wait for a slot and for rows that no caller needs, so that a relist serves them as well.
    crowd: BTreeSet<(Instant, PodUid)>,
    /// A relist is about to serve the crowd.
    holds_crowd: bool,
    flights: BTreeMap<PodUid, Flight>,
    /// The reads that have a slot, and those that have given it back, by their start.
    in_slots: BTreeSet<(Instant, PodUid)>,
    slow: BTreeSet<(Instant, PodUid)>,
    /// Pods of which rows were under way since the relist in flight began.
    during_relist: BTreeSet<PodUid>,
    /// Pods whose reasons may have changed.
    touched: BTreeSet<PodUid>,
}

impl ReadSchedule {
    pub(crate) const fn new(slots: usize, slot_time: Duration) -> Self {
        Self {
            slots,
            slot_time,
            reasons: BTreeMap::new(),
            later: BTreeSet::new(),
            ready: BTreeSet::new(),
            crowd: BTreeSet::new(),
            holds_crowd: false,
            flights: BTreeMap::new(),
            in_slots: BTreeSet::new(),
            slow: BTreeSet::new(),
            during_relist: BTreeSet::new(),
            touched: BTreeSet::new(),
        }
    }

    // ------------------------------------------------------------------------------------------- reasons

    /// The reasons of the pod may have changed.
    pub(crate) fn touch(&mut self, uid: &PodUid) {
        if !self.touched.contains(uid) {
            self.touched.insert(uid.clone());
        }
    }

    /// The next pod whose reasons may have changed.
    pub(crate) fn take_touched(&mut self) -> Option<PodUid> {
        self.touched.pop_first()
    }

    pub(crate) fn is_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Sets when the pod must be read for that reason; `None` withdraws the reason.
    pub(crate) fn set(&mut self, uid: &PodUid, reason: Reason, at: Option<Instant>) {
        let known = self.reasons.get(uid).copied().unwrap_or_default();
        if known[reason as usize] == at {
            return;
        }
        self.unqueue(uid);
        let mut changed = known;
        changed[reason as usize] = at;
        if changed == Reasons::default() {
            self.reasons.remove(uid);
        } else {
            self.reasons.insert(uid.clone(), changed);
        }
        self.queue(uid);
    }

    /// The instant of the first reason.
    fn first(&self, uid: &PodUid) -> Option<Instant> {
        self.reasons.get(uid)?.iter().flatten().min().copied()
    }

    fn queue(&mut self, uid: &PodUid) {
        if !self.flights.contains_key(uid)
            && let Some(at) = self.first(uid)
        {
            self.later.insert((at, uid.clone()));
        }
    }

    fn unqueue(&mut self, uid: &PodUid) {
        let Some(at) = self.first(uid) else { return };
        let mut entry = (at, uid.clone());
        if self.later.remove(&entry) || self.crowd.remove(&entry) {
            return;
        }
        for late in [false, true] {
            let ready = (late, entry.0, entry.1);
            self.ready.remove(&ready);
            entry = (ready.1, ready.2);
        }
    }

    /// Moves the pods whose first reason is due to those that wait for a slot.
    fn promote(&mut self, now: Instant) {
        while let Some((at, _)) = self.later.first()
            && *at <= now
            && let Some((at, uid)) = self.later.pop_first()
        {
            let reasons = self.reasons.get(&uid).copied().unwrap_or_default();
            let is_due = |reason: Reason| reasons[reason as usize].is_some_and(|at| at <= now);
            if is_due(Reason::Waiter) || is_due(Reason::Rows) {
                self.ready.insert((!is_due(Reason::Waiter), at, uid));
            } else {
                self.crowd.insert((at, uid));
            }
        }
    }

    /// The pods that wait for a slot and for rows that no caller needs.
    pub(crate) fn crowd(&mut self, now: Instant) -> usize {
        self.promote(now);
        self.crowd.len()
    }

    /// A relist is, or is not, about to serve the crowd, so that its pods need no read of their own.
    pub(crate) const fn hold_crowd(&mut self, holds: bool) {
        self.holds_crowd = holds;
    }

    // --------------------------------------------------------------------------------------------- reads

    /// The pod to read next, if a slot is free: the one that has waited longest if its slot is free, otherwise one for
    /// which a caller waits, otherwise the one with the earliest reason.
    pub(crate) fn next(&mut self, now: Instant) -> Option<PodUid> {
        self.promote(now);
        if self.in_slots.len() >= self.slots {
            return None;
        }
        let waiter = self.ready.first();
        let other = self.ready.range((true, Instant::ORIGIN, "".into())..);
        let crowd = self.crowd.first().filter(|_| !self.holds_crowd);
        let waiting = waiter.into_iter().chain(other.take(1));
        let waiting = waiting.map(|(late, at, uid)| (*late, *at, uid));
        let waiting = waiting.chain(crowd.map(|(at, uid)| (true, *at, uid)));
        let first = match self.has_oldest() {
            true => waiting.min(),
            false => waiting.min_by_key(|(_, at, _)| *at),
        };
        first.map(|(.., uid)| uid.clone())
    }

    /// Returns true if a read in a slot has the slot for the pod that has waited longest.
    fn has_oldest(&self) -> bool {
        let flights = self.in_slots.iter().map(|(_, uid)| self.flights.get(uid));
        flights.flatten().any(|flight| flight.is_oldest)
    }

    /// A read of the pod begins. `own_rows`: it requests rows of its own, instead of taking those of a relist.
    pub(crate) fn began(&mut self, uid: &PodUid, own_rows: bool, now: Instant) {
        self.unqueue(uid);
        let flight = Flight {
            since: now,
            is_oldest: !self.has_oldest(),
            rows_under_way: own_rows,
        };
        if own_rows {
            self.during_relist.insert(uid.clone());
        }
        self.in_slots.insert((now, uid.clone()));
        self.flights.insert(uid.clone(), flight);
    }

    /// The rows of the pod were answered.
    pub(crate) fn rows_answered(&mut self, uid: &PodUid) {
        if let Some(flight) = self.flights.get_mut(uid) {
            flight.rows_under_way = false;
        }
    }

    /// The read of the pod has ended.
    pub(crate) fn ended(&mut self, uid: &PodUid) {
        if let Some(flight) = self.flights.remove(uid) {
            let entry = (flight.since, uid.clone());
            if !self.in_slots.remove(&entry) {
                self.slow.remove(&entry);
            }
            self.queue(uid);
        }
    }

    /// Takes their slots from reads that take long.
    pub(crate) fn free_slots(&mut self, now: Instant) {
        while let Some((since, _)) = self.in_slots.first()
            && since.after(self.slot_time) <= now
            && let Some(slow) = self.in_slots.pop_first()
        {
            self.slow.insert(slow);
        }
    }

    /// When the next pod must be read, or a slot becomes free.
    pub(crate) fn due(&self) -> Option<Instant> {
        let ready = self.ready.first().map(|(_, at, _)| *at);
        let crowd = self.crowd.first().filter(|_| !self.holds_crowd);
        let waiting = ready.into_iter().chain(crowd.map(|(at, _)| *at)).min();
        let waiting = waiting.filter(|_| self.in_slots.len() < self.slots);
        let later = self.later.first().map(|(at, _)| *at);
        let slot = self.in_slots.first();
        let slot = slot.map(|(since, _)| since.after(self.slot_time));
        [waiting, later, slot].into_iter().flatten().min()
    }

    // ------------------------------------------------------------------------------------------ relists

    /// A relist begins.
    pub(crate) fn relist_began(&mut self) {
        let under_way = self.flights.iter().filter(|(_, f)| f.rows_under_way);
        self.during_relist = under_way.map(|(uid, _)| uid.clone()).collect();
    }

    /// Returns true if rows of the pod were under way at the same time as the relist that ends now, so that the relist
    /// shows nothing of the pod.
    pub(crate) fn overlaps_relist(&self, uid: &PodUid) -> bool {
        self.during_relist.contains(uid)
    }

    // ------------------------------------------------------------------------------------------ getters

    pub(crate) fn is_in_flight(&self, uid: &PodUid) -> bool {
        self.flights.contains_key(uid)
    }

    /// Returns true if a read that began at that instant or before is in flight: one of the pod, or of any pod.
    pub(crate) fn is_read_since(&self, pod: Option<&PodUid>, at: Instant) -> bool {
        match pod {
            Some(uid) => self.flights.get(uid).is_some_and(|f| f.since <= at),
            None => self.oldest().is_some_and(|since| since <= at),
        }
    }

    /// The pods that are being read, and those that must be.
    pub(crate) fn concerned(&self) -> impl Iterator<Item = &PodUid> {
        self.flights.keys().chain(self.reasons.keys())
    }

    /// The pods whose read takes longer than its slot, oldest first, and since when it is in flight.
    pub(crate) fn slow(&self) -> impl ExactSizeIterator<Item = (&PodUid, Instant)> {
        self.slow.iter().map(|(since, uid)| (uid, *since))
    }

    /// When the oldest read in flight began.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let firsts = [self.slow.first(), self.in_slots.first()];
        let firsts = firsts.into_iter().flatten();
        firsts.map(|(since, _)| *since).min()
    }

    /// Returns true if the pod has a reason to be read.
    pub(crate) fn is_wanted(&self, uid: &PodUid) -> bool {
        self.reasons.contains_key(uid)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.ready.is_empty() && self.crowd.is_empty()
    }

    /// The number of pods of which something is stored.
    pub(crate) fn len(&self) -> usize {
        self.reasons.len() + self.flights.len() + self.during_relist.len() + self.touched.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT_TIME: Duration = Duration::from_millis(250);

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn one_slot_is_for_the_pod_that_has_waited_longest() {
        let mut schedule = ReadSchedule::new(2, SLOT_TIME);
        schedule.set(&"old".into(), Reason::Rows, Some(at(1)));
        schedule.set(&"older".into(), Reason::Hint, Some(at(0)));
        for n in 0..4 {
            let uid = format!("waited-{n}").as_str().into();
            schedule.set(&uid, Reason::Waiter, Some(at(10 + n)));
        }
        let mut order = Vec::new();
        for n in 0..6 {
            let uid = schedule.next(at(100)).unwrap();
            schedule.began(&uid, false, at(100));
            for reason in Reason::ALL {
                schedule.set(&uid, reason, None);
            }
            // The second slot is freed after each read, the first one once.
            match n {
                0 => {}
                3 => order
                    .first()
                    .into_iter()
                    .chain([&uid])
                    .for_each(|uid| schedule.ended(uid)),
                _ => schedule.ended(&uid),
            }
            order.push(uid);
        }
        let order: Vec<_> = order.iter().map(PodUid::as_str).collect();
        let expected = [
            "older", "waited-0", "waited-1", "waited-2", "old", "waited-3",
        ];
        assert_eq!(order, expected);
    }

    #[test]
    fn read_that_takes_long_gives_its_slot_back() {
        let (mut schedule, hung) = (ReadSchedule::new(1, SLOT_TIME), PodUid::from("hung"));
        schedule.began(&hung, true, at(0));
        schedule.set(&"next".into(), Reason::Hint, Some(at(1)));
        assert_eq!(
            (schedule.next(at(1)), schedule.due()),
            (None, Some(at(250)))
        );
        schedule.free_slots(at(250));
        assert_eq!(schedule.next(at(250)), Some("next".into()));
        assert!(schedule.slow().eq([(&hung, at(0))]));
        assert!(schedule.is_read_since(Some(&hung), at(0)));
        schedule.ended(&hung);
        assert_eq!((schedule.slow().len(), schedule.oldest()), (0, None));
    }

    #[test]
    fn crowd_waits_while_a_relist_serves_it() {
        let mut schedule = ReadSchedule::new(1, SLOT_TIME);
        schedule.set(&"p".into(), Reason::Hint, Some(at(1)));
        schedule.set(&"q".into(), Reason::Waiter, Some(at(5)));
        assert_eq!(schedule.crowd(at(2)), 1);
        schedule.hold_crowd(true);
        assert_eq!((schedule.next(at(2)), schedule.due()), (None, Some(at(5))));
        assert_eq!(schedule.next(at(5)), Some("q".into()));
        schedule.hold_crowd(false);
        assert_eq!(schedule.next(at(5)), Some("p".into()));
    }

    #[test]
    fn relist_overlaps_rows_that_were_under_way_meanwhile() {
        let mut schedule = ReadSchedule::new(8, SLOT_TIME);
        for (uid, own_rows) in [("before", true), ("statuses", false), ("answered", true)] {
            schedule.began(&uid.into(), own_rows, at(0));
        }
        schedule.rows_answered(&"answered".into());
        schedule.relist_began();
        schedule.began(&"after".into(), true, at(1));
        schedule.ended(&"before".into());
        let overlaps = |uid: &str| schedule.overlaps_relist(&uid.into());
        let all = ["before", "statuses", "answered", "after"];
        assert_eq!(all.map(overlaps), [true, false, false, true]);
    }
}
