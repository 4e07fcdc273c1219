//! Checks the reads that the reconciler requests: lists in time and not too many, inspections within
//! their slots, retries with a backoff.

use std::collections::VecDeque;

use pleg_core::{Cause, Causes, FailedStatus, Id, Inspection, PodUid, Ticket};

use super::Checks;
use crate::assertions::{self, CheckResult};
use crate::coverage::CoverPoint;
use crate::fault_profile::{MS, SECOND};
use crate::oracle::Oracle;
use crate::runtime::pod_of;

/// The schedule of lists, and the limits of inspections.
#[derive(Debug)]
pub struct ReadSchedule {
    slots: usize,
    most_overdue: usize,
    longest: u64,
    in_flight: Option<Ticket>,
    last_ended: u64,
    /// The deadline of the next list, and its reason.
    due: Option<(u64, &'static str)>,
    /// When lists were requested, and when an extra list became allowed.
    lists: VecDeque<u64>,
    allowed: VecDeque<u64>,
}

const SLOT: u64 = 250 * MS;
/// How long an extra list stays allowed: longer than the longest list.
const ALLOWED: u64 = 130 * SECOND;

impl ReadSchedule {
    pub const fn new(now: u64, slots: usize, most_overdue: usize, longest: u64) -> Self {
        Self {
            slots,
            most_overdue,
            longest,
            in_flight: None,
            last_ended: now,
            due: None,
            lists: VecDeque::new(),
            allowed: VecDeque::new(),
        }
    }

    /// Requires a list within a second.
    pub fn require_list(&mut self, now: u64, why: &'static str) {
        self.due.get_or_insert((now + SECOND, why));
    }

    /// Allows an extra list for a request or a subscribe.
    pub fn allow_list(&mut self, now: u64) {
        self.allowed.push_back(now);
    }

    pub fn list_asked(&mut self, now: u64, ticket: Ticket) -> CheckResult {
        self.in_time(now)?;
        self.in_flight = Some(ticket);
        self.due = None;
        self.lists.push_back(now);
        while self.lists.front().is_some_and(|&t| t + SECOND <= now) {
            self.lists.pop_front();
        }
        while self.allowed.front().is_some_and(|&t| t + ALLOWED <= now) {
            self.allowed.pop_front();
        }
        // One a second, one at once after a failure, one for each of a few contradictions, one for each
        // request or subscribe.
        let (lists, allowed) = (self.lists.len(), 5 + self.allowed.len());
        assertions::LIST_RATE_LIMITED.holds(lists <= allowed, || {
            format!("{lists} lists within a second, {allowed} allowed")
        })
    }

    pub fn list_ended(&mut self, now: u64, failed: bool) {
        self.in_flight = None;
        self.last_ended = now;
        if let Some((due, _)) = &mut self.due {
            *due = now + SECOND;
        }
        if failed {
            self.require_list(now, "a list failed");
        }
    }

    /// The time since the last list ended.
    pub const fn since_last(&self, now: u64) -> u64 {
        now - self.last_ended
    }

    /// # Errors
    /// A list is too late.
    pub fn in_time(&self, now: u64) -> CheckResult {
        if self.in_flight.is_some() {
            return Ok(());
        }
        if let Some((due, why)) = self.due {
            assertions::PERIOD_SHORTENED.holds(now <= due, || {
                let late = (now - due) / MS;
                format!("{why}, and the next list is {late} ms late")
            })?;
        }
        assertions::LIST_IN_TIME.holds(now <= self.last_ended + self.longest, || {
            let ago = (now - self.last_ended) / MS;
            format!("the last list ended {ago} ms ago and none is in flight")
        })
    }
}

impl Checks {
    /// An inspection is requested.
    ///
    /// # Errors
    /// It exceeds a limit.
    pub fn inspection_asked(
        &mut self,
        now: u64,
        (uid, ticket): (&PodUid, Ticket),
        causes: Causes,
        read_schedule: &ReadSchedule,
    ) -> CheckResult {
        for cause in causes.iter() {
            if let Some(point) = CoverPoint::inspected_for(cause) {
                self.coverage.hit(point);
            }
        }
        let twice = self.in_flight.values().any(|(other, _)| other == uid);
        assertions::ONE_PER_POD.holds(!twice, || format!("{uid} is inspected twice at a time"))?;
        self.in_flight.insert(ticket, (uid.clone(), now));
        self.last_inspection = self.last_inspection.max(ticket);
        let in_slot = self.in_flight.values().filter(|(_, t)| now < t + SLOT);
        let (in_slot, slots) = (in_slot.count(), read_schedule.slots);
        assertions::SLOTS.holds(in_slot <= slots, || {
            format!("{in_slot} inspections in {slots} slots")
        })?;
        let overdue = self.in_flight.values().filter(|(_, t)| now > t + SLOT);
        let (overdue, most) = (overdue.count(), read_schedule.most_overdue);
        assertions::SLOTS.holds(overdue <= most, || {
            format!("{overdue} inspections are overdue, {most} may be")
        })?;
        self.retried(now, uid, causes)
    }

