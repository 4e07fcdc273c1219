//! How reads end: what they saw of the truth, and what of that the machine is given.

use std::fmt::Write as _;

use pleg_core::{
    CallError, CallErrorKind, Id, Inspection, Instant, Kind, KnownIds, List, Reading, Report, Rows,
};

use super::book::By;
use super::play::{Play, Read, What};
use super::script::{Stage, Step, Who};

impl Play<'_> {
    pub fn land(&mut self, read: usize, first: usize, then: usize, lie: Option<(Who, Stage)>) {
        let read = self.state.reads.remove(read);
        let (sandboxes, containers) = (read.seen[first], read.seen[then]);
        match &read.what {
            What::Node { .. } => {
                let mut seen = containers;
                for who in 0..self.cast.ids.len() {
                    if self.cast.kind(who) == Kind::Sandbox {
                        seen[who] = sandboxes[who];
                    }
                }
                if let Some((who, as_)) = lie {
                    self.state.book.noted[who].lied = true;
                    seen[who] = as_;
                    self.say(|p| format!("a lying list: {}", p.name(Step(who, as_))));
                }
                let rows = (0..self.cast.ids.len())
                    .filter_map(|w| self.cast.row(w, seen[w]))
                    .collect();
                self.end_list(&read, Ok(rows));
            }
            What::Pod { pod, held } => {
                // Lists first, then every status; of who is held also if no list shows it.
                let (mut found, mut gone, mut denied) = (Vec::new(), Vec::new(), Vec::new());
                for who in self.cast.of_pod(*pod) {
                    let id = &self.cast.ids[who];
                    let listed = self.cast.row(who, sandboxes[who]);
                    let is_held = held.iter().any(|(h, _)| h == id);
                    match (self.cast.status(who, containers[who]), listed) {
                        (Some(mut report), Some(row)) => {
                            report.identity.sandbox = row.identity.sandbox;
                            found.push(report);
                        }
                        (Some(report), None) if is_held => found.push(report),
                        (None, None) if is_held => gone.push(id.clone()),
                        (None, Some(row)) => denied.push(row),
                        _ => {}
                    }
                }
                self.end_inspection(&read, (found, gone, denied), None);
            }
            What::One { who } => {
                let report = self.cast.status(*who, containers[*who]);
                self.end_reading(&read, report.ok_or(CallErrorKind::NotFound));
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
                let found = self.cast.of_pod(*pod).filter(|_| partial);
                let found = found.filter_map(|w| self.cast.status(w, seen[w])).collect();
                let read_so_far = (found, Vec::new(), Vec::new());
                self.end_inspection(&read, read_so_far, Some(CallErrorKind::Failed));
            }
            What::One { .. } => self.end_reading(&read, Err(CallErrorKind::Failed)),
        }
    }

    fn end_list(&mut self, read: &Read, rows: Result<Vec<Report>, CallErrorKind>) {
        let rows = rows.map_err(error);
        self.say(|p| match &rows {
            Ok(rows) => format!(
                "the list begun {} ends: {}",
                p.when(read.began),
                brief(rows)
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
        self.state.machine.handle_list(ended, list);
        if let Ok(rows) = &rows {
            self.state.book.read(self.cast, now, rows);
        }
        self.drain(By::Read);
    }

    fn end_inspection(
        &mut self,
        read: &Read,
        (found, gone, denied): (Vec<Report>, Vec<Id>, Vec<Report>),
        failure: Option<CallErrorKind>,
    ) {
        self.say(|p| {
            let how = match failure {
                Some(_) => "fails",
                None => "ends",
            };
            let gone: String = gone.iter().fold(String::new(), |mut out, id| {
                let _ = write!(out, ", {id} gone");
                out
            });
            let denied: String = denied.iter().fold(String::new(), |mut out, row| {
                let _ = write!(out, ", {} {:?} without a status", row.id, row.shown);
                out
            });
            format!(
                "the inspection begun {} {how}: {}{gone}{denied}",
                p.when(read.began),
                brief(&found)
            )
        });
        let shown: Vec<Report> = found.iter().chain(&denied).cloned().collect();
        self.state.book.read(self.cast, self.state.now, &shown);
        if let What::Pod { pod, .. } = read.what {
            self.state.book.inspected[pod] = Some(read.began);
        }
        let (began, ended) = (Instant::from_nanos(read.began), self.instant());
        let inspection = Inspection {
            ticket: read.ticket,
            began,
            ended,
            found,
            gone,
            denied,
            error: failure.map(error),
        };
        self.state.machine.handle_inspection(ended, inspection);
        self.drain(By::Read);
    }

    fn end_reading(&mut self, read: &Read, report: Result<Report, CallErrorKind>) {
        let report = report.map_err(error);
        self.say(|_| format!("the status is read: {}", brief(report.iter())));
        if let Ok(report) = &report {
            let now = self.state.now;
            self.state
                .book
                .read(self.cast, now, std::slice::from_ref(report));
        }
        let (began, ended) = (Instant::from_nanos(read.began), self.instant());
        let reading = Reading {
            ticket: read.ticket,
            began,
            ended,
            report,
        };
        self.state.machine.handle_reading(ended, reading);
        self.drain(By::Read);
    }
}

/// A call that failed so.
pub fn error(kind: CallErrorKind) -> CallError {
    CallError::new("Call", kind, "")
}

/// Who is shown, and how.
pub fn brief<'a>(reports: impl IntoIterator<Item = &'a Report>) -> String {
    let shown: Vec<String> = reports
        .into_iter()
        .map(|r| format!("{} {:?}", r.id, r.shown))
        .collect();
    if shown.is_empty() {
        "nothing".into()
    } else {
        shown.join(", ")
    }
}
