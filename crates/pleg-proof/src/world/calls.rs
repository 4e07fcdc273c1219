//! What the machine wants done: calls are issued, take their time, fail, or are answered from the
//! truth.

use std::time::Duration;

use pleg_core::{
    CallError, CallErrorKind, Details, HeldId, Id, Inspection, Instant, KnownIds, List, Output,
    PodRead, PodUid, Report, ReportedState, Rows, StatusRead, Ticket, Version,
};

use super::node::Met;
use super::{Call, Todo, World};
use crate::checks::Input;
use crate::faults::Fault;
use crate::laws::{self, Lawful};
use crate::runtime::{self, pod_of};
use crate::tally::Path;
use crate::weather::{MS, SECOND};

/// Faults of one kind of call.
struct Faults {
    fails: Fault,
    hangs: Option<Fault>,
    /// It hangs already, for a reason of its own.
    hung: Option<Fault>,
    longest: u64,
}

impl World {
    /// Does one thing that the machine wants done.
    pub(super) fn perform(&mut self, output: Output) -> Lawful {
        match output {
            Output::List {
                ticket,
                deadline,
                known,
            } => self.list(ticket, deadline, known),
            Output::Inspect {
                ticket,
                uid,
                held,
                causes,
                deadline,
            } => {
                self.chain += 1;
                let chain = self.chain;
                laws::NO_CHAIN.holds(chain <= 2 * self.plan.pods as u64 + 2, || {
                    format!("{chain} inspections follow one another")
                })?;
                let asked = (&uid, ticket);
                self.checks
                    .inspection_asked(self.now, asked, causes, &self.duties)?;
                let place = pod_of(&uid).map(|pod| self.place(pod));
                let hung = self.node.is_hung(self.now, place);
                let faults = Faults {
                    fails: Fault::InspectionFails,
                    hangs: Some(Fault::InspectionHangs),
                    hung: hung.then_some(Fault::HungPod),
                    longest: 4 * SECOND,
                };
                let call = self.call(ticket, deadline, &faults);
                self.at(call.ended, Todo::Inspect(call, Box::new((uid, held))));
                Ok(())
            }
            Output::Read {
                ticket,
                id,
                deadline,
                ..
            } => {
                let place = self.truth.life(&id).map(|l| self.place(l.pod));
                let hung = self.node.is_hung(self.now, place);
                let faults = Faults {
                    fails: Fault::ReadingFails,
                    hangs: None,
                    hung: hung.then_some(Fault::HungPod),
                    longest: 2 * SECOND,
                };
                let call = self.call(ticket, deadline, &faults);
                self.at(call.ended, Todo::Read(call, id));
                Ok(())
            }
            Output::Version { ticket, deadline } => {
                let faults = Faults {
                    fails: Fault::ReadingFails,
                    hangs: None,
                    hung: None,
                    longest: SECOND,
                };
                let call = self.call(ticket, deadline, &faults);
                self.at(call.ended, Todo::Version(call));
                Ok(())
            }
            Output::Cancel { ticket } => {
                self.checks.given_up(ticket);
                Ok(())
            }
            Output::Resubscribe => {
                self.checks.tally.path(Path::Renewed);
                if let Some(stream) = self.stream {
                    self.at(self.now, Todo::Renew(stream));
                }
                Ok(())
            }
            Output::Announce(event) => {
                let output = Output::Announce(event.clone());
                self.checks.output(&self.truth, self.now, &output)?;
                let (present, pods) = (self.checks.present(), self.pods_and_names());
                self.subscribers.announce(&event, present, pods)?;
                self.announced(&event);
                Ok(())
            }
            Output::Answer { waiter, answer } => {
                let output = Output::Answer { waiter, answer };
                self.checks.output(&self.truth, self.now, &output)?;
                match (output, self.worker_of(waiter)) {
                    (Output::Answer { answer, .. }, Some(pod)) => self.worker_answered(pod, answer),
                    _ => Ok(()),
                }
            }
            other => self.checks.output(&self.truth, self.now, &other),
        }
    }

