//! The pods that are published.
//!
//! They change by reads ([`apply`](Pods::apply)) and by ends that events show ([`end`](Pods::end)). `Pods` also knows
//! which statuses a read must request.

mod details;
mod failures;
mod gone;
mod pod;
mod reading;
mod record;
mod rows;
mod status_calls;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::state_counts::StateCounts;
use crate::types::error::CallError;
use crate::types::ids::{Id, Kind, PodUid};
use crate::types::reads::KnownIds;
use crate::types::report::{Report, ReportedState};
use crate::types::status::{KnownState, PodStatus, PodView};
use crate::types::time::Instant;

use failures::Failures;
use gone::Gone;
pub(crate) use gone::Left;
use pod::Pod;
pub(crate) use reading::{Answers, Applied, Reported};
pub(crate) use record::Record;
use record::Seen;
pub(crate) use rows::{PodRows, Sorted, rows_of};

/// A change that a read shows, and that the event stream should report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Change {
    /// The container runs now.
    Runs,
    /// It ran and has ended.
    Ended,
    /// It ran and is gone.
    Gone,
}

/// What the cache shows of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// It was never in the cache, or left it long ago.
    Never,
    /// It is one of the last ids that left the cache.
    Gone,
    /// It is in the cache.
    Here {
        state: Option<KnownState>,
        /// Its exit code is known, or it has none because it is a sandbox.
        has_code: bool,
    },
}

/// What was written into the cache.
#[derive(Debug)]
pub(crate) struct Publication {
    /// The status before.
    pub(crate) before: Option<Arc<PodStatus>>,
    /// Its status is empty if nothing of the pod exists.
    pub(crate) view: PodView,
}

/// All published pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pods {
    pods: BTreeMap<PodUid, Pod>,
    /// The pod of each published id.
    pod_of: BTreeMap<Id, PodUid>,
    gone: Gone,
    failures: Failures,
    /// The ids of which a relist needs only the state; `None` after a change.
    known: Option<KnownIds>,
    state_counts: StateCounts,
}

// What is published.
impl Pods {
    pub(crate) fn shown(&self, id: &Id) -> Shown {
        match self.record(id) {
            Some(record) => Shown::Here {
                state: record.state,
                has_code: record.kind() == Kind::Sandbox || record.exit_code().is_some(),
            },
            None if self.is_gone(id) => Shown::Gone,
            None => Shown::Never,
        }
    }

    pub(crate) fn record(&self, id: &Id) -> Option<&Record> {
        self.pods.get(self.pod_of.get(id)?)?.records.get(id)
    }

    fn record_mut(&mut self, id: &Id) -> Option<&mut Record> {
        self.pods.get_mut(self.pod_of.get(id)?)?.records.get_mut(id)
    }

    /// The pod of a published id.
    pub(crate) fn pod_of(&self, id: &Id) -> Option<&PodUid> {
        self.pod_of.get(id)
    }

    pub(crate) fn get(&self, uid: &PodUid) -> Option<&Pod> {
        self.pods.get(uid)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&PodUid, &Pod)> {
        self.pods.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }

    /// The states of all ids.
    pub(crate) fn states(&self) -> impl Iterator<Item = (Id, ReportedState)> {
        let records = self.pods.values().flat_map(|pod| &pod.records);
        records.map(|(id, record)| (id.clone(), record.reported()))
    }

    /// Returns true if rows show an id of the pod whose status is missing.
    pub(crate) fn misses_status(&self, uid: &PodUid) -> bool {
        let records = self
            .get(uid)
            .into_iter()
            .flat_map(|pod| pod.records.values());
        records.into_iter().any(|record| record.status.is_missing())
    }

    /// Returns true if lists of the pod do not show all of it, so that only relists read it.
    pub(crate) fn needs_relist(&self, uid: &PodUid) -> bool {
        self.get(uid).is_some_and(Pod::needs_relist)
    }

    /// Returns true if rows of the pod show exactly what is published.
    pub(crate) fn is_same(&self, uid: &PodUid, rows: &PodRows) -> bool {
        let records = self.get(uid).map(|pod| &pod.records);
        let is_same = |(id, record): (&Id, &Record)| {
            let row = rows.rows.get(id);
            let seen = row.map(|row| record.compare(row.shown, rows.as_of));
            matches!(seen, Some(Seen::Same | Seen::Older))
        };
        rows.rows.len() == records.map_or(0, BTreeMap::len)
            && records.into_iter().flatten().all(is_same)
    }

    /// Returns true if rows show an id without label that is not published: no list of its pod shows it.
    pub(crate) fn is_unlabelled(&self, rows: &PodRows) -> bool {
        rows.rows.iter().any(|(id, row)| {
            let is_unlabelled = |row: &Report| row.identity.unlabelled;
            row.whole.as_ref().is_some_and(is_unlabelled) && self.record(id).is_none()
        })
    }

