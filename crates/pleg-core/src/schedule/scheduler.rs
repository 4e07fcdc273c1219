//! The inspection scheduler: which pods are to be inspected, and when a slot is free (invariant 11).
//!
//! At most one inspection of a pod is in flight and one queued. By default eight run at a time. One
//! that takes longer than 250 ms gives its slot back and continues as overdue, so that a hung pod
//! delays no other pod (upstream k#94829: one hung status call made a whole node NotReady). After a
//! failed inspection, a pod uses a lane of its own until one succeeds. If its list calls failed, it
//! also waits out a backoff, except for waiters. If only a status call failed, that status is
//! repeated after its own backoff, and the other ids are inspected at once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::schedule::cause::{Cause, Causes};
use crate::types::config::Settings;
use crate::types::ids::PodUid;
use crate::types::reads::Ticket;
use crate::types::time::Instant;

/// The limits of the lanes and the backoff.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Lanes {
    pub(crate) slots: usize,
    pub(crate) retry_slots: usize,
    pub(crate) slot_time: Duration,
    pub(crate) most_overdue: usize,
    pub(crate) backoff_first: Duration,
    pub(crate) backoff_most: Duration,
}

impl From<&Settings> for Lanes {
    fn from(settings: &Settings) -> Self {
        Self {
            slots: settings.inspections,
            retry_slots: settings.retries,
            slot_time: settings.slot_time,
            most_overdue: settings.overdue_max,
            backoff_first: Duration::from_secs(1),
            backoff_most: Duration::from_secs(60),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lane {
    First,
    Retry,
}

/// What one pod is owed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Need {
    wanted: Causes,
    queued: Option<Lane>,
    flight: Option<Ticket>,
    /// Failures in a row, including those that do not count against the pod: they determine the
    /// backoff.
    attempts: u32,
    retry_at: Option<Instant>,
    /// The lists of the last inspection failed: until the retry, only urgent causes cause an inspection.
    unlistable: bool,
}

/// An inspection that was requested and has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Flight {
    uid: PodUid,
    lane: Lane,
    issued: Instant,
    causes: Causes,
    overdue: bool,
}

/// An inspection that may start now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) ticket: Ticket,
    pub(crate) uid: PodUid,
    pub(crate) causes: Causes,
}

/// An inspection that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    pub(crate) uid: PodUid,
    pub(crate) causes: Causes,
}

/// How an inspection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It read everything.
    Complete,
    /// It read everything except statuses that failed before and whose backoff is not over.
    NotRepeated,
    /// Its lists were complete, and a status call failed.
    StatusFailed,
    /// A list failed, or the inspection was cancelled.
    ListFailed,
}

/// The scheduler of inspections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct InspectionScheduler {
    lanes: Lanes,
    needs: BTreeMap<PodUid, Need>,
    queues: [VecDeque<PodUid>; 2],
    flights: BTreeMap<Ticket, Flight>,
    in_slot: [usize; 2],
    overdue: BTreeSet<Ticket>,
    /// The pods whose last inspection failed, if that counts against them.
    failing: BTreeSet<PodUid>,
}

impl InspectionScheduler {
    pub(crate) const fn new(lanes: Lanes) -> Self {
        Self {
            lanes,
            needs: BTreeMap::new(),
            queues: [VecDeque::new(), VecDeque::new()],
            flights: BTreeMap::new(),
            in_slot: [0; 2],
            overdue: BTreeSet::new(),
            failing: BTreeSet::new(),
        }
    }

    /// Requests an inspection of a pod.
    ///
    /// If the lists of the pod failed last, it is inspected when its backoff is over, unless a
    /// waiter needs it. Returns when that is, if it is not now. If only a status failed, the pod is
    /// inspected at once, without that status.
    pub(crate) fn request_inspection(&mut self, uid: &PodUid, cause: Cause) -> Option<Instant> {
        let need = self.needs.entry(uid.clone()).or_default();
        need.wanted.insert(cause);
        if need.queued.is_some() || need.flight.is_some() {
            return None;
        }
        let asked_for = matches!(
            cause,
            Cause::Waiter
                | Cause::Details
                | Cause::Relist
                | Cause::Reinspect
                | Cause::Unsettled
                | Cause::Retry
        );
        match need.retry_at {
            Some(at) if need.unlistable && !asked_for => Some(at),
            Some(_) => {
                self.enqueue(uid, Lane::Retry);
                None
            }
            None => {
                self.enqueue(uid, Lane::First);
                None
            }
        }
    }

