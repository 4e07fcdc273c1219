//! How reads end: what they saw of the true state, and what the reconciler gets.

use std::fmt::Write as _;

use pleg_core::{
    CallErrorKind, Inspection, Instant, Kind, KnownIds, List, Report, Rows, StatusRead,
};

use super::checks::{Input, stage_of};
use super::execution::Execution;
use super::scenario::{ObjectIndex, Stage, Step};
use super::state::{Read, What};
use crate::runtime::{error, format_reports, pod_read};

impl Execution<'_> {
    pub fn complete(
        &mut self,
        read: usize,
        (first, then): (usize, usize),
        false_state: Option<(ObjectIndex, Stage)>,
        not_found: Option<ObjectIndex>,
    ) {
        let read = self.state.reads.remove(read);
        let (sandboxes, containers) = (read.seen[first], read.seen[then]);
        match &read.what {
            What::Node { .. } => {
                let mut seen = containers;
                for object in 0..self.model.ids.len() {
                    if self.model.kind(object) == Kind::Sandbox {
                        seen[object] = sandboxes[object];
                    }
                }
                if let Some((object, stage)) = false_state {
                    self.state.checks.records[object].misreported = true;
                    seen[object] = stage;
                    self.log(|p| format!("a false list: {}", p.name(Step(object, stage))));
                }
                let rows = (0..self.model.ids.len())
                    .filter_map(|w| self.model.row(w, seen[w]))
                    .collect();
                self.end_list(&read, Ok(rows));
            }
            What::Pod { pod, held } => {
                // The lists show the first instant, the statuses the second.
                let model = self.model;
                let rows = |kind: Kind| {
                    let of_pod = model.of_pod(*pod).filter(|&o| model.kind(o) == kind);
                    of_pod.filter_map(|o| model.row(o, sandboxes[o])).collect()
                };
                if let Some(object) = not_found {
                    self.state.checks.records[object].not_found = true;
                    self.log(|p| format!("NotFound: {}", p.model.ids[object]));
                }
                let inspected = pod_read(held, rows, |id, _| {
                    let object = model.index_of(id).filter(|o| Some(*o) != not_found)?;
                    model.status(object, containers[object])
                });
                self.end_inspection(
                    &read,
                    inspected.finish(read.ticket, Instant::ORIGIN, Instant::ORIGIN),
                );
            }
            What::One { object } => {
                let report = self.model.status(*object, containers[*object]);
                self.end_status_read(&read, report.ok_or(CallErrorKind::NotFound));
            }
        }
    }

    pub fn fail(&mut self, read: usize, partial: bool) {
        self.state.left.failures -= 1;
        self.state.left.faults -= 1;
        let read = self.state.reads.remove(read);
        match &read.what {
            What::Node { .. } => self.end_list(&read, Err(CallErrorKind::Unavailable)),
            What::Pod { pod, .. } => {
                let seen = read.seen[read.seen.len() - 1];
                let found = self.model.of_pod(*pod).filter(|_| partial);
                let found = found
                    .filter_map(|w| self.model.status(w, seen[w]))
                    .collect();
                let mut inspection = Inspection::new(Some(error(CallErrorKind::Failed)));
                inspection.found = found;
                self.end_inspection(&read, inspection);
            }
            What::One { .. } => self.end_status_read(&read, Err(CallErrorKind::Failed)),
        }
    }

    fn end_list(&mut self, read: &Read, rows: Result<Vec<Report>, CallErrorKind>) {
        let rows = rows.map_err(error);
        self.log(|p| match &rows {
            Ok(rows) => format!(
                "the list begun {} ends: {}",
                p.when(read.began),
                format_reports(rows)
            ),
            Err(_) => format!("the list begun {} fails", p.when(read.began)),
        });
        let now = self.state.now;
        let known = match &read.what {
            What::Node { known } => known.clone(),
            _ => KnownIds::default(),
        };
        let handed = rows.as_ref().map_err(Clone::clone);
        let handed = handed.map(|rows| Rows::of(known, rows.iter().cloned()));
        let (began, ended) = (Instant::from_nanos(read.began), self.instant());
        let list = List {
            ticket: read.ticket,
            began,
            ended,
            rows: handed,
        };
        self.state.reconciler.handle_list(ended, list);
        if let Ok(rows) = &rows {
            self.state.checks.read(self.model, now, rows);
        }
        self.drain(Input::Read);
    }

    fn end_inspection(&mut self, read: &Read, inspection: Inspection) {
        let Inspection {
            found,
            gone,
            unsettled,
            unchanged,
            ..
        } = &inspection;
        self.log(|p| {
            let how = match inspection.error {
                Some(_) => "fails",
                None => "ends",
            };
            let gone: String = gone.iter().fold(String::new(), |mut out, id| {
                let _ = write!(out, ", {id} gone");
                out
            });
            let unsettled: String = unsettled.iter().fold(String::new(), |mut out, row| {
                let _ = write!(out, ", {} {:?} without a status", row.id, row.shown);
                out
            });
            format!(
                "the inspection begun {} {how}: {}{gone}{unsettled}",
                p.when(read.began),
                format_reports(found)
            )
        });
        let unchanged = unchanged
            .iter()
            .filter_map(|(id, shown)| self.model.row(self.model.index_of(id)?, stage_of(*shown)));
        let shown: Vec<Report> = found
            .iter()
            .chain(unsettled)
            .cloned()
            .chain(unchanged)
            .collect();
        self.state.checks.read(self.model, self.state.now, &shown);
        self.state.checks.statuses_read(self.model, found);
        if let What::Pod { pod, .. } = read.what {
            self.state.checks.inspected[pod] = Some(read.began);
        }
        let (began, ended) = (Instant::from_nanos(read.began), self.instant());
        let inspection = Inspection {
            ticket: read.ticket,
            began,
            ended,
            ..inspection
        };
        self.state.reconciler.handle_inspection(ended, inspection);
        self.drain(Input::Read);
    }

    fn end_status_read(&mut self, read: &Read, report: Result<Report, CallErrorKind>) {
        let report = report.map_err(error);
        self.log(|_| format!("the status is read: {}", format_reports(report.iter())));
        if let Ok(report) = &report {
            let now = self.state.now;
            self.state
                .checks
                .read(self.model, now, std::slice::from_ref(report));
            let report = std::slice::from_ref(report);
            self.state.checks.statuses_read(self.model, report);
        }
        let (began, ended) = (Instant::from_nanos(read.began), self.instant());
        let reading = StatusRead {
            ticket: read.ticket,
            began,
            ended,
            report,
        };
        self.state.reconciler.handle_status_read(ended, reading);
        self.drain(Input::Read);
    }
}