    /// The ids of which a relist needs to return only the state.
    pub(crate) fn known_ids(&mut self) -> KnownIds {
        let (pods, pod_of) = (&self.pods, &self.pod_of);
        // A container may be listed before its sandbox; then its pod is not certain.
        let is_placed = |record: &Record| match &record.identity.sandbox {
            Some(sandbox) => pod_of.contains_key(sandbox),
            None => record.kind() == Kind::Sandbox,
        };
        let known = self.known.get_or_insert_with(|| {
            let known = pod_of.iter().filter_map(|(id, uid)| {
                let record = pods.get(uid)?.records.get(id)?;
                let is_complete = record.identity.tells_apart() && is_placed(record);
                is_complete.then(|| (id.clone(), record.kind()))
            });
            KnownIds::new(known.collect())
        });
        known.clone()
    }

    /// Pods and containers by state.
    pub(crate) const fn state_counts(&self) -> StateCounts {
        self.state_counts
    }

    /// The published id whose status was requested least recently, except those that are in backoff.
    pub(crate) fn least_recently_requested(&self, now: Instant) -> Option<(Id, Kind)> {
        let pods = self.pods.iter();
        let pods = pods.filter(|(uid, _)| self.failures.retry_at(uid).is_none());
        let records = pods.flat_map(|(_, pod)| &pod.records);
        let records = records.filter(|(_, record)| !record.status.is_in_backoff(now));
        let least = records.min_by_key(|(_, record)| record.status.last());
        least.map(|(id, record)| (id.clone(), record.kind()))
    }

    /// The number of ids and pods of which something is stored.
    pub(crate) fn stored(&self) -> usize {
        self.pod_of.len() + self.pods.len() + self.gone.len() + self.failures.len()
    }
}

// Changes.
impl Pods {
    /// Writes the pod's view. A pod of which nothing exists is forgotten.
    pub(crate) fn publish(&mut self, uid: &PodUid) -> Option<Publication> {
        let pod = self.pods.get_mut(uid)?;
        let before = pod.published.clone();
        let mut view = pod.view(uid);
        let fails = |record: &Record| record.status.error().is_some() || record.status.is_missing();
        let fails = pod.records.values().any(fails);
        if pod.records.is_empty() {
            view.status = Arc::new(PodStatus::nothing(uid.clone()));
            self.pods.remove(uid);
        }
        self.failures.set_status_failing(uid, fails);
        let status = Some(&*view.status);
        self.state_counts.recount(before.as_deref(), status);
        Some(Publication { before, view })
    }

    /// The published view again, for an answer.
    pub(crate) fn view(&mut self, uid: &PodUid) -> Option<PodView> {
        self.pods.get_mut(uid).map(|pod| pod.view(uid))
    }

    /// An event shows that a published id has ended.
    pub(crate) fn end(&mut self, id: &Id, status: &Report, now: Instant) {
        if let Some(record) = self.record_mut(id) {
            record.end(status, now);
        }
    }

    /// Rows that were requested at `as_of` show exactly what is published.
    pub(crate) fn confirm(&mut self, uid: &PodUid, as_of: Instant) {
        self.failures.listed(uid);
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.as_of = pod.as_of.max(Some(as_of));
        }
    }

    /// Rows of the pod were read.
    fn listed(&mut self, uid: &PodUid, as_of: Instant) {
        let pod = self.pods.entry(uid.clone()).or_default();
        pod.error = None;
        self.confirm(uid, as_of);
    }

    fn is_published_in(&self, uid: &PodUid, id: &Id) -> bool {
        self.get(uid)
            .is_some_and(|pod| pod.records.contains_key(id))
    }

    /// A row shows an id for the first time. `own`: its own status in events. Returns true if it was gone before.
    fn insert(&mut self, uid: &PodUid, row: &Report, own: Option<&Report>) -> bool {
        let label = row.identity.pod.as_ref();
        let in_pod_lists = !row.identity.unlabelled && label.is_none_or(|label| label == uid);
        let mut record = Record::new(row, in_pod_lists);
        record.is_irregular = self.gone.returns(&row.id);
        if let Some(own) = own {
            record.details = details::merged(&record.details, &own.details, false);
        }
        let was_gone = record.is_irregular;
        let pod = self.pods.entry(uid.clone()).or_default();
        pod.records.insert(row.id.clone(), record);
        self.pod_of.insert(row.id.clone(), uid.clone());
        self.known = None;
        self.identify(uid, row);
        was_gone
    }

    /// A whole row shows the identity of a published id.
    fn identify(&mut self, uid: &PodUid, row: &Report) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.set_name(&row.identity);
            if let Some(record) = pod.records.get_mut(&row.id) {
                record.identity.fill_from(&row.identity);
            }
        }
    }

    /// Moves a container whose sandbox was unknown when it was published to the pod of its sandbox.
    fn move_to(&mut self, id: &Id, uid: &PodUid) {
        let known = self.pod_of.get(id).filter(|known| *known != uid);
        let pod = known.and_then(|known| self.pods.get_mut(known));
        if let Some(record) = pod.and_then(|pod| pod.records.remove(id)) {
            let pod = self.pods.entry(uid.clone()).or_default();
            pod.records.insert(id.clone(), record);
            self.pod_of.insert(id.clone(), uid.clone());
        }
    }

    /// A published id is gone.
    fn remove(&mut self, uid: &PodUid, id: &Id, now: Instant) -> Option<Record> {
        let record = self.pods.get_mut(uid)?.records.remove(id)?;
        self.pod_of.remove(id);
        self.known = None;
        let left = Left {
            uid: uid.clone(),
            record: record.clone(),
            is_unannounced: false,
        };
        self.gone.insert(id, left, now);
        Some(record)
    }
}