    fn enqueue(&mut self, uid: &PodUid, lane: Lane) {
        if let Some(need) = self.needs.get_mut(uid) {
            need.queued = Some(lane);
            self.queues[lane as usize].push_back(uid.clone());
        }
    }

    /// The next inspection that may start, if a slot is free.
    pub(crate) fn start(&mut self, ticket: Ticket, now: Instant) -> Option<Start> {
        for (lane, slots) in [
            (Lane::First, self.lanes.slots),
            (Lane::Retry, self.lanes.retry_slots),
        ] {
            if self.in_slot[lane as usize] >= slots {
                continue;
            }
            let Some(uid) = self.queues[lane as usize].pop_front() else {
                continue;
            };
            let Some(need) = self.needs.get_mut(&uid) else {
                continue;
            };
            need.queued = None;
            need.flight = Some(ticket);
            let causes = std::mem::take(&mut need.wanted);
            self.in_slot[lane as usize] += 1;
            let flight = Flight {
                uid: uid.clone(),
                lane,
                issued: now,
                causes,
                overdue: false,
            };
            self.flights.insert(ticket, flight);
            return Some(Start {
                ticket,
                uid,
                causes,
            });
        }
        None
    }

    /// Whether [`InspectionScheduler::start`] would start one.
    pub(crate) fn can_start(&self) -> bool {
        (!self.queues[0].is_empty() && self.in_slot[0] < self.lanes.slots)
            || (!self.queues[1].is_empty() && self.in_slot[1] < self.lanes.retry_slots)
    }

    /// The first and the longest backoff of a pod.
    pub(crate) const fn backoff(&self) -> (Duration, Duration) {
        (self.lanes.backoff_first, self.lanes.backoff_most)
    }

    /// How long an inspection keeps its slot.
    pub(crate) const fn slot_time(&self) -> Duration {
        self.lanes.slot_time
    }

    /// The slot time of that inspection is over: it continues without a slot. If too many are
    /// overdue now, returns the oldest, which must be cancelled as failed.
    pub(crate) fn overdue(&mut self, ticket: Ticket) -> Option<Ticket> {
        let flight = self.flights.get_mut(&ticket)?;
        if std::mem::replace(&mut flight.overdue, true) {
            return None;
        }
        self.in_slot[flight.lane as usize] -= 1;
        self.overdue.insert(ticket);
        if self.overdue.len() > self.lanes.most_overdue {
            self.overdue.first().copied()
        } else {
            None
        }
    }

    /// When that inspection was requested, if it is in flight.
    pub(crate) fn issued(&self, ticket: Ticket) -> Option<Instant> {
        self.flights.get(&ticket).map(|f| f.issued)
    }

    /// The runtime answers again after an outage: ends the backoff of every pod, and requests the
    /// inspections that waited for one.
    pub(crate) fn clear_backoff(&mut self) {
        let mut due = Vec::new();
        self.needs.retain(|uid, need| {
            (need.attempts, need.unlistable) = (0, false);
            if need.retry_at.take().is_some() && need.queued.is_none() && need.flight.is_none() {
                due.push(uid.clone());
            }
            true
        });
        self.failing.clear();
        for uid in due {
            self.request_inspection(&uid, Cause::Retry);
        }
    }

    /// An inspection has ended. A failure counts against the pod if `counts`. Returns `None` if the
    /// inspection was cancelled before. The second value is when a failed pod is to be inspected
    /// again.
    pub(crate) fn finish(
        &mut self,
        ticket: Ticket,
        outcome: Outcome,
        counts: bool,
        now: Instant,
    ) -> Option<(Finished, Option<Instant>)> {
        let flight = self.flights.remove(&ticket)?;
        self.overdue.remove(&ticket);
        if !flight.overdue {
            self.in_slot[flight.lane as usize] -= 1;
        }
        let need = self.needs.entry(flight.uid.clone()).or_default();
        need.flight = None;
        need.unlistable = outcome == Outcome::ListFailed;
        match outcome {
            Outcome::StatusFailed | Outcome::ListFailed => {
                // A failure before the retry does not postpone the retry.
                if need.retry_at.is_none_or(|at| at <= now) {
                    need.retry_at = Some(now.after(self.lanes.backoff(need.attempts)));
                    need.attempts = need.attempts.saturating_add(1);
                }
                if counts {
                    self.failing.insert(flight.uid.clone());
                }
            }
            // The backoff was cleared during this inspection, because an outage ended.
            Outcome::NotRepeated if need.retry_at.is_none() => need.wanted.insert(Cause::Retry),
            Outcome::NotRepeated => {}
            Outcome::Complete => {
                self.failing.remove(&flight.uid);
                (need.attempts, need.retry_at) = (0, None);
            }
        }
        let retry_at = need.retry_at;
        let wanted = need.wanted != Causes::default();
        if wanted && retry_at.is_none() {
            self.enqueue(&flight.uid, Lane::First);
        } else if wanted && !need.unlistable {
            self.enqueue(&flight.uid, Lane::Retry);
        } else if !wanted && retry_at.is_none() {
            self.needs.remove(&flight.uid);
        }
        Some((
            Finished {
                uid: flight.uid,
                causes: flight.causes,
            },
            retry_at,
        ))
    }

