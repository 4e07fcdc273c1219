//! The probe of the runtime (invariant 12): one status call every 15 seconds, in both modes.
//!
//! It detects a runtime that hangs, and status calls that hang, while events and unchanged lists
//! make other reads rare. It also reads the details of every id once in (number of ids × 15 s).

use std::collections::BTreeSet;
use std::time::Duration;

use super::timers::Timer;
use super::{Output, Reconciler};
use crate::schedule::cause::Cause;
use crate::state::record::Record;
use crate::types::error::{CallError, CallErrorKind};
use crate::types::ids::{Id, Kind};
use crate::types::reads::{Ticket, Version};
use crate::types::time::Instant;

/// The deadline of `Version`.
const VERSION_DEADLINE: Duration = Duration::from_secs(2);

/// The probe in flight, and the results of the last ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Probe {
    /// The status call.
    status: Option<Ticket>,
    /// The ids whose status calls were not answered in time, until `Version` shows whether the runtime
    /// answers at all.
    suspects: BTreeSet<Id>,
    /// The `Version` call of the probe.
    version: Option<(Ticket, Instant)>,
    /// When the first call was made that is unanswered, if nothing has arrived from the runtime
    /// since.
    asked: Option<Instant>,
    silent_since: Option<Instant>,
}

impl Probe {
    /// When the first unanswered probe was sent, if the runtime as a whole does not answer and
    /// nothing else has arrived from it since.
    pub(super) const fn silent_since(&self) -> Option<Instant> {
        self.silent_since
    }

    /// Whether that status call is the one of the probe.
    pub(super) fn is_status_call(&self, ticket: Ticket) -> bool {
        self.status == Some(ticket)
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
    /// Starts the probe that was due at `due`, and schedules the next one.
    pub(super) fn start_probe(&mut self, now: Instant, due: Instant) {
        let period = self.settings.probe_period;
        // Timers fire late. Counted from `now`, the fourth probe would come after the relist that is to
        // join it, which would then join the third.
        let next = Some(due.after(period)).filter(|&next| next > now);
        let next = next.unwrap_or_else(|| now.after(period));
        self.timers.set(next, Timer::Probe);
        self.relist.join_probe(now, next);
        if self.probe.status.is_some() || self.probe.version.is_some() {
            return;
        }
        self.probe.asked.get_or_insert(now);
        match self.least_recently_attempted() {
            Some((id, kind)) => {
                self.counters.probes += 1;
                self.probe.status = Some(self.read_status(now, &id, kind));
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

    /// A status call that is not part of an inspection was not answered within a second.
    pub(super) fn status_is_slow(&mut self, now: Instant, ticket: Ticket) {
        if let Some((id, _)) = self.status_reads.get(&ticket).cloned() {
            self.suspect(now, id);
        }
    }

    /// Such a status call has failed.
    pub(super) fn status_has_failed(&mut self, now: Instant, id: Id, error: &CallError) {
        if is_silence(error.kind) {
            self.suspect(now, id);
        } else {
            self.inspect_suspect(now, &id);
        }
    }

    /// Whether that status call was the one of the probe, which has ended then.
    pub(super) fn ends_probe(&mut self, ticket: Ticket) -> bool {
        self.probe
            .status
            .take_if(|asked| *asked == ticket)
            .is_some()
    }

    /// Either this pod or the runtime as a whole does not answer: `Version` decides.
    fn suspect(&mut self, now: Instant, id: Id) {
        self.probe.suspects.insert(id);
        self.ask_version(now);
    }

    fn ask_version(&mut self, now: Instant) {
        if self.probe.version.is_some() {
            return;
        }
        self.probe.asked.get_or_insert(now);
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
        let in_flight = self.probe.version;
        if in_flight.is_none_or(|(ticket, _)| ticket != version.ticket) {
            return;
        }
        self.probe.version = None;
        let suspects = std::mem::take(&mut self.probe.suspects);
        match version.outcome {
            Err(error) if is_silence(error.kind) => self.probe.silent_since = self.probe.asked,
            Ok(()) | Err(_) => {
                self.runtime_answers(now, version.ended);
                for id in suspects {
                    self.inspect_suspect(now, &id);
                }
            }
        }
        self.pump(now);
    }

    /// The status call of an id failed or hangs: its pod is inspected, so that health names it.
    fn inspect_suspect(&mut self, now: Instant, id: &Id) {
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
