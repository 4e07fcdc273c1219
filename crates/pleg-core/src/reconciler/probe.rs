//! The probe of the runtime (invariant 12): one status call every 15 seconds, in both modes.
//!
//! It detects a runtime that hangs, and status calls that hang, while events and unchanged lists
//! make other reads rare. It also reads the details of every id once in (number of ids × 15 s).

use std::time::Duration;

use super::timers::Timer;
use super::{Output, Reconciler};
use crate::schedule::cause::Cause;
use crate::state::record::Record;
use crate::types::error::{CallError, CallErrorKind};
use crate::types::ids::{Id, Kind};
use crate::types::reads::{Ticket, Version};
use crate::types::time::Instant;

/// If the status call is not answered within this time, `Version` is called in addition.
const SLOW: Duration = Duration::from_secs(1);
/// The deadline of `Version`.
const VERSION_DEADLINE: Duration = Duration::from_secs(2);

/// The probe in flight, and the results of the last ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Probe {
    status: Option<StatusCall>,
    /// The id whose status call hung or was unavailable.
    suspect: Option<Id>,
    /// The `Version` call of the probe.
    version: Option<(Ticket, Instant)>,
    /// When the first call was made that is unanswered, if nothing has arrived from the runtime
    /// since.
    asked: Option<Instant>,
    silent_since: Option<Instant>,
}

/// The status call of the probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct StatusCall {
    ticket: Ticket,
    id: Id,
    /// When it is slow.
    slow_at: Instant,
}

impl Probe {
    /// When the first unanswered probe was sent, if the runtime as a whole does not answer and
    /// nothing else has arrived from it since.
    pub(super) const fn silent_since(&self) -> Option<Instant> {
        self.silent_since
    }

    /// Whether that status call is the one of the probe.
    pub(super) fn is_status_call(&self, ticket: Ticket) -> bool {
        self.status
            .as_ref()
            .is_some_and(|call| call.ticket == ticket)
    }

    /// Something arrived from the runtime at that instant.
    pub(super) fn heard(&mut self, at: Instant) {
        if self.asked.is_some_and(|asked| asked <= at) {
            (self.asked, self.silent_since) = (None, None);
        }
    }

    /// The deadline of the `Version` call in flight.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let (_, since) = self.version?;
        Some(since.after(VERSION_DEADLINE))
    }
}

impl Reconciler {
    /// Starts a probe and schedules the next one.
    pub(super) fn start_probe(&mut self, now: Instant) {
        let next = now.after(self.settings.probe_period);
        self.timers.set(next, Timer::Probe);
        self.relist.join_probe(now, next);
        if self.probe.status.is_some() || self.probe.version.is_some() {
            return;
        }
        self.probe.asked.get_or_insert(now);
        self.probe.suspect = None;
        match self.least_recently_attempted() {
            Some((id, kind)) => {
                self.counters.probes += 1;
                let ticket = self.read_status(now, &id, kind);
                let slow_at = now.after(SLOW);
                self.timers.set(slow_at, Timer::ProbeSlow(ticket));
                self.probe.status = Some(StatusCall {
                    ticket,
                    id,
                    slow_at,
                });
            }
            None => self.ask_version(now),
        }
    }

    /// The id whose status was requested least recently. Ids whose last status failed are left out,
    /// as are pods that are inspected again with a backoff.
    fn least_recently_attempted(&self) -> Option<(Id, Kind)> {
        let may_be_asked = |id: &Id, record: &Record| {
            let uid = record.identity.pod.as_ref()?;
            let pod = self.pods.get(uid)?;
            let is_paced = pod.recheck_due.is_some() || self.scheduler.is_unlistable(uid);
            (pod.members.contains(id) && !is_paced).then_some(())
        };
        // The pod of an id is looked up only if no earlier id was attempted longer ago.
        let mut least: Option<(&Id, &Record)> = None;
        for (id, record) in self.records.iter() {
            if record.error.is_none()
                && least.is_none_or(|(_, least)| record.attempted < least.attempted)
                && may_be_asked(id, record).is_some()
            {
                least = Some((id, record));
            }
        }
        let (id, record) = least?;
        Some((id.clone(), record.kind()))
    }

    /// The status call was not answered within a second.
    pub(super) fn probe_is_slow(&mut self, now: Instant, ticket: Ticket) {
        if let Some(call) = &self.probe.status
            && call.ticket == ticket
        {
            self.probe.suspect = Some(call.id.clone());
            self.ask_version(now);
        }
    }

    /// The status call has ended.
    pub(super) fn probe_answered(
        &mut self,
        now: Instant,
        ticket: Ticket,
        ended: Instant,
        error: Option<&CallError>,
    ) {
        let Some(call) = self.probe.status.take_if(|call| call.ticket == ticket) else {
            return;
        };
        // A timer that would do nothing still wakes the process.
        self.timers.cancel(call.slow_at, Timer::ProbeSlow(ticket));
        let id = call.id;
        match error {
            None => {}
            Some(error) if is_silence(error.kind) => {
                self.probe.suspect = Some(id);
                self.ask_version(now);
            }
            Some(_) => {
                self.runtime_answers(now, ended);
                self.suspect_pod(now, &id);
            }
        }
    }

    fn ask_version(&mut self, now: Instant) {
        if self.probe.version.is_some() {
            return;
        }
        let ticket = self.next_ticket();
        self.probe.version = Some((ticket, now));
        self.out.push_back(Output::Version {
            ticket,
            deadline: VERSION_DEADLINE,
        });
    }

    /// `Version` has ended. If it was answered, the runtime works, and only the status call of one
    /// pod hangs.
    pub fn handle_version(&mut self, now: Instant, version: Version) {
        let under_way = self.probe.version;
        if under_way.is_none_or(|(ticket, _)| ticket != version.ticket) {
            return;
        }
        self.probe.version = None;
        let suspect = self.probe.suspect.take();
        match version.outcome {
            Err(error) if is_silence(error.kind) => self.probe.silent_since = self.probe.asked,
            Ok(()) | Err(_) => {
                self.runtime_answers(now, version.ended);
                if let Some(id) = suspect {
                    self.suspect_pod(now, &id);
                }
            }
        }
        self.pump(now);
    }

    /// The status call of an id failed or hangs: its pod is inspected, so that health names it.
    fn suspect_pod(&mut self, now: Instant, id: &Id) {
        let record = self.records.get(id);
        if let Some(uid) = record.and_then(|r| r.identity.pod.clone()) {
            self.request_inspection(now, &uid, Cause::Probe);
        }
    }
}

/// Whether an error means that the runtime did not answer. A runtime that refuses a call works.
pub(super) const fn is_silence(kind: CallErrorKind) -> bool {
    matches!(
        kind,
        CallErrorKind::Unavailable | CallErrorKind::DeadlineExceeded
    )
}