    /// The backoff stays in force, however many reads fail.
    fn retried(&mut self, now: u64, uid: &PodUid, causes: Causes) -> CheckResult {
        if causes.iter().ne([Cause::Retry]) {
            return Ok(());
        }
        let recent = self.retries.entry(uid.clone()).or_default();
        recent.retain(|&t| t + 10 * SECOND > now);
        recent.push_back(now);
        let times = recent.len();
        assertions::BACKOFF
            .holds(times <= 6, || {
                format!("{uid} is retried {times} times in 10 s")
            })
            .map_err(|violation| violation.in_pod(pod_of(uid)))
    }

    /// When the oldest inspection in flight was requested.
    pub fn oldest_inspection(&self) -> Option<u64> {
        self.in_flight.values().map(|(_, t)| *t).min()
    }

    /// Counts the inspections that are overdue.
    pub fn count_overdue(&mut self, now: u64) {
        let overdue = self.in_flight.values().filter(|(_, t)| now > t + SLOT);
        let overdue = overdue.count() as u64;
        self.coverage.hit_times(CoverPoint::Overdue, overdue);
    }

    /// The number of announced ids that are not removed.
    pub const fn present(&self) -> u64 {
        self.present
    }

    /// A cancelled read counts as failed.
    pub fn inspection_cancelled(&mut self, ticket: Ticket) {
        self.coverage.hit(CoverPoint::InspectionCancelled);
        if let Some((uid, _)) = self.in_flight.remove(&ticket) {
            self.failing.insert(uid.clone());
            self.failed.insert(&uid, ticket);
        }
    }

    /// Whether the pod's last inspection failed; without a pod, whether any failed or listed an id without
    /// a status.
    pub fn is_failing(&self, uid: Option<&PodUid>) -> bool {
        let all = [&self.failing, &self.status_failed];
        let any = || !self.unsettled.is_empty() || all.iter().any(|pods| !pods.is_empty());
        uid.map_or_else(any, |uid| {
            self.failing.contains(uid) || self.status_failed.contains(uid)
        })
    }

    /// Records the failed statuses of an inspection with complete lists. `read_all`: it read every
    /// status.
    pub fn statuses_failed(&mut self, uid: &PodUid, failed: &[FailedStatus], read_all: bool) {
        if !failed.is_empty() {
            self.status_failed.insert(uid.clone());
        } else if read_all {
            self.status_failed.remove(uid);
        }
    }

    /// Records the ids that a complete inspection of the pod, which has ended now, listed without a status.
    /// `read_all`: it read every status. If it listed none without one, those of the pod are settled, but for an id
    /// with the label of another pod: only its own status or a complete list settles that.
    pub fn unsettled(&mut self, oracle: &Oracle, now: u64, uid: &PodUid, read: &Inspection) {
        let is_found = |id: &Id| read.found.iter().any(|report| report.id == *id);
        let read_all = read.unchanged.is_empty() && read.unsettled.is_empty();
        self.unsettled.retain(|id, (listed_by, since)| {
            let is_labelled = oracle.object(id).is_none_or(|o| o.label == Some(o.pod));
            match is_labelled {
                true => !read_all || listed_by != uid,
                false => read.began.as_nanos() <= *since || !is_found(id),
            }
        });
        let listed = read.unsettled.iter().map(|row| row.id.clone());
        self.unsettled
            .extend(listed.map(|id| (id, (uid.clone(), now))));
    }

    /// Whether that inspection is requested and not cancelled.
    pub fn is_in_flight(&self, ticket: Ticket) -> bool {
        self.in_flight.contains_key(&ticket)
    }
}
