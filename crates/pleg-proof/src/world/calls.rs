//! Performs the reconciler's outputs: calls take time, fail, or are answered from the oracle.

use std::time::Duration;

use pleg_core::{
    CallError, CallErrorKind, HeldId, Id, Inspection, Instant, KnownIds, List, Output, PodRead,
    PodUid, Report, Rows, StatusRead, Ticket, Version,
};

use super::node::Availability;
use super::{Action, Call, World};
use crate::assertions::{self, CheckResult};
use crate::checks::Input;
use crate::coverage::CoverPoint;
use crate::fault_profile::{MS, SECOND};
use crate::faults::Fault;
use crate::runtime::{self, error, pod_of};

/// The faults of one kind of call.
struct Faults {
    fails: Fault,
    hangs: Option<Fault>,
    /// It hangs because of an earlier fault.
    hung: Option<Fault>,
    longest: u64,
}

impl World {
    /// Performs one output.
    pub(super) fn perform(&mut self, output: Output) -> CheckResult {
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
                self.inspection_chain += 1;
                let inspection_chain = self.inspection_chain;
                assertions::NO_INSPECTION_LOOP
                    .holds(inspection_chain <= 2 * self.plan.pods as u64 + 2, || {
                        format!("{inspection_chain} inspections follow one another")
                    })?;
                let asked = (&uid, ticket);
                self.checks
                    .inspection_asked(self.now, asked, causes, &self.read_schedule)?;
                let place = pod_of(&uid).map(|pod| self.place(pod));
                let hung = self.node.is_hung(self.now, place);
                let faults = Faults {
                    fails: Fault::InspectionFails,
                    hangs: Some(Fault::InspectionHangs),
                    hung: hung.then_some(Fault::HungPod),
                    longest: 4 * SECOND,
                };
                let call = self.call(ticket, deadline, &faults);
                self.at(call.ended, Action::Inspect(call, Box::new((uid, held))));
                Ok(())
            }
            Output::Read {
                ticket,
                id,
                deadline,
                ..
            } => {
                let place = self.oracle.object(&id).map(|l| self.place(l.pod));
                let hung = self.node.is_hung(self.now, place);
                let faults = Faults {
                    fails: Fault::StatusReadFails,
                    hangs: None,
                    hung: hung.then_some(Fault::HungPod),
                    longest: 2 * SECOND,
                };
                let call = self.call(ticket, deadline, &faults);
                self.at(call.ended, Action::Read(call, id));
                Ok(())
            }
            Output::Version { ticket, deadline } => {
                let faults = Faults {
                    fails: Fault::StatusReadFails,
                    hangs: None,
                    hung: None,
                    longest: SECOND,
                };
                let call = self.call(ticket, deadline, &faults);
                self.at(call.ended, Action::Version(call));
                Ok(())
            }
            Output::Cancel { ticket } => {
                self.checks.inspection_cancelled(ticket);
                Ok(())
            }
            Output::Resubscribe => {
                self.checks.coverage.hit(CoverPoint::StreamRenewed);
                if let Some(stream) = self.stream {
                    self.at(self.now, Action::Renew(stream));
                }
                Ok(())
            }
            Output::Announce(event) => {
                let output = Output::Announce(event.clone());
                self.checks.output(&self.oracle, self.now, &output)?;
                let (present, pods) = (self.checks.present(), self.pods_and_names());
                self.subscribers.announce(&event, present, pods)?;
                self.announced(&event);
                Ok(())
            }
            Output::Answer { waiter, answer } => {
                let output = Output::Answer { waiter, answer };
                self.checks.output(&self.oracle, self.now, &output)?;
                match (output, self.worker_of(waiter)) {
                    (Output::Answer { answer, .. }, Some(pod)) => self.worker_answered(pod, answer),
                    _ => Ok(()),
                }
            }
            other => self.checks.output(&self.oracle, self.now, &other),
        }
    }

    fn list(&mut self, ticket: Ticket, deadline: Duration, known: KnownIds) -> CheckResult {
        if self.expected_health.last_list_failed && self.checks_outage_over() {
            self.checks.coverage.hit(CoverPoint::OutageOver);
        }
        self.read_schedule.list_asked(self.now, ticket)?;
        self.expected_health.list_in_flight = Some(self.now);
        let hung = self.node.lists_out(self.now);
        let faults = Faults {
            fails: Fault::ListFails,
            hangs: Some(Fault::ListHangs),
            hung: hung.then_some(Fault::ListOutage),
            longest: 6 * SECOND,
        };
        let call = self.call(ticket, deadline, &faults);
        self.at(call.ended, Action::List(call, known));
        Ok(())
    }

    /// Whether a list follows sooner than the period after a failed one.
    fn checks_outage_over(&self) -> bool {
        self.read_schedule.since_last(self.now) < SECOND
    }

    /// Issues a call now and decides when and how it ends.
    fn call(&mut self, ticket: Ticket, deadline: Duration, faults: &Faults) -> Call {
        let began = self.now + self.rng.calls.between(0, MS);
        let slow = self.inject(Fault::SlowRead, |d| &mut d.calls);
        let mut ended = began + runtime::duration(&mut self.rng.calls, slow, faults.longest);
        let last = began + deadline.as_nanos() as u64;
        let mut fails = None;
        match self.node.availability(self.now) {
            Availability::Refused => {
                ended = began + self.rng.calls.between(0, MS);
                fails = Some(CallErrorKind::Unavailable);
            }
            Availability::Later(served) => ended = ended.max(served),
            Availability::Served => {}
        }
        if let Some(hung) = faults.hung {
            self.checks.coverage.fault(hung);
            ended = last;
        } else if let Some(hangs) = faults.hangs
            && self.inject(hangs, |d| &mut d.calls)
        {
            ended = last;
        } else if self.inject(faults.fails, |d| &mut d.calls) {
            ended = began + self.rng.calls.between(0, 20 * MS);
            let kinds = [
                CallErrorKind::Unavailable,
                CallErrorKind::DeadlineExceeded,
                CallErrorKind::TooLarge,
                CallErrorKind::Failed,
            ];
            fails = fails.or(Some(self.rng.calls.pick(&kinds)));
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

    /// The error of a completed call, if it failed.
    fn failed(&self, call: Call) -> Option<CallError> {
        // The runtime restarted during the call.
        let gone = self.node.restarted >= call.began && self.node.restarted > 0;
        let kind = call.fails.or(gone.then_some(CallErrorKind::Unavailable));
        kind.map(error)
    }

    pub(super) fn finish_list(&mut self, call: Call, known: KnownIds) -> CheckResult {
        self.checks.coverage.lists += 1;
        let rows = match self.failed(call) {
            Some(error) => Err(error),
            None => {
                let sandboxes = self.rng.calls.between(call.began, call.ended);
                let containers = self.rng.calls.between(sandboxes, call.ended);
                let mut rows = runtime::list(&self.oracle, sandboxes, containers);
                self.count_listed_after_removal(&rows, call.began);
                self.mark_unknown(&mut rows);
                Ok(rows)
            }
        };
        let (ticket, began) = (call.ticket, Instant::from_nanos(call.began));
        self.checks.trace.log(self.now, || {
            format!(
                "list {} begun {began:?}: {}",
                ticket.get(),
                format_reports(&rows)
            )
        });
        self.checks.set_input(Input::List);
        let any_known = u64::from(!known.is_empty());
        self.checks
            .coverage
            .hit_times(CoverPoint::KnownIds, any_known);
        let handed = self.hand_over(&rows, known);
        let list = List {
            ticket,
            began,
            ended: Instant::from_nanos(call.ended),
            rows: handed,
        };
        let failed = list.rows.is_err();
        self.reconciler.handle_list(self.instant(), list);
        self.expected_health.list_in_flight = None;
        self.read_schedule.list_ended(self.now, failed);
        self.expected_health.last_list_failed = failed;
        self.expected_health.silent &= failed;
        if let (Ok(rows), false) = (&rows, failed) {
            self.checks.list_read(&self.oracle, began, rows);
            self.losses.listed(call.began, self.now, rows);
            self.expected_health.last_list = self.expected_health.last_list.max(Some(call.began));
        }
        self.drain()
    }

    /// The rows that the reconciler gets: for known ids only the state. The answer may be lost.
    fn hand_over(
        &mut self,
        rows: &Result<Vec<Report>, CallError>,
        known: KnownIds,
    ) -> Result<Rows, CallError> {
        let rows = rows.as_ref().map_err(Clone::clone)?;
        let rows = Rows::of(known, rows.iter().cloned());
        if self.inject(Fault::ListLost, |d| &mut d.calls) {
            return Err(error(CallErrorKind::Cancelled));
        }
        Ok(rows)
    }

    fn count_listed_after_removal(&mut self, rows: &[Report], began: u64) {
        if !self.oracle.lists_removed_sandboxes {
            return;
        }
        let gone = |r: &&Report| self.oracle.object(&r.id).is_some_and(|l| !l.exists(began));
        let removed_rows = rows.iter().filter(gone).count() as u64;
        self.checks.coverage.faults[Fault::ListedAfterRemoval as usize] += removed_rows;
    }

    fn mark_unknown(&mut self, reports: &mut [Report]) {
        if self.fault_profile.percent(Fault::UnknownInRead) == 0 {
            return;
        }
        for report in reports {
            if self.inject(Fault::UnknownInRead, |d| &mut d.calls) {
                runtime::mark_unknown(report);
            }
        }
    }

    pub(super) fn finish_inspection(
        &mut self,
        call: Call,
        uid: &PodUid,
        held: &[HeldId],
    ) -> CheckResult {
        self.checks.coverage.inspections += 1;
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
        self.mark_unknown(&mut inspection.found);
        if inspection.error.is_none() && self.inject(Fault::InspectionPartial, |d| &mut d.calls) {
            let rng = &mut self.rng.calls;
            inspection.found.retain(|_| rng.percent(50));
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
        self.checks.trace.log(self.now, || {
            let what = format_reports(&Ok(found.clone()));
            let number = ticket.get();
            let unsettled: Vec<&Id> = unsettled.iter().map(|row| &row.id).collect();
            format!(
                "inspection {number} of {uid} begun {began:?}: {what} gone {gone:?} unsettled {unsettled:?} \
                 unchanged {unchanged:?} failed {statuses:?} {:?}",
                inspection.error
            )
        });
        let asked = (uid, ticket);
        let rows = unsettled
            .iter()
            .chain(statuses.iter().filter_map(|s| s.row.as_ref()));
        let unchanged = unchanged.iter().filter_map(|(id, shown)| {
            let mut row = runtime::list_row(self.oracle.object(id)?, call.began)?;
            row.shown = *shown;
            Some(row)
        });
        let shown: Vec<Report> = found.iter().chain(rows).cloned().chain(unchanged).collect();
        let inspection_cancelled = !self.checks.is_in_flight(ticket);
        self.expected_health.silent &= inspection_cancelled || failed && found.is_empty();
        self.checks
            .inspected(&self.oracle, asked, began, &shown, failed);
        if !failed && !inspection_cancelled {
            let read_all = inspection.unchanged.is_empty();
            let (now, oracle) = (self.now, &self.oracle);
            self.checks.unsettled(oracle, now, uid, &inspection);
            self.checks.statuses_failed(uid, statuses, read_all);
        }
        // The answer to an inspection that was given up comes too late.
        if !inspection_cancelled {
            self.losses.read(call.began, self.now, &shown, !failed);
        }
        self.checks.set_input(Input::Inspection);
        self.reconciler
            .handle_inspection(self.instant(), inspection);
        self.drain()
    }

    /// The answers to the calls of an inspection.
    fn inspect(&mut self, call: Call, uid: &PodUid, held: &[HeldId]) -> PodRead {
        let fails = self.fault_profile.percent(Fault::StatusFails);
        let percent = self.fault_profile.percent(Fault::StatusNotFound);
        let (rng, coverage, node) = (&mut self.rng.kubelet, &mut self.checks.coverage, &self.node);
        let mut not_found = Vec::new();
        let mut hides = |id: &Id, listed: bool| {
            if fails > 0 && rng.percent(fails) {
                coverage.fault(Fault::StatusFails);
                return Some(error(
                    rng.pick(&[CallErrorKind::DeadlineExceeded, CallErrorKind::Failed]),
                ));
            }
            if !listed {
                return None;
            }
            let hidden = node.is_hidden(call.ended, id);
            let hides = hidden || percent > 0 && rng.percent(percent);
            if hides {
                coverage.fault([Fault::StatusNotFound, Fault::StatusHidden][usize::from(hidden)]);
                not_found.push(id.clone());
            }
            hides.then(|| error(CallErrorKind::NotFound))
        };
        let (rng, during) = (&mut self.rng.calls, (call.began, call.ended));
        let read = runtime::inspect(&self.oracle, rng, &mut hides, uid, held, during);
        if !not_found.is_empty() {
            self.checks
                .log(self.now, || format!("   NotFound: {not_found:?}"));
        }
        read
    }

    pub(super) fn finish_status_read(&mut self, call: Call, id: &Id) -> CheckResult {
        self.checks.coverage.status_reads += 1;
        let at = self.rng.calls.between(call.began, call.ended);
        let mut found = self.oracle.object(id).and_then(|l| runtime::status(l, at));
        if self.node.is_hidden(call.ended, id) {
            found = None;
        }
        let report = match self.failed(call) {
            Some(error) => Err(error),
            None => found.ok_or_else(|| error(CallErrorKind::NotFound)),
        };
        self.checks
            .trace
            .log(self.now, || format!("read {id}: {report:?}"));
        self.expected_health.silent &= report.as_ref().is_err_and(is_silence);
        if let Ok(report) = &report {
            let began = Instant::from_nanos(call.began);
            self.checks.status_read(&self.oracle, began, report);
            let report = std::slice::from_ref(report);
            self.losses.read(call.began, self.now, report, false);
        }
        let reading = StatusRead {
            ticket: call.ticket,
            began: Instant::from_nanos(call.began),
            ended: Instant::from_nanos(call.ended),
            report,
        };
        self.checks.set_input(Input::StatusRead);
        self.reconciler.handle_status_read(self.instant(), reading);
        self.drain()
    }
}

impl World {
    /// Completes a `Version` call. Only an unanswered one shows that the runtime is silent.
    pub(super) fn finish_version(&mut self, call: Call) -> CheckResult {
        let outcome = self.failed(call).map_or(Ok(()), Err);
        self.checks
            .trace
            .log(self.now, || format!("version {outcome:?}"));
        let silent = outcome.as_ref().is_err_and(is_silence);
        self.expected_health.silent = silent || self.expected_health.silent && outcome.is_err();
        let version = Version {
            ticket: call.ticket,
            ended: Instant::from_nanos(call.ended),
            outcome,
        };
        self.reconciler.handle_version(self.instant(), version);
        self.drain()
    }
}

/// Whether the error means that the runtime did not answer.
fn is_silence(error: &CallError) -> bool {
    let kinds = [CallErrorKind::Unavailable, CallErrorKind::DeadlineExceeded];
    kinds.contains(&error.kind)
}

pub(super) fn format_reports(rows: &Result<Vec<Report>, CallError>) -> String {
    match rows {
        Ok(rows) => runtime::format_reports(rows),
        Err(error) => format!("{error:?}"),
    }
}