    fn list(&mut self, ticket: Ticket, deadline: Duration, known: KnownIds) -> Lawful {
        if self.signs.last_list_failed && self.checks_outage_over() {
            self.checks.tally.path(Path::OutageOver);
        }
        self.duties.list_asked(self.now, ticket)?;
        self.signs.list_under_way = Some(self.now);
        let hung = self.node.lists_out(self.now);
        let faults = Faults {
            fails: Fault::ListFails,
            hangs: Some(Fault::ListHangs),
            hung: hung.then_some(Fault::ListOutage),
            longest: 6 * SECOND,
        };
        let call = self.call(ticket, deadline, &faults);
        self.at(call.ended, Todo::List(call, known));
        Ok(())
    }

    /// A list is asked for sooner than the period after the last one, which failed.
    fn checks_outage_over(&self) -> bool {
        self.duties.since_last(self.now) < SECOND
    }

    /// A call is issued now: when it ends, and how.
    fn call(&mut self, ticket: Ticket, deadline: Duration, faults: &Faults) -> Call {
        let began = self.now + self.dice.calls.between(0, MS);
        let slow = self.comes(Fault::SlowRead, |d| &mut d.calls);
        let mut ended = began + runtime::duration(&mut self.dice.calls, slow, faults.longest);
        let last = began + deadline.as_nanos() as u64;
        let mut fails = None;
        match self.node.met(self.now) {
            Met::Refused => {
                ended = began + self.dice.calls.between(0, MS);
                fails = Some(CallErrorKind::Unavailable);
            }
            Met::Later(served) => ended = ended.max(served),
            Met::Served => {}
        }
        if let Some(hung) = faults.hung {
            self.checks.tally.fault(hung);
            ended = last;
        } else if let Some(hangs) = faults.hangs
            && self.comes(hangs, |d| &mut d.calls)
        {
            ended = last;
        } else if self.comes(faults.fails, |d| &mut d.calls) {
            ended = began + self.dice.calls.between(0, 20 * MS);
            let kinds = [
                CallErrorKind::Unavailable,
                CallErrorKind::DeadlineExceeded,
                CallErrorKind::TooLarge,
                CallErrorKind::Failed,
            ];
            fails = fails.or(Some(self.dice.calls.pick(&kinds)));
        }
        if ended >= last {
            ended = last;
            fails = fails.or(Some(CallErrorKind::DeadlineExceeded));
        }
        Call {
            ticket,
            began,
            ended,
            fails,
        }
    }

    /// How a call that has ended failed.
    fn failed(&self, call: Call) -> Option<CallError> {
        // The runtime went away under it.
        let gone = self.node.restarted >= call.began && self.node.restarted > 0;
        let kind = call.fails.or(gone.then_some(CallErrorKind::Unavailable));
        kind.map(error)
    }

    pub(super) fn listed(&mut self, call: Call, known: KnownIds) -> Lawful {
        self.checks.tally.lists += 1;
        let rows = match self.failed(call) {
            Some(error) => Err(error),
            None => {
                let sandboxes = self.dice.calls.between(call.began, call.ended);
                let containers = self.dice.calls.between(sandboxes, call.ended);
                let mut rows = runtime::list(&self.truth, sandboxes, containers);
                self.count_lingering(&rows, call.began);
                self.blur(&mut rows);
                Ok(rows)
            }
        };
        let (ticket, began) = (call.ticket, Instant::from_nanos(call.began));
        self.checks.history.note(self.now, || {
            format!("list {} begun {began:?}: {}", ticket.get(), brief(&rows))
        });
        self.checks.handed(Input::List);
        let any_known = u64::from(!known.is_empty());
        self.checks.tally.paths(Path::KnownIds, any_known);
        let handed = self.hand_over(&rows, known);
        let list = List {
            ticket,
            began,
            ended: Instant::from_nanos(call.ended),
            rows: handed,
        };
        let failed = list.rows.is_err();
        self.machine.handle_list(self.instant(), list);
        self.signs.list_under_way = None;
        self.duties.list_ended(self.now, failed);
        self.signs.last_list_failed = failed;
        self.signs.silent &= failed;
        if let (Ok(rows), false) = (&rows, failed) {
            self.checks.list_read(&self.truth, began, rows);
            self.losses.listed(call.began, self.now, rows);
            self.signs.last_list = self.signs.last_list.max(Some(call.began));
        }
        self.drain()
    }

    /// What the machine is handed of a list: of known ids the state alone. An answer may be lost on
    /// its way.
    fn hand_over(
        &mut self,
        rows: &Result<Vec<Report>, CallError>,
        known: KnownIds,
    ) -> Result<Rows, CallError> {
        let rows = rows.as_ref().map_err(Clone::clone)?;
        let rows = Rows::of(known, rows.iter().cloned());
        if self.comes(Fault::ListLost, |d| &mut d.calls) {
            return Err(error(CallErrorKind::Cancelled));
        }
        Ok(rows)
    }

