//! Records what reads show, and who waits for them.

use pleg_core::{CallError, Causes, Inspection, Instant, PodUid, Report, Ticket, WaiterId};
use pleg_proof::runtime::format_reports;

use super::{By, Checks, Sighting, Waiter};
use crate::harness::Violation;
use crate::node::{Node, State};
use crate::reports::{self, MS, instant};

impl Checks {
    pub fn listed(
        &mut self,
        ticket: Ticket,
        began: u64,
        ended: u64,
        rows: &Result<Vec<Report>, CallError>,
    ) {
        self.note(ended, || match rows {
            Ok(rows) => format!("  list of {began}: {}", format_reports(rows)),
            Err(error) => format!("  list of {began}: {error}"),
        });
        self.liveness.list_ended(ended, began, rows.is_ok());
        let Ok(rows) = rows else {
            self.failed_lists.push(ticket);
            return;
        };
        self.lists.push((ticket, began));
        self.plausible.listed(began);
        for row in rows {
            self.read(By::List, began, row);
        }
    }

    pub fn inspected(&mut self, node: &Node, uid: &PodUid, inspection: &Inspection) {
        let Inspection {
            ticket,
            found,
            gone,
            unsettled,
            unchanged,
            ..
        } = inspection;
        let ticket = *ticket;
        let ms = |at: Instant| at.as_nanos() / MS;
        let (began, ended) = (ms(inspection.began), ms(inspection.ended));
        let failed = inspection.error.is_some();
        self.note(ended, || {
            let found = format_reports(found);
            let failed = if failed { ", failed" } else { "" };
            format!("  inspection of {uid} of {began}: {found}, gone {gone:?}{failed}")
        });
        self.status_reads.insert(instant(began));
        for report in found.iter().chain(unsettled) {
            self.read(By::Inspection, began, report);
        }
        for (id, shown) in unchanged {
            let row = node
                .object(id)
                .and_then(|object| reports::row(object, began));
            if let Some(mut row) = row {
                row.shown = *shown;
                self.read(By::List, began, &row);
            }
        }
        self.in_flight.remove(&ticket);
        self.liveness.inspection_ended(ended, uid);
        if failed {
            self.failed.entry(uid.clone()).or_default().push(ticket);
        } else {
            let all = self.inspections.entry(uid.clone()).or_default();
            all.push((ticket, began));
        }
    }

    pub fn status_read(&mut self, began: u64, report: &Report) {
        self.status_reads.insert(instant(began));
        self.read(By::Inspection, began, report);
    }

    fn read(&mut self, by: By, began: u64, report: &Report) {
        self.name(report);
        match State::from_reported(report.shown) {
            Some(state) => {
                let sightings = self.sightings.entry(report.id.clone()).or_default();
                sightings.push(Sighting { by, began, state });
            }
            None => {
                let unknown_since = self.unknown_since.entry(report.id.clone()).or_default();
                *unknown_since = began.max(*unknown_since);
            }
        }
    }

    pub fn asked(&mut self, waiter: WaiterId, uid: &PodUid, after: u64, asked: u64) {
        let (uid, number) = (uid.clone(), self.number);
        let asked = Waiter {
            uid,
            after,
            asked,
            number,
        };
        self.waiting.insert(waiter, asked);
        if self.unlabelled {
            // The answer may need a complete list.
            self.liveness.list_wanted();
        }
    }

    pub fn asked_for_list(&mut self, waiter: WaiterId) {
        self.waiting_for_list.insert(waiter, self.number);
        self.liveness.list_wanted();
    }

    pub fn cancelled(&mut self, waiter: WaiterId) {
        self.waiting.remove(&waiter);
        self.waiting_for_list.remove(&waiter);
    }

    pub(super) fn inspection_asked(
        &mut self,
        now: u64,
        ticket: Ticket,
        uid: &PodUid,
        causes: Causes,
    ) -> Result<(), Violation> {
        super::hold!(
            !self.in_flight.values().any(|(pod, _)| pod == uid),
            "invariant-11-one-per-pod",
            "{uid} is inspected while it is inspected"
        );
        self.in_flight.insert(ticket, (uid.clone(), now));
        let (slots, retries) = (self.settings.inspections, self.settings.retries);
        let in_slot = self
            .in_flight
            .values()
            .filter(|(_, since)| since + 250 > now);
        super::hold!(
            in_slot.count() <= slots + retries,
            "invariant-11-slots",
            "{:?}",
            self.in_flight
        );
        let most = slots + retries + self.settings.overdue_max;
        super::hold!(
            self.in_flight.len() <= most,
            "invariant-11-slots",
            "{:?}",
            self.in_flight
        );
        self.liveness.inspection_asked(now, uid, causes)
    }
}
