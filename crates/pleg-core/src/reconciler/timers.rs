//! Timers. A timer whose reason no longer exists does nothing when it fires.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Output, Reconciler};
use crate::schedule::cause::Cause;
use crate::schedule::scheduler::doubled;
use crate::state::order::Position;
use crate::state::pod::all_ended;
use crate::state::reports::ExpectedEvent;
use crate::types::error::{CallError, CallErrorKind};
use crate::types::ids::{Id, PodUid};
use crate::types::reads::Ticket;
use crate::types::time::Instant;

/// How long an id recorded from an event may stay unconfirmed.
pub(super) const PROVISIONAL: Duration = Duration::from_secs(1);
/// When the status of a non-zero exit is read again (containerd before 2.3 learns of an OOM kill
/// after it has sent the event).
pub(super) const EXIT_REASON: Duration = Duration::from_secs(2);
/// When a status call that is not part of an inspection is slow.
pub(super) const STATUS_SLOW: Duration = Duration::from_secs(1);
/// When to try again if too many status calls are in flight.
const EXIT_READ_RETRY: Duration = Duration::from_millis(100);
/// How long terminal records outlive their pod.
pub(super) const TERMINALS: Duration = Duration::from_secs(600);
/// When an ended pod is inspected, in seconds since its end (CRI-O never reports the removal of a
/// sandbox).
const ENDED_POD_READS: [u64; 6] = [1, 3, 7, 15, 31, 60];

/// What a timer does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Timer {
    Provisional(Id),
    ExitReason(Id),
    Pending(Id, ExpectedEvent),
    RelistForPending(Id, ExpectedEvent),
    Overdue(Ticket),
    Retry(PodUid),
    Recheck(PodUid),
    SecondRead(PodUid),
    EndedPod(PodUid, Instant),
    Waiter(PodUid),
    ForgetTerminals(PodUid),
    Probe,
    StatusSlow(Ticket),
}

/// All timers, earliest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Timers(BTreeSet<(Instant, Timer)>);

impl Timers {
    pub(super) fn set(&mut self, at: Instant, timer: Timer) {
        self.0.insert((at, timer));
    }

    pub(super) fn cancel(&mut self, at: Instant, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|(at, _)| *at)
    }

    /// A timer that is due, and since when.
    fn pop(&mut self, now: Instant) -> Option<(Instant, Timer)> {
        self.0.first().filter(|(at, _)| *at <= now)?;
        self.0.pop_first()
    }
}

impl Reconciler {
    pub(super) fn run_timers(&mut self, now: Instant) {
        while let Some((due, timer)) = self.timers.pop(now) {
            match timer {
                Timer::Provisional(id) => self.look_at_provisional(now, &id),
                Timer::ExitReason(id) => self.read_exit_reason(now, &id),
                Timer::Pending(id, event) => self.decide_pending(now, id, event),
                Timer::RelistForPending(id, event) => self.relist_for_pending(now, &id, event),
                Timer::Overdue(ticket) => self.give_back_slot(now, ticket),
                Timer::Retry(uid) => {
                    if self.scheduler.is_to_be_retried(&uid, now) {
                        self.request_inspection(now, &uid, Cause::Retry);
                    }
                }
                Timer::Recheck(uid) => self.recheck(now, &uid),
                Timer::SecondRead(uid) => self.read_second_time(now, &uid),
                Timer::EndedPod(uid, since) => self.inspect_ended_pod(now, &uid, since),
                Timer::Waiter(uid) => {
                    if self.waiters.of(&uid).iter().any(|w| w.after <= now) {
                        self.read_for_waiters(now, &uid);
                    }
                }
                Timer::ForgetTerminals(uid) => self.forget_terminals(now, uid),
                Timer::Probe => self.start_probe(now, due),
                Timer::StatusSlow(ticket) => self.status_is_slow(now, ticket),
            }
        }
    }

    fn look_at_provisional(&mut self, now: Instant, id: &Id) {
        let Some(record) = self.records.get(id).filter(|r| r.provisional) else {
            return;
        };
        if let Some(uid) = record.identity.pod.clone() {
            self.request_inspection(now, &uid, Cause::Provisional);
        }
    }

    fn read_exit_reason(&mut self, now: Instant, id: &Id) {
        let Some(record) = self.records.get(id) else {
            return;
        };
        let settled = record.position() != Some(Position::Exited)
            || record.exit_code() == Some(0)
            || &*record.reason() == crate::state::details::OOM_KILLED;
        if settled {
            return;
        }
        let kind = record.kind();
        // Many containers may fail at once; the number of concurrent status calls is bounded. A
        // status call about this id that is in flight began before the reason had time to arrive.
        let is_exit_read = |ticket: &&Ticket| !self.probe.is_status_call(**ticket);
        let exit_reads = self.status_reads.keys().filter(is_exit_read).count();
        let is_in_flight = self.status_reads.values().any(|(other, _)| other == id);
        if is_in_flight || exit_reads >= self.settings.inspections {
            self.timers
                .set(now.after(EXIT_READ_RETRY), Timer::ExitReason(id.clone()));
            return;
        }
        self.counters.exit_reads += 1;
        self.read_status(now, id, kind);
    }

