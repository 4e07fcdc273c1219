//! The getters: health and counters. They change nothing.

use std::collections::BTreeSet;

use super::Reconciler;
use super::counters::Counters;
use super::health::{Health, PodName};
use super::state_counts::StateCounts;
use crate::types::ids::{Id, PodUid};
use crate::types::reads::Ticket;
use crate::types::time::Instant;

impl Reconciler {
    /// The present health.
    pub fn health(&self, now: Instant) -> Health {
        let hung = self.scheduler.hung();
        let failing = self.failing_pods();
        Health {
            due: self.due(now),
            last_list: self.relist.complete(),
            list_in_flight: self.relist.in_flight().map(|(_, since)| since),
            list_error: self.list_error.clone(),
            silent_since: self.probe.silent_since(),
            period: self.relist.period(),
            stream: self.stream.state(now),
            behind_since: self.behind_since,
            overdue: hung.len(),
            oldest_overdue: hung.first().map(|&(_, _, since)| since),
            overdue_pods: self.named(hung.into_iter().map(|(_, uid, _)| uid)),
            failing: failing.len(),
            failing_pods: self.named(failing.into_iter()),
            missed: self.counters.missed.total(),
            loss: self.loss.of_last_minutes(now),
            splits_events_between_subscribers: self.profile.splits_events_between_subscribers,
            synced: self.synced,
            unready_after: self.settings.unready_after,
            unacknowledged: self.terminals.unacknowledged(),
        }
    }

    /// The inspections that have given back their slot and still run, oldest first: the request, the
    /// pod, and when the request was made.
    pub fn overdue_inspections(&self) -> Vec<(Ticket, &PodUid, Instant)> {
        self.scheduler.hung()
    }

    /// Whether an inspection of the pod is requested or in flight, or awaits its retry.
    pub fn owes_inspection(&self, uid: &PodUid) -> bool {
        self.scheduler.owes(uid)
    }

    /// Pods whose last inspection failed, or that have an unsettled id.
    pub fn failing_pods(&self) -> BTreeSet<&PodUid> {
        let unsettled = self.unsettled.iter().filter_map(|id| {
            let record = self.records.get(id)?;
            if !record.unsettled || record.is_removed() {
                return None;
            }
            record.identity.pod.as_ref()
        });
        self.scheduler.failing_pods().chain(unsettled).collect()
    }

    /// The first of these pods, as named in health.
    pub(super) fn named<'a>(&self, pods: impl Iterator<Item = &'a PodUid>) -> Vec<PodName> {
        let named = pods.take(Health::NAMED);
        named.map(|uid| self.pod_name(uid)).collect()
    }

    /// The pod as health names it.
    pub fn pod_name(&self, uid: &PodUid) -> PodName {
        let pod = self.pods.get(uid);
        PodName {
            uid: uid.clone(),
            namespace: pod.map(|p| p.namespace.clone()).unwrap_or_default(),
            name: pod.map(|p| p.name.clone()).unwrap_or_default(),
        }
    }

    /// When the next work is due: a timer, or the deadline of a call in flight. Something is always
    /// due.
    pub(super) fn due(&self, now: Instant) -> Instant {
        let inspection = self.settings.inspection_deadline;
        let status_reads = self.status_reads.values().map(|(_, since)| *since);
        let oldest_read = status_reads.chain(self.scheduler.oldest()).min();
        [
            self.poll_timeout(),
            self.relist.deadline(),
            self.probe.deadline(),
            oldest_read.map(|since| since.after(inspection)),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(now)
    }

    /// Whether the end of that id was announced, and every consumer that was registered then has
    /// acknowledged it. False if it has not ended, or is not known.
    ///
    /// Also true if its terminal record was dropped because of the bounds on terminal records.
    pub fn is_acknowledged(&self, id: &Id) -> bool {
        self.records.get(id).is_some_and(|r| r.has_died()) && !self.terminals.is_awaited(id)
    }

    /// The counters since the start.
    pub fn counters(&self) -> Counters {
        Counters {
            tombstones: self.tombstones.len() as u64,
            streams_lost: self.stream.lost(),
            ..self.counters.clone()
        }
    }

    /// How many pods, sandboxes and containers exist, by state.
    pub const fn state_counts(&self) -> StateCounts {
        self.state_counts
    }

    /// Whether no inspection, status call or list is queued, in flight or owed.
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle()
            && self.status_reads.is_empty()
            && self.relist.in_flight().is_none()
    }
}