    /// Nothing of the pod exists any more, so nothing is owed to it.
    pub(crate) fn forget(&mut self, uid: &PodUid) {
        if let Some(need) = self.needs.get(uid)
            && need.queued.is_none()
            && need.flight.is_none()
        {
            self.failing.remove(uid);
            self.needs.remove(uid);
        }
    }

    /// Whether the pod is owed an inspection, or one is in flight.
    pub(crate) fn owes(&self, uid: &PodUid) -> bool {
        self.needs.contains_key(uid)
    }

    /// Whether an inspection of the pod is requested or in flight. Between two retries of a failing
    /// pod it is not.
    pub(crate) fn is_asked_for(&self, uid: &PodUid) -> bool {
        let need = self.needs.get(uid);
        need.is_some_and(|n| {
            n.queued.is_some() || n.flight.is_some() || n.wanted != Causes::default()
        })
    }

    /// The pod of an inspection in flight.
    pub(crate) fn pod_of(&self, ticket: Ticket) -> Option<&PodUid> {
        self.flights.get(&ticket).map(|f| &f.uid)
    }

    /// Whether the last inspection of the pod failed.
    pub(crate) fn is_failing(&self, uid: &PodUid) -> bool {
        self.failing.contains(uid)
    }

    /// Whether the lists of the last inspection of the pod failed.
    pub(crate) fn is_unlistable(&self, uid: &PodUid) -> bool {
        self.needs.get(uid).is_some_and(|n| n.unlistable)
    }

    /// Whether the pod's last inspection failed and its backoff is over. A timer of an older
    /// backoff must not cause a retry: otherwise each failed read of a waiter would add its own
    /// chain of retries.
    pub(crate) fn is_to_be_retried(&self, uid: &PodUid, now: Instant) -> bool {
        let retry_at = self.needs.get(uid).and_then(|n| n.retry_at);
        retry_at.is_some_and(|at| at <= now)
    }

    /// Whether the failed statuses of the pod may be read again: its backoff is over or was
    /// cleared.
    pub(crate) fn may_be_retried(&self, uid: &PodUid, now: Instant) -> bool {
        let retry_at = self.needs.get(uid).and_then(|n| n.retry_at);
        retry_at.is_none_or(|at| at <= now)
    }

    /// The ticket and the request time of the inspection in flight.
    pub(crate) fn in_flight(&self, uid: &PodUid) -> Option<(Ticket, Instant)> {
        let ticket = self.needs.get(uid)?.flight?;
        self.flights.get(&ticket).map(|f| (ticket, f.issued))
    }

    /// Whether that inspection was requested and has neither ended nor been cancelled.
    pub(crate) fn is_in_flight(&self, ticket: Ticket) -> bool {
        self.flights.contains_key(&ticket)
    }

    /// The pods whose last inspection failed.
    pub(crate) fn failing_pods(&self) -> impl Iterator<Item = &PodUid> {
        self.failing.iter()
    }

    /// The overdue inspections: their pods and when they were requested, oldest first.
    pub(crate) fn hung(&self) -> Vec<(Ticket, &PodUid, Instant)> {
        let flights = self
            .overdue
            .iter()
            .filter_map(|t| Some((*t, self.flights.get(t)?)));
        flights.map(|(t, f)| (t, &f.uid, f.issued)).collect()
    }

    /// When the oldest inspection in flight was requested.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.flights.values().map(|f| f.issued).min()
    }

    /// Whether nothing is queued or in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.queues.iter().all(VecDeque::is_empty)
    }
}

impl Lanes {
    fn backoff(&self, failures: u32) -> Duration {
        doubled(self.backoff_first, failures, self.backoff_most)
    }
}

/// `first` doubled `times` times, at most `most`.
pub(crate) fn doubled(first: Duration, times: u32, most: Duration) -> Duration {
    first
        .saturating_mul(1u32.checked_shl(times.min(31)).unwrap_or(u32::MAX))
        .min(most)
}

#[cfg(test)]
mod tests;