// Ids that are gone.
impl Pods {
    pub(crate) fn is_gone(&self, id: &Id) -> bool {
        self.gone.contains(id)
    }

    /// An id that was never in the cache has existed and is gone.
    pub(crate) fn never_shown(&mut self, id: &Id, left: Left, now: Instant) {
        self.gone.insert(id, left, now);
    }

    /// Announcements begin: what is gone before was not announced.
    pub(crate) fn forget_gone_states(&mut self) {
        self.gone.forget_states();
    }

    /// An event shows the end of a gone id. Returns its last state if that adds to what was announced.
    pub(crate) fn learn_end_of_gone(
        &mut self,
        id: &Id,
        end: &Report,
        now: Instant,
    ) -> Option<Left> {
        self.gone.learn_end(id, end, now).cloned()
    }

    /// An event that was not replayed is about a gone id. Returns its last state if that must be announced now.
    pub(crate) fn gone_is_new(&mut self, id: &Id, now: Instant) -> Option<Left> {
        self.gone.is_new(id, now).cloned()
    }
}

// Failures.
impl Pods {
    /// The rows of the pod could not be read.
    pub(crate) fn list_failed(&mut self, uid: &PodUid, error: &CallError, now: Instant) {
        self.failures.list_failed(uid, now);
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.error = Some(Arc::new(error.clone()));
        }
    }

    /// The status call of an id that was made by itself has failed.
    pub(crate) fn status_failed(&mut self, id: &Id, error: &CallError, now: Instant) {
        if let Some(uid) = self.pod_of.get(id).cloned()
            && let Some(record) = self.record_mut(id)
        {
            record.status_failed(error, now);
            self.note_failure(&uid, id);
        }
    }

    /// If the status call of the id has failed, `Version` decides whether that counts.
    fn note_failure(&mut self, uid: &PodUid, id: &Id) {
        if self
            .record(id)
            .is_some_and(|record| record.status.is_unjudged())
        {
            self.failures.status_failed(uid);
        }
    }

    /// `Version` has answered. `counts`: the runtime as a whole works, so the failures since its last answer count. Returns
    /// the pods that had failures.
    pub(crate) fn judge(&mut self, counts: bool, now: Instant) -> BTreeSet<PodUid> {
        let failing = self.failures.judge(counts, now);
        for uid in &failing {
            let pod = self.pods.get_mut(uid).into_iter();
            pod.flat_map(|pod| pod.records.values_mut())
                .for_each(|record| record.judge(counts, now));
        }
        failing
    }

    /// The status of the id is read again now.
    pub(crate) fn retry_now(&mut self, id: &Id, now: Instant) {
        if let Some(record) = self.record_mut(id) {
            record.status.retry_now(now);
        }
    }

    /// When the pod must be read again because a call failed or an id is in the state UNKNOWN.
    pub(crate) fn retry_at(&self, uid: &PodUid) -> Option<Instant> {
        let records = self
            .get(uid)
            .into_iter()
            .flat_map(|pod| pod.records.values());
        let statuses = || records.filter_map(|record| record.status.retry_at()).min();
        self.backoff(uid).or_else(statuses)
    }

    /// The instant before which nobody but a caller reads the pod.
    pub(crate) fn backoff(&self, uid: &PodUid) -> Option<Instant> {
        self.failures.retry_at(uid)
    }

    /// Pods that cannot be read, or of which a status cannot be read.
    pub(crate) const fn failing(&self) -> &BTreeSet<PodUid> {
        self.failures.named()
    }
}
