//! Getters of the reconciler.

use crate::health::{Health, PodName};
use crate::output::Counters;
use crate::pods::Record;
use crate::reconciler::Reconciler;
use crate::types::{Id, Instant, PodUid, Ticket};

impl Reconciler {
    /// The state of health.
    pub fn health(&self, now: Instant) -> Health {
        let slow = self.schedule.slow();
        let failing = self.failing_pods();
        let profile = self.stream_check.profile();
        let pod_read = self.schedule.oldest();
        let pod_read = pod_read.map(|since| since.after(self.reads.deadline()));
        let due = [
            self.poll_timeout(),
            self.relist.deadline(),
            self.probe.deadline(self.reads.deadline()),
            self.outage.version_deadline(),
            pod_read,
        ];
        Health {
            due: due.into_iter().flatten().min().unwrap_or(now),
            last_list: self.relist.complete(),
            list_in_flight: self.relist.in_flight().map(|(_, since)| since),
            list_error: self.relist.error().cloned(),
            silent_since: self.outage.silent_since(),
            period: self.relist.period(),
            stream: self.stream.state(now),
            behind_since: self.hints.oldest().filter(|&due| due < now),
            overdue: slow.len(),
            oldest_overdue: self.schedule.slow().next().map(|(_, since)| since),
            overdue_pods: self.named(slow.map(|(uid, _)| uid)),
            failing: failing.len(),
            failing_pods: self.named(failing),
            unacknowledged: Vec::new(),
            missed: self.out.counters.missed.total(),
            loss: self.stream_check.loss(now),
            splits_events_between_subscribers: profile.splits_events_between_subscribers,
            synced: self.progress.settled_as_of().is_some(),
            unready_after: self.relist.unready_after(),
        }
    }

    fn named<'a>(&self, pods: impl Iterator<Item = &'a PodUid>) -> Vec<PodName> {
        let named = pods.take(Health::NAMED);
        named.map(|uid| self.pod_name(uid)).collect()
    }

    /// The pod reads that take longer than `slot_time`, oldest first, each with its request number, pod and start.
    pub fn slow_reads(&self) -> impl ExactSizeIterator<Item = (Ticket, &PodUid, Instant)> {
        let ticket = |uid| self.reads.ticket(uid).unwrap_or_default();
        let slow = self.schedule.slow();
        slow.map(move |(uid, since)| (ticket(uid), uid, since))
    }

    /// Pods for which the list or a status call fails. Empty while the runtime as a whole fails.
    pub fn failing_pods(&self) -> impl ExactSizeIterator<Item = &PodUid> {
        let failing = self.pods.failures.named();
        let counts = !self.outage.fails();
        failing.iter().take(if counts { failing.len() } else { 0 })
    }

    /// Returns true if a read of the pod is in flight, or its last read failed or was stale.
    pub fn is_unread(&self, uid: &PodUid) -> bool {
        let has_failed = self.pods.failures.retry_at(uid).is_some();
        has_failed || self.schedule.is_in_flight(uid) || self.look_again.has(uid)
    }

    /// Returns true if the runtime as a whole fails, not only calls for single pods.
    pub const fn is_runtime_failing(&self) -> bool {
        self.outage.fails()
    }

    /// Returns true if the cache shows that this sandbox or container has ended, and its end was announced.
    pub fn has_died(&self, id: &Id) -> bool {
        let has_ended = self.pods.record(id).is_some_and(Record::has_ended);
        has_ended && self.announcements.has_begun() && !self.announcements.waits(id)
    }

    /// The names of a pod.
    pub fn pod_name(&self, uid: &PodUid) -> PodName {
        let pod = self.pods.get(uid);
        PodName {
            uid: uid.clone(),
            namespace: pod.map(|pod| pod.namespace.clone()).unwrap_or_default(),
            name: pod.map(|pod| pod.name.clone()).unwrap_or_default(),
        }
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        Counters {
            streams_lost: self.stream.lost,
            ..self.out.counters.clone()
        }
    }

    /// Returns true if no call is in flight and no read waits for a slot.
    pub fn is_idle(&self) -> bool {
        let calls = self.relist.in_flight().is_some()
            || self.probe.is_busy()
            || self.outage.version_deadline().is_some();
        self.schedule.is_idle() && !calls
    }

    /// The number of entries in all tables: a measure of memory, which must not grow on an idle node.
    pub fn footprint(&self) -> usize {
        self.pods.stored()
            + self.hints.len()
            + self.schedule.len()
            + self.look_again.len()
            + self.reads.len()
            + self.progress.len()
            + self.stream_check.len()
            + self.announcements.len()
            + self.waiters.len()
            + self.probe.len()
            + self.outage.len()
    }
}
