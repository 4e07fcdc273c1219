//! Single status calls and `Version` calls: probes of the runtime, and late exit reasons.

use std::time::Duration;

use crate::constants::VERSION_DEADLINE;
use crate::output::Output;
use crate::pods::{Applied, Record};
use crate::reconciler::Reconciler;
use crate::types::{CallError, CallErrorKind, Id, Instant, Kind, Report, Source, Ticket, Version};

impl Reconciler {
    /// Requests the statuses that a pod read needs, or a single status.
    pub(crate) fn request_statuses(
        &mut self,
        now: Instant,
        ticket: Ticket,
        ids: Vec<(Id, Kind)>,
        deadline: Duration,
    ) {
        self.pods.requested(&ids, now);
        self.outage.began(ticket, now);
        self.out.counters.statuses += ids.len() as u64;
        self.out.push(Output::ReadStatuses {
            ticket,
            ids,
            deadline,
        });
    }

    /// A pod list or a status call has ended. After an outage the first success causes a relist.
    pub(crate) fn call_ended(&mut self, now: Instant, ticket: Ticket, error: Option<&CallError>) {
        if self.outage.ended(ticket, error) {
            self.relist.by(now);
        }
    }

    /// Makes the runtime probe, the single status calls and the `Version` call that are due.
    pub(crate) fn start_probes(&mut self, now: Instant) {
        for ticket in self.outage.take_slow(now) {
            self.probe.mark_slow(ticket);
        }
        if let Some(next) = self.probe.take_due(now) {
            self.relist.join_probe(now, next);
            if !self.probe.is_busy() && self.outage.version_deadline().is_none() {
                self.out.counters.probes += 1;
                // In an outage, the probe is `Version`: after a failed status call, its pod would be read each second.
                match self.pods.least_recently_requested(now) {
                    Some((id, kind)) if !self.outage.fails() => self.request_status(now, id, kind),
                    _ => self.request_version(now),
                }
            }
        }
        while let Some(id) = self.probe.take_late_reason(now) {
            if let Some(kind) = self.pods.record(&id).map(Record::kind) {
                self.request_status(now, id, kind);
            }
        }
        if self.outage.is_version_due() {
            self.request_version(now);
        }
    }

    fn request_status(&mut self, now: Instant, id: Id, kind: Kind) {
        let ticket = self.out.ticket();
        self.probe.began(ticket, id.clone(), now);
        let deadline = self.reads.deadline();
        self.request_statuses(now, ticket, vec![(id, kind)], deadline);
    }

    fn request_version(&mut self, now: Instant) {
        let ticket = self.out.ticket();
        self.outage.version_began(ticket, now);
        let deadline = VERSION_DEADLINE;
        self.out.push(Output::Version { ticket, deadline });
    }

    /// Applies details and an end from a single status. If the status shows any other change, reads the pod.
    pub(crate) fn take_single_status(
        &mut self,
        now: Instant,
        id: Id,
        began: Instant,
        answer: Result<Report, CallError>,
    ) {
        let Some(uid) = self.pods.pod_of(&id).cloned() else {
            return;
        };
        self.schedule.touch(&uid);
        let last = self.pods.record(&id).map(|record| record.status.last());
        match answer {
            Ok(status) => {
                let before = self.pods.get(&uid).and_then(|pod| pod.as_of);
                let (changes, mut applied) = self.pods.learn_alone(&id, &status, began, now);
                if applied.is_stale {
                    self.look_again.plan(Some(&uid), now);
                }
                self.check_stream(now, before, &mut applied);
                if changes {
                    self.publish(now, &uid, &applied, Source::Inspection);
                }
            }
            // Another status call of the id was made later: the result of that later call counts instead.
            Err(_) if last > Some(began) => {}
            // NotFound alone changes nothing here: the pod read that follows reads the status again.
            Err(error) if error.kind == CallErrorKind::NotFound => self.pods.retry_now(&id, now),
            Err(error) => {
                let outage = self.outage.excuses(now);
                self.pods.status_failed(&id, &error, outage, now);
                self.publish(now, &uid, &Applied::default(), Source::Inspection);
                if error.kind.is_unanswered() {
                    self.probe.suspect(id);
                }
            }
        }
    }

    /// `Version` has ended. If the runtime answered, reads the pods whose status calls hang: `Health` then names them.
    pub(crate) fn version_ended(&mut self, now: Instant, version: Version) {
        let error = version.outcome.err().map(|error| error.kind);
        let Some(is_back) = self.outage.version_ended(version.ticket, error) else {
            return;
        };
        if is_back {
            self.relist.by(now);
        }
        let suspects = self.probe.take_suspects();
        if !error.is_some_and(CallErrorKind::is_unanswered) {
            for id in suspects {
                self.pods.retry_now(&id, now);
                if let Some(uid) = self.pods.pod_of(&id) {
                    self.schedule.touch(uid);
                }
            }
        }
    }
}
