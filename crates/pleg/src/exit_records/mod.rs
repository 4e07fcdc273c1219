//! Exit records: the ends of containers and sandboxes, stored beyond their removal.
//!
//! Upstream loses an exit code if the container is removed before a worker has read the code (k#104107). Here the
//! driver makes exit records from announcements, and stores them separately from the pod's status until every consumer
//! that was registered at the announcement has acknowledged them, or the pod has been gone for ten minutes. A pod has
//! at most 1,000 records; of its removed containers with the same name, only the last three have records.

mod awaited;
mod of_pod;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pleg_core::{
    Id, Instant, Kind, LifecycleType, PodLifecycleEvent, PodUid, Text, Unacknowledged, WallTime,
};

use awaited::Awaited;
use of_pod::PodRecords;

/// The time for which exit records are stored after their pod has disappeared.
const RETENTION: Duration = Duration::from_secs(600);

/// The end of one container or sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Exit {
    /// The id of the container or sandbox.
    pub id: Id,
    /// Sandbox or container.
    pub kind: Kind,
    /// The container's name; empty for a sandbox.
    pub name: Text,
    /// The attempt number according to the runtime: 0 for the first container or sandbox with this name.
    pub attempt: u32,
    /// The exit code, unless the runtime did not report it.
    pub exit_code: Option<i32>,
    /// The exit reason according to the runtime; empty if none.
    pub reason: Text,
    /// The time of the end according to the runtime.
    pub finished_at: Option<WallTime>,
    /// The instant at which the generator detected the end.
    pub detected: Instant,
    /// The id was removed.
    pub removed: bool,
}

impl Exit {
    /// The end of a container without exit code, reason and time, for code that builds records, such as tests.
    pub fn new(id: impl Into<Id>, name: impl Into<Text>, detected: Instant) -> Self {
        Self {
            id: id.into(),
            kind: Kind::Container,
            name: name.into(),
            attempt: 0,
            exit_code: None,
            reason: Text::default(),
            finished_at: None,
            detected,
            removed: false,
        }
    }

    /// Fills in details from a later announcement of the same end. A known exit code never becomes unknown.
    fn update(&mut self, later: Self) {
        *self = Self {
            exit_code: later.exit_code.or(self.exit_code),
            reason: match later.reason.is_empty() {
                true => std::mem::take(&mut self.reason),
                false => later.reason,
            },
            finished_at: later.finished_at.or(self.finished_at),
            detected: self.detected,
            removed: self.removed,
            ..later
        };
    }
}

/// A consumer that acknowledges exit records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConsumerId(u64);

impl ConsumerId {
    /// The consumer with the number `number`. Numbers must not be reused.
    pub(crate) const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// All exit records.
#[derive(Debug, Default)]
pub(crate) struct ExitRecords {
    pods: BTreeMap<PodUid, PodRecords>,
    pod_of: BTreeMap<Id, PodUid>,
    awaited: Awaited,
    /// Pods that are gone, in the order of disappearance. An entry is ignored if the pod exists again or has no
    /// records any more.
    gone: VecDeque<(Instant, PodUid)>,
}

impl ExitRecords {
    /// Registers a consumer: records of later announcements await its acknowledgement.
    pub(crate) fn register(&mut self, consumer: ConsumerId, name: &Text) {
        self.awaited.register(consumer, name);
    }

    /// Unregisters a consumer: no record awaits it any more. This does not remove records that it did not acknowledge.
    pub(crate) fn unregister(&mut self, consumer: ConsumerId) {
        self.awaited.unregister(consumer);
    }

    /// Returns true if a registered consumer must still acknowledge the record of the id.
    pub(crate) fn is_awaited(&self, id: &Id) -> bool {
        self.awaited.contains(id)
    }

    /// The consumers with unacknowledged exits, each with the detection time of the earliest such exit.
    pub(crate) fn unacknowledged(&self) -> Vec<Unacknowledged> {
        self.awaited.by_consumer()
    }