    fn give_back_slot(&mut self, now: Instant, ticket: Ticket) {
        if let Some(oldest) = self.scheduler.overdue(ticket) {
            self.counters.inspections_cancelled += 1;
            self.out.push_back(Output::Cancel { ticket: oldest });
            let error = CallError::new(
                "Inspect",
                CallErrorKind::Cancelled,
                "given up: too many inspections do not answer",
            );
            self.fail_inspection(now, oldest, error);
        }
    }

    /// Lists and status calls of the pod's last read disagree: it is read again. Its waiters are
    /// answered also if the pod was removed since.
    fn read_second_time(&mut self, now: Instant, uid: &PodUid) {
        let open = self
            .pods
            .get(uid)
            .is_some_and(|pod| pod.first_read.is_some());
        if open || self.waiters.of(uid).iter().any(|w| w.after <= now) {
            self.request_inspection(now, uid, Cause::Unsettled);
        }
    }

    fn recheck(&mut self, now: Instant, uid: &PodUid) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        pod.recheck_due = pod.recheck_due.filter(|&due| due > now);
        let skipped = std::mem::take(&mut pod.recheck_skipped).then_some(Cause::Incomplete);
        if let Some(cause) = self.recheck_cause(uid).or(skipped) {
            self.request_inspection(now, uid, cause);
        }
    }

    /// Whether an id of the pod stays unknown or contradicted, so that the pod must be inspected
    /// again.
    pub(super) fn recheck_cause(&self, uid: &PodUid) -> Option<Cause> {
        let pod = self.pods.get(uid)?;
        let members = || pod.members.iter().filter_map(|id| self.records.get(id));
        if pod.is_disputed() {
            Some(Cause::Contradiction)
        } else if members().any(|r| r.is_unknown()) {
            Some(Cause::Unknown)
        } else {
            None
        }
    }

    /// An id of the pod stays unknown or contradicted: schedules an inspection with backoff, unless
    /// one is scheduled.
    pub(super) fn recheck_later(&mut self, now: Instant, uid: &PodUid) {
        let (first, most) = self.scheduler.backoff();
        if let Some(pod) = self.pods.get_mut(uid)
            && pod.recheck_due.is_none()
        {
            let due = now.after(doubled(first, pod.rechecks, most));
            pod.rechecks = pod.rechecks.saturating_add(1);
            pod.recheck_due = Some(due);
            self.timers.set(due, Timer::Recheck(uid.clone()));
        }
    }

    /// Watches a pod that has ended while this stream may not report its removal.
    pub(super) fn watch_ended_pod(&mut self, now: Instant, uid: &PodUid) {
        let Some(pod) = self.pods.get_mut(uid) else {
            return;
        };
        let records = pod.members.iter().filter_map(|id| self.records.get(id));
        let ended = self.stream.hides_removals() && all_ended(records.map(|r| &**r));
        if !ended {
            pod.ended_since = None;
        } else if pod.ended_since.is_none() {
            pod.ended_since = Some(now);
            let first = now.after(Duration::from_secs(ENDED_POD_READS[0]));
            self.timers.set(first, Timer::EndedPod(uid.clone(), now));
        }
    }

    fn inspect_ended_pod(&mut self, now: Instant, uid: &PodUid, since: Instant) {
        let current = self
            .pods
            .get(uid)
            .is_some_and(|p| p.ended_since == Some(since));
        if !current || !self.stream.hides_removals() {
            // A later stream may not report removals either; then the watch starts again.
            if let Some(pod) = self.pods.get_mut(uid).filter(|_| current) {
                pod.ended_since = None;
            }
            return;
        }
        self.request_inspection(now, uid, Cause::Ended);
        let next = ENDED_POD_READS
            .iter()
            .map(|&s| since.after(Duration::from_secs(s)))
            .find(|&t| t > now);
        if let Some(next) = next {
            self.timers.set(next, Timer::EndedPod(uid.clone(), since));
        }
    }

    fn forget_terminals(&mut self, now: Instant, uid: PodUid) {
        let back = self.pods.get(&uid).is_some_and(|p| !p.members.is_empty());
        if !back && self.terminals.is_expired(&uid, now, TERMINALS) && self.terminals.forget(&uid) {
            self.out.push_back(Output::Terminals {
                uid,
                records: [].into(),
            });
        }
    }
}
