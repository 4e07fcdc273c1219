//! Requests to the read side: lists, inspections and status calls.

use super::timers::{STATUS_SLOW, Timer};
use super::{Output, Reconciler};
use crate::schedule::cause::{Cause, Causes};
use crate::state::record::Record;
use crate::types::ids::{Id, Kind, PodUid};
use crate::types::reads::{HeldId, Ticket};
use crate::types::time::Instant;

impl Reconciler {
    /// Requests the reads that are due and for which a slot is free.
    pub(super) fn request_reads(&mut self, now: Instant) {
        let ticket = Ticket(self.number + 1);
        if let Some(due) = self.relist.start(ticket, now) {
            self.number += 1;
            self.counters.lists += 1;
            self.out.push_back(Output::List {
                ticket: due.ticket,
                deadline: due.deadline,
                known: self.records.known(),
            });
        }
        while self.scheduler.can_start() {
            let ticket = self.next_ticket();
            let Some(start) = self.scheduler.start(ticket, now) else {
                break;
            };
            self.timers.set(
                now.after(self.scheduler.slot_time()),
                Timer::Overdue(start.ticket),
            );
            for cause in start.causes.iter() {
                self.counters.inspections_by_cause[cause] += 1;
            }
            self.counters.inspections += 1;
            let held = self.held(now, &start.uid, start.causes);
            for held in held.iter().filter(|held| held.owed) {
                self.records.attempted(&held.id, now);
            }
            self.out.push_back(Output::Inspect {
                ticket: start.ticket,
                held,
                uid: start.uid,
                causes: start.causes,
                deadline: self.settings.inspection_deadline,
            });
        }
    }

    /// Requests an inspection of the pod.
    pub(super) fn request_inspection(&mut self, now: Instant, uid: &PodUid, cause: Cause) {
        if let Some(retry_at) = self.scheduler.request_inspection(uid, cause) {
            self.timers
                .set(retry_at.max(now), Timer::Retry(uid.clone()));
        }
    }

    pub(super) fn next_ticket(&mut self) -> Ticket {
        self.number += 1;
        Ticket(self.number)
    }

    /// Requests the status of one id.
    pub(super) fn read_status(&mut self, now: Instant, id: &Id, kind: Kind) -> Ticket {
        let ticket = self.next_ticket();
        self.status_reads.insert(ticket, (id.clone(), now));
        self.timers
            .set(now.after(STATUS_SLOW), Timer::StatusSlow(ticket));
        self.records.attempted(id, now);
        self.out.push_back(Output::Read {
            ticket,
            id: id.clone(),
            kind,
            deadline: self.settings.inspection_deadline,
        });
        ticket
    }

    /// The ids of a pod that is to be inspected: all that are published. If every cause needs only the
    /// state, only owed statuses are read; otherwise every status. A failed status is read again when
    /// its retry is due, or for a waiter that needs details.
    pub(super) fn held(&self, now: Instant, uid: &PodUid, causes: Causes) -> Vec<HeldId> {
        let Some(pod) = self.pods.get(uid) else {
            return Vec::new();
        };
        let state_only = causes.iter().all(Cause::asks_for_state);
        let repeats =
            causes.iter().any(Cause::asks_for_details) || self.scheduler.may_be_retried(uid, now);
        let open = pod.first_read.as_ref().map(|first| &first.open);
        let held = |(id, record): (&Id, &Record)| {
            let asked_again = pod.contradicted.contains(id)
                || pod.reappeared.contains_key(id)
                || open.is_some_and(|open| open.contains(id));
            let owed = match record.error.is_some() {
                // Its list row would identify it, but without a status call only the state of the row is read.
                true => repeats || record.is_unidentified(),
                false => !state_only || asked_again || record.owes_status(),
            };
            HeldId {
                id: id.clone(),
                kind: record.kind(),
                shown: record.shown(),
                owed,
            }
        };
        let mut ids: Vec<HeldId> = pod.shown(&self.records).map(held).collect();
        ids.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        ids
    }
}