    /// Adds, updates or removes the exit record of the id that `event` announces. `has` returns true if the pod's
    /// published status contains an id. Returns true if the records of the pod have changed.
    pub(crate) fn announced(
        &mut self,
        event: &PodLifecycleEvent,
        has: impl Fn(&Id) -> bool,
    ) -> bool {
        let Some(subject) = &event.subject else {
            return false;
        };
        let record = Exit {
            id: subject.id.clone(),
            kind: subject.kind,
            name: subject.name.clone(),
            attempt: subject.attempt,
            exit_code: subject.exit_code,
            reason: subject.reason.clone(),
            finished_at: event.happened_at,
            detected: event.detected,
            removed: event.event == LifecycleType::ContainerRemoved,
        };
        match event.event {
            LifecycleType::ContainerDied => self.add(&event.uid, record),
            // Fills in an exit code and a reason that became known only after the exit was announced.
            LifecycleType::ContainerRemoved | LifecycleType::ContainerChanged => {
                return self.update(&event.uid, record, has);
            }
            // A read showed that the container is running after all, so its exit record is wrong.
            LifecycleType::ContainerStarted => return self.remove(&subject.id).is_some(),
            _ => return false,
        }
        true
    }

    /// Adds the record of a new end, replacing the record of an earlier end of the same id.
    fn add(&mut self, uid: &PodUid, record: Exit) {
        self.remove(&record.id);
        self.awaited.add(&record.id, record.detected);
        self.put(uid, record);
    }

    fn update(&mut self, uid: &PodUid, later: Exit, has: impl Fn(&Id) -> bool) -> bool {
        let known = self.pods.get_mut(uid).and_then(|pod| pod.take(&later.id));
        let Some(mut record) = known else {
            return false;
        };
        // If a later read shows a removed id again, the id no longer counts as removed.
        record.removed = later.removed || (record.removed && !has(&later.id));
        record.update(later);
        self.put(uid, record);
        true
    }

    fn put(&mut self, uid: &PodUid, record: Exit) {
        self.pod_of.insert(record.id.clone(), uid.clone());
        for dropped in self.pods.entry(uid.clone()).or_default().put(record) {
            self.pod_of.remove(&dropped);
            self.awaited.dropped(&dropped);
        }
    }

    /// Removes the record of the id. Returns the id's pod.
    fn remove(&mut self, id: &Id) -> Option<PodUid> {
        self.awaited.remove(id);
        let uid = self.pod_of.remove(id)?;
        if let Some(pod) = self.pods.get_mut(&uid) {
            pod.take(id);
            if pod.is_empty() {
                self.pods.remove(&uid);
            }
        }
        Some(uid)
    }

    /// Acknowledges the exit that was detected at `detected`, but not a later exit of the same id, which the consumer
    /// has not seen. If the record awaits no other consumer, removes it and returns its pod.
    pub(crate) fn acknowledge(
        &mut self,
        consumer: ConsumerId,
        id: &Id,
        detected: Instant,
    ) -> Option<PodUid> {
        let known = self.pods.get(self.pod_of.get(id)?)?.get(id)?;
        if known.detected > detected || !self.awaited.acknowledge(id, consumer) {
            return None;
        }
        self.remove(id)
    }

    /// Notes that the pod has had no sandbox or container since `now`.
    pub(crate) fn pod_is_gone(&mut self, uid: &PodUid, now: Instant) {
        if let Some(pod) = self.pods.get_mut(uid)
            && pod.gone.is_none()
        {
            pod.gone = Some(now);
            self.gone.push_back((now, uid.clone()));
        }
    }

    /// Notes that the pod has a sandbox or container.
    pub(crate) fn pod_exists(&mut self, uid: &PodUid) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.gone = None;
        }
    }

    /// The instant at which [`forget`](Self::forget) must be called.
    pub(crate) fn due(&self) -> Option<Instant> {
        let (gone, _) = self.gone.front()?;
        Some(gone.after(RETENTION))
    }

    /// Forgets the records of pods that have been gone for ten minutes. Returns these pods.
    pub(crate) fn forget(&mut self, now: Instant) -> Vec<PodUid> {
        let mut forgotten = Vec::new();
        while self.due().is_some_and(|due| due <= now)
            && let Some((gone, uid)) = self.gone.pop_front()
        {
            if self.pods.get(&uid).is_none_or(|pod| pod.gone != Some(gone)) {
                continue;
            }
            let pod = self.pods.remove(&uid).unwrap_or_default();
            for id in pod.ids() {
                self.pod_of.remove(id);
                self.awaited.remove(id);
            }
            forgotten.push(uid);
        }
        forgotten
    }

    /// The records of a pod, in the order in which the ends were detected.
    pub(crate) fn of(&self, uid: &PodUid) -> Arc<[Exit]> {
        self.pods.get(uid).map(PodRecords::all).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