    fn count_lingering(&mut self, rows: &[Report], began: u64) {
        if !self.truth.lingering {
            return;
        }
        let gone = |r: &&Report| self.truth.life(&r.id).is_some_and(|l| !l.exists(began));
        let lingering = rows.iter().filter(gone).count() as u64;
        self.checks.tally.faults[Fault::Lingers as usize] += lingering;
    }

    fn blur(&mut self, reports: &mut [Report]) {
        if self.weather.percent(Fault::UnknownInRead) == 0 {
            return;
        }
        for report in reports {
            if self.comes(Fault::UnknownInRead, |d| &mut d.calls) {
                report.shown = ReportedState::Unknown;
                report.details = Details::none(report.identity.kind);
            }
        }
    }

    pub(super) fn inspected(&mut self, call: Call, uid: &PodUid, held: &[HeldId]) -> Lawful {
        self.checks.tally.inspections += 1;
        let (ticket, began) = (call.ticket, Instant::from_nanos(call.began));
        let ended = Instant::from_nanos(call.ended);
        let mut inspection = match self.failed(call) {
            Some(failure) => Inspection {
                ticket,
                began,
                ended,
                ..Inspection::new(Some(failure))
            },
            None => self.inspect(call, uid, held).finish(ticket, began, ended),
        };
        self.blur(&mut inspection.found);
        if inspection.error.is_none() && self.comes(Fault::InspectionPartial, |d| &mut d.calls) {
            let dice = &mut self.dice.calls;
            inspection.found.retain(|_| dice.percent(50));
            inspection = Inspection {
                ticket,
                began,
                ended,
                found: inspection.found,
                ..Inspection::new(Some(error(CallErrorKind::Failed)))
            };
        }
        let failed = inspection.error.is_some();
        let Inspection {
            found,
            gone,
            unsettled,
            unchanged,
            failed: statuses,
            ..
        } = &inspection;
        self.checks.history.note(self.now, || {
            let what = brief(&Ok(found.clone()));
            let number = ticket.get();
            format!(
                "inspection {number} of {uid} begun {began:?}: {what} gone {gone:?} unchanged \
                 {unchanged:?} failed {statuses:?} {:?}",
                inspection.error
            )
        });
        let asked = (uid, ticket);
        let rows = unsettled
            .iter()
            .chain(statuses.iter().filter_map(|s| s.row.as_ref()));
        let unchanged = unchanged.iter().filter_map(|(id, shown)| {
            let mut row = runtime::listed(self.truth.life(id)?, call.began)?;
            row.shown = *shown;
            Some(row)
        });
        let shown: Vec<Report> = found.iter().chain(rows).cloned().chain(unchanged).collect();
        let given_up = !self.checks.is_under_way(ticket);
        self.signs.silent &= given_up || failed && found.is_empty();
        self.checks
            .inspected(&self.truth, asked, began, &shown, failed);
        if !failed && !given_up {
            let read_all = inspection.unchanged.is_empty();
            self.checks.unsettled(uid, !unsettled.is_empty(), read_all);
            self.checks.statuses_failed(uid, statuses, read_all);
        }
        self.losses.read(call.began, self.now, &shown, !failed);
        self.checks.handed(Input::Inspection);
        self.machine.handle_inspection(self.instant(), inspection);
        self.drain()
    }

    /// The answers to the calls of an inspection.
    fn inspect(&mut self, call: Call, uid: &PodUid, held: &[HeldId]) -> PodRead {
        let fails = self.weather.percent(Fault::StatusFails);
        let percent = self.weather.percent(Fault::StatusNotFound);
        let (dice, tally, node) = (&mut self.dice.kubelet, &mut self.checks.tally, &self.node);
        let mut not_found = Vec::new();
        let mut hides = |id: &Id, listed: bool| {
            if fails > 0 && dice.percent(fails) {
                tally.fault(Fault::StatusFails);
                return Some(error(
                    dice.pick(&[CallErrorKind::DeadlineExceeded, CallErrorKind::Failed]),
                ));
            }
            if !listed {
                return None;
            }
            let hidden = node.is_hidden(call.ended, id);
            let hides = hidden || percent > 0 && dice.percent(percent);
            if hides {
                tally.fault([Fault::StatusNotFound, Fault::StatusHidden][usize::from(hidden)]);
                not_found.push(id.clone());
            }
            hides.then(|| error(CallErrorKind::NotFound))
        };
        let (dice, during) = (&mut self.dice.calls, (call.began, call.ended));
        let read = runtime::inspect(&self.truth, dice, &mut hides, uid, held, during);
        if !not_found.is_empty() {
            self.checks
                .note(self.now, || format!("   NotFound: {not_found:?}"));
        }
        read
    }

