//! What the machine wants done and what consumers want of it: reads are scheduled and answered
//! from the truth, questions are asked.

use pleg_core::{
    CallError, CallErrorKind, Id, Inspection, Instant, Kind, Output, PodUid, Report, Shown, Ticket,
    WaiterId,
};

use super::{PODS, Todo, World, brief, brief_output, error};
use crate::runtime::{self, uid};
use crate::weather::{MS, SECOND};

impl World {
    pub(super) fn list_rows(&mut self, began: u64, ended: u64) -> Result<Vec<Report>, CallError> {
        if self.dice.percent(self.weather.list_fails) {
            let kind = self
                .dice
                .pick(&[CallErrorKind::Unavailable, CallErrorKind::DeadlineExceeded]);
            return Err(error(kind));
        }
        let sandboxes = self.dice.between(began, ended);
        let containers = self.dice.between(sandboxes, ended);
        let mut rows = runtime::list(&self.truth, sandboxes, containers);
        self.blur(&mut rows);
        Ok(rows)
    }

    fn blur(&mut self, reports: &mut [Report]) {
        for report in reports {
            if self.dice.percent(self.weather.unknown) {
                report.shown = Shown::Unknown;
                report.details = pleg_core::Details::none(report.identity.kind);
            }
        }
    }

    pub(super) fn inspected(
        &mut self,
        ticket: Ticket,
        uid: &PodUid,
        held: &[(Id, Kind)],
        began: u64,
        ended: u64,
    ) -> Result<(), String> {
        let (mut found, mut gone) =
            runtime::inspect(&self.truth, &mut self.dice, uid, held, (began, ended));
        self.blur(&mut found);
        let mut failure = None;
        if self
            .dice
            .percent(self.weather.partial + self.weather.inspection_fails)
        {
            failure = Some(error(CallErrorKind::Failed));
            gone.clear();
            let dice = &mut self.dice;
            found.retain(|_| dice.percent(50));
        }
        let (began, ended) = (Instant::from_nanos(began), Instant::from_nanos(ended));
        self.checks.note(self.now, || {
            let what = brief(&Ok(found.clone()));
            format!(
                "inspection {} of {uid} begun {began:?}: {what} gone {gone:?} {failure:?}",
                ticket.get()
            )
        });
        self.checks
            .inspected(uid, ticket, began, &found, failure.is_some());
        let inspection = Inspection {
            ticket,
            began,
            ended,
            found,
            gone,
            error: failure,
        };
        self.machine.handle_inspection(self.instant(), inspection);
        self.drain(true)
    }

    // --- the consumers ---

    pub(super) fn ask(&mut self) -> Result<(), String> {
        if !self.acting {
            return Ok(());
        }
        let next = self.now + self.dice.between(10, 1500) * MS;
        self.at(next, Todo::Ask);
        self.waiters += 1;
        let waiter = WaiterId::new(self.waiters);
        let now = self.instant();
        let pod = uid(self.dice.below(PODS as u64 + 1) as usize);
        let what = self.dice.below(12);
        let after = match what {
            0..=3 => self.now.saturating_sub(self.dice.between(0, 4000) * MS),
            4..=6 => self.now,
            7 | 8 => self.now + self.dice.between(0, 2000) * MS,
            _ => self.now,
        };
        let after = Instant::from_nanos(after);
        self.checks.note(self.now, || {
            format!(
                "waiter {} asks ({what}) for {pod} after {after:?}",
                self.waiters
            )
        });
        match what {
            0..=8 => {
                self.checks.asked(self.waiters, &pod, after, now);
                self.machine.wait(now, waiter, &pod, after);
            }
            9 => {
                self.checks.asked(self.waiters, &pod, after, now);
                self.machine.relist(now, waiter, &pod);
            }
            10 => {
                self.checks.asked(self.waiters, &pod, after, now);
                self.machine.reinspect(now, waiter, &pod);
            }
            _ => {
                self.relists += 1;
                self.machine.relist_now(now, waiter);
            }
        }
        self.drain(true)?;
        if let Some(life) = self.truth.lives.last().filter(|_| what == 5) {
            self.machine.acknowledge(&life.id);
            self.drain(false)?;
        }
        if self.dice.percent(5) {
            self.checks.cancelled(self.waiters);
            self.machine.cancel(waiter);
            self.drain(false)?;
        }
        Ok(())
    }

    /// A full list is asked for.
    ///
    /// # Errors
    /// A law that is broken.
    pub fn relist(&mut self) -> Result<(), String> {
        self.waiters += 1;
        self.machine
            .relist_now(self.instant(), WaiterId::new(self.waiters));
        self.drain(false)
    }

    /// Does what the machine wants done; `answers` says whether the input may answer anybody.
    pub(super) fn drain(&mut self, answers: bool) -> Result<(), String> {
        let now = self.now;
        let missed = self.machine.counters().missed;
        if missed != self.missed {
            self.missed = missed;
            self.checks
                .note(now, || format!("   missed by now: {missed:?}"));
        }
        while let Some(output) = self.machine.poll_output() {
            self.checks
                .note(now, || format!("      -> {}", brief_output(&output)));
            match &output {
                Output::List { ticket, .. } => {
                    self.tally.lists += 1;
                    self.lists.push_back(now);
                    self.lists.retain(|&t| t + SECOND > now);
                    // One a second, one at once after a failure, one for those who ask or
                    // subscribe, one against each of a few contradictions.
                    if self.lists.len() as u64 > 5 + self.relists {
                        return Err("lists follow one another".to_owned());
                    }
                    let began = now + self.dice.between(0, MS);
                    let ended =
                        began + runtime::duration(&mut self.dice, &self.weather, 6 * SECOND);
                    self.at(
                        ended,
                        Todo::List {
                            ticket: *ticket,
                            began,
                            ended,
                        },
                    );
                }
                Output::Inspect {
                    ticket,
                    uid,
                    held,
                    causes,
                    ..
                } => {
                    self.tally.inspections += 1;
                    self.chain += 1;
                    if self.chain > 2 * PODS as u64 + 2 {
                        return Err("inspections follow one another".to_owned());
                    }
                    let began = now + self.dice.between(0, MS);
                    let ended =
                        began + runtime::duration(&mut self.dice, &self.weather, 4 * SECOND);
                    self.checks.retried(now, uid, *causes)?;
                    self.checks.inspection_asked(uid, *ticket);
                    let (ticket, uid, held) = (*ticket, uid.clone(), held.clone());
                    self.at(
                        ended,
                        Todo::Inspect {
                            ticket,
                            uid,
                            held,
                            began,
                            ended,
                        },
                    );
                }
                Output::Read { ticket, id, .. } => {
                    let began = now + self.dice.between(0, MS);
                    let ended =
                        began + runtime::duration(&mut self.dice, &self.weather, 2 * SECOND);
                    let (ticket, id) = (*ticket, id.clone());
                    self.at(
                        ended,
                        Todo::Read {
                            ticket,
                            id,
                            began,
                            ended,
                        },
                    );
                }
                Output::Cancel { ticket } => self.checks.given_up(*ticket),
                _ => self.checks.output(&self.truth, now, &output, answers)?,
            }
        }
        Ok(())
    }
}