    pub(super) fn status_read(&mut self, call: Call, id: &Id) -> Lawful {
        self.checks.tally.readings += 1;
        let at = self.dice.calls.between(call.began, call.ended);
        let mut found = self.truth.life(id).and_then(|l| runtime::status(l, at));
        if self.node.is_hidden(call.ended, id) {
            found = None;
        }
        let report = match self.failed(call) {
            Some(error) => Err(error),
            None => found.ok_or_else(|| error(CallErrorKind::NotFound)),
        };
        self.checks
            .history
            .note(self.now, || format!("read {id}: {report:?}"));
        self.signs.silent &= report.as_ref().is_err_and(is_silence);
        if let Ok(report) = &report {
            let began = Instant::from_nanos(call.began);
            self.checks.status_read(&self.truth, began, report);
            let report = std::slice::from_ref(report);
            self.losses.read(call.began, self.now, report, false);
        }
        let reading = StatusRead {
            ticket: call.ticket,
            began: Instant::from_nanos(call.began),
            ended: Instant::from_nanos(call.ended),
            report,
        };
        self.checks.handed(Input::StatusRead);
        self.machine.handle_status_read(self.instant(), reading);
        self.drain()
    }
}

impl World {
    /// `Version` has ended. Only one that nobody answers says something of the runtime.
    pub(super) fn version_ended(&mut self, call: Call) -> Lawful {
        let outcome = self.failed(call).map_or(Ok(()), Err);
        self.checks
            .history
            .note(self.now, || format!("version {outcome:?}"));
        let silent = outcome.as_ref().is_err_and(is_silence);
        self.signs.silent = silent || self.signs.silent && outcome.is_err();
        let version = Version {
            ticket: call.ticket,
            ended: Instant::from_nanos(call.ended),
            outcome,
        };
        self.machine.handle_version(self.instant(), version);
        self.drain()
    }
}

/// Whether an error says that nobody answers.
fn is_silence(error: &CallError) -> bool {
    let kinds = [CallErrorKind::Unavailable, CallErrorKind::DeadlineExceeded];
    kinds.contains(&error.kind)
}

/// A failed call.
pub fn error(kind: CallErrorKind) -> CallError {
    CallError::new("Test", kind, "as the weather has it")
}

pub(super) fn brief(rows: &Result<Vec<Report>, CallError>) -> String {
    match rows {
        Ok(rows) => {
            let row = |r: &Report| format!("{}:{:?}", r.id, r.shown);
            let rows: Vec<String> = rows.iter().map(row).collect();
            format!("[{}]", rows.join(" "))
        }
        Err(error) => format!("{error:?}"),
    }
}

pub(super) fn brief_output(output: &Output) -> String {
    match output {
        Output::Publish { uid, view } => {
            let s = &view.status;
            let sandboxes = s.sandboxes.iter();
            let sandboxes = sandboxes.map(|x| format!("{}:{:?}", x.id, x.state));
            let containers = s.containers.iter();
            let containers = containers.map(|x| format!("{}:{:?}", x.id, x.state));
            let all: Vec<String> = sandboxes.chain(containers).collect();
            format!("publish {uid} as of {:?}: {}", view.as_of, all.join(" "))
        }
        Output::Announce(e) => {
            let subject = e.subject.as_ref();
            let what = subject.map(|s| (&s.id, s.incarnation, s.exit_code));
            format!("announce {} {} {what:?}", e.event, e.uid)
        }
        Output::Answer { waiter, answer } => {
            let count = |v: &pleg_core::PodView| {
                (v.as_of, v.status.sandboxes.len(), v.status.containers.len())
            };
            format!("answer {waiter:?} {:?}", answer.as_ref().map(count))
        }
        other => format!("{other:?}"),
    }
}
