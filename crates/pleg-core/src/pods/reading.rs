//! Pod reads: selects the statuses that complete the rows, and applies rows and statuses.

use std::collections::{BTreeMap, BTreeSet};

use crate::pods::Pods;
use crate::pods::record::{Record, Seen};
use crate::pods::rows::{PodRows, Row};
use crate::types::{
    CallError, CallErrorKind, EventType, Hint, Id, Instant, Kind, KnownState, PodUid, Report,
    ReportedState,
};

/// The answers to the status calls of a read.
pub(crate) type Answers = BTreeMap<Id, Result<Report, CallError>>;

/// Returns true if an event's status has what a list row in the state `row` lacks, so that no status call is needed.
fn complete(events: Option<&Hint>, row: ReportedState) -> bool {
    let own = events.and_then(|hint| hint.own.as_ref());
    own.is_some_and(|own| {
        let details = own.details.container();
        let has_code = details.is_none_or(|details| details.exit_code.is_some());
        let is_known = row != ReportedState::Unknown;
        own.shown == row && is_known && (row != ReportedState::Exited || has_code)
    })
}

fn show_removal(events: Option<&Hint>) -> bool {
    events.is_some_and(|hint| hint.types.contains(EventType::Deleted))
}

/// What a read of a pod knows about one id in addition to its row: the answer to its status call, and its events.
#[derive(Clone, Copy)]
struct OfId<'a> {
    uid: &'a PodUid,
    as_of: Instant,
    answer: Option<&'a Result<Report, CallError>>,
    events: Option<&'a Hint>,
    /// The runtime as a whole fails.
    outage: bool,
    now: Instant,
}

/// The changes made by a read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Applied {
    /// Stale read: it contradicts a recorded end, or a listed id's status was NotFound or lagged behind its row.
    pub(crate) is_stale: bool,
    /// Ids whose recorded end or removal the read has undone.
    pub(crate) undone: BTreeSet<Id>,
    /// Ids that are gone, each with its record as it was published last.
    pub(crate) removed: Vec<(Id, Record)>,
    /// The events that should arrive for the changes that the read has shown.
    pub(crate) changes: Vec<(Id, EventType)>,
    /// A caller wants a PodSync even if nothing has changed.
    pub(crate) needs_sync: bool,
}

impl Applied {
    /// Adds what a read of an id showed: a change, a stale read or a revoked end. `before`: the id's previous state.
    fn add(&mut self, id: &Id, seen: Seen, before: Option<KnownState>, record: &Record) {
        if seen == Seen::Changed && record.is_regular() && before != record.state {
            let ran = before == Some(KnownState::Running) || record.started_at().is_some();
            let change = match record.state {
                Some(KnownState::Running) => Some(EventType::Started),
                Some(KnownState::Exited) if ran => Some(EventType::Stopped),
                _ => None,
            };
            self.changes
                .extend(change.map(|change| (id.clone(), change)));
        }
        match seen {
            Seen::TooEarly => self.is_stale = true,
            Seen::Undone => {
                self.undone.insert(id.clone());
            }
            Seen::Same | Seen::Changed | Seen::Older => {}
        }
    }
}

impl Pods {
    /// The ids whose status must be read to complete `rows`. `all`: a caller wants the details of every id.
    pub(crate) fn due<'a>(
        &self,
        uid: &PodUid,
        rows: &PodRows,
        events: impl Fn(&Id) -> Option<&'a Hint>,
        all: bool,
        now: Instant,
    ) -> Vec<(Id, Kind)> {
        let records = self.get(uid).map(|pod| &pod.records);
        let mut due = Vec::new();
        for (id, row) in &rows.rows {
            let is_due = match records.and_then(|records| records.get(id)) {
                Some(record) => record.is_due(row.shown, rows.as_of, all, now),
                // For an id that was gone, the status decides whether it exists again.
                None => all || self.gone.contains(id) || !complete(events(id), row.shown),
            };
            if is_due {
                due.push((id.clone(), row.kind));
            }
        }
        if !rows.of_relist {
            // Absence from a pod list does not prove that an id is gone; NotFound or a DELETED event does.
            for (id, record) in records.into_iter().flatten() {
                let is_absent = record.in_pod_lists && !rows.rows.contains_key(id);
                let has_failed = record.status.error().is_some();
                let is_in_backoff = has_failed && record.status.is_in_backoff(now);
                let is_proven = record.status.is_missing() || show_removal(events(id));
                if is_absent && !is_proven && (all || !is_in_backoff) {
                    due.push((id.clone(), record.kind()));
                }
            }
        }
        due
    }

    /// Notes that the statuses of `ids` are requested.
    pub(crate) fn requested(&mut self, ids: &[(Id, Kind)], now: Instant) {
        for (id, _) in ids {
            if let Some(record) = self.record_mut(id) {
                record.status.requested(now);
            }
        }
    }

    /// Applies a pod read: its rows, and the answers to its status calls. `outage`: the runtime as a whole fails.
    pub(crate) fn apply<'a>(
        &mut self,
        uid: &PodUid,
        read: &PodRows,
        answers: &Answers,
        events: impl Fn(&Id) -> Option<&'a Hint>,
        outage: bool,
        now: Instant,
    ) -> Applied {
        let mut applied = Applied::default();
        let pod = self.pods.entry(uid.clone()).or_default();
        (pod.error, pod.as_of) = (None, pod.as_of.max(Some(read.as_of)));
        self.failures.listed(uid);
        let of_id = |id: &Id| OfId {
            uid,
            as_of: read.as_of,
            answer: answers.get(id),
            events: events(id),
            outage,
            now,
        };
        for (id, row) in &read.rows {
            self.apply_row(id, row, of_id(id), &mut applied);
        }
        let published = self.get(uid).into_iter().flat_map(|pod| pod.records.keys());
        let absent = published.filter(|id| !read.rows.contains_key(*id)).cloned();
        for id in absent.collect::<Vec<_>>() {
            self.apply_absent(&id, read.of_relist, of_id(&id), &mut applied);
        }
        applied
    }

    /// Applies a row.
    fn apply_row(&mut self, id: &Id, row: &Row, of_id: OfId<'_>, applied: &mut Applied) {
        let (uid, answer, now) = (of_id.uid, of_id.answer, of_id.now);
        let before = self.record(id).and_then(|record| record.state);
        if let Some(whole) = &row.whole {
            let sandbox = whole.identity.sandbox.as_ref();
            let of_sandbox = sandbox.and_then(|sandbox| self.pod_of(sandbox));
            if of_sandbox
                .or(self.mislabelled.get(id))
                .is_some_and(|of| of != uid)
            {
                // Ignores the row: the published sandbox or the last relist shows the container in another pod.
                return;
            } else if self.pod_of(id).is_some() {
                self.move_to(id, uid);
                self.identify(uid, whole);
            } else if self.gone.contains(id) && is_denied(answer) {
                return;
            } else if self.insert(uid, whole, of_id.events) {
                applied.undone.insert(id.clone());
            }
        } else if self.pod_of(id) != Some(uid) {
            // Ignores the row: its id was moved to another pod while these rows waited.
            return;
        }
        let Some(record) = self.record_mut(id) else {
            return;
        };
        let status = answer.and_then(|answer| answer.as_ref().ok());
        let shown = status.map_or(row.shown, |status| status.shown);
        let seen = record.see(shown, of_id.as_of, now);
        match answer {
            Some(Ok(status)) => record.learn(status, of_id.as_of, now),
            Some(Err(error)) => record.status_failed(error, of_id.outage, now),
            None => {}
        }
        // The row shows the exit, the status an earlier state, which was recorded: the stale read causes a retry.
        let lags = row.shown == ReportedState::Exited && shown < ReportedState::Exited;
        applied.is_stale |= record.status.is_missing() || lags;
        applied.add(id, seen, before, record);
    }

    /// Removes an id without a row if the read proves that the id is gone.
    fn apply_absent(&mut self, id: &Id, of_relist: bool, of_id: OfId<'_>, applied: &mut Applied) {
        let (answer, as_of, now) = (of_id.answer, of_id.as_of, of_id.now);
        let Some(record) = self.record_mut(id) else {
            return;
        };
        let before = record.state;
        let is_missing = record.status.is_missing() || show_removal(of_id.events);
        let is_gone = of_relist || (record.in_pod_lists && is_missing);
        match answer {
            _ if is_gone => {}
            _ if !record.in_pod_lists => return,
            Some(Err(_)) if is_denied(answer) => {}
            Some(Err(error)) => return record.status_failed(error, of_id.outage, now),
            Some(Ok(status)) => {
                // The list does not have the id, but its status shows that it exists.
                let seen = record.see(status.shown, as_of, now);
                record.learn(status, as_of, now);
                return applied.add(id, seen, before, record);
            }
            None => return,
        }
        if let Some(record) = self.remove(of_id.uid, id, now) {
            if record.state == Some(KnownState::Running) && record.is_regular() {
                applied.changes.push((id.clone(), EventType::Stopped));
            }
            applied.removed.push((id.clone(), record));
        }
    }

    /// Applies a status that was read outside a pod read: its details, and its state only if that is an end. Returns
    /// the changes, and true if the published pod changes. Sets `is_stale` if the status contradicts the pod's state.
    pub(crate) fn learn_alone(
        &mut self,
        id: &Id,
        status: &Report,
        began: Instant,
        now: Instant,
    ) -> (bool, Applied) {
        let mut applied = Applied::default();
        let record = self.record_mut(id);
        let Some(record) = record.filter(|record| !record.status.is_late(began)) else {
            return (false, applied);
        };
        let (before, failed) = (record.state, record.status.has_failed());
        let details = record.details.clone();
        let seen = record.compare(status.shown, began);
        let has_ended = status.shown == ReportedState::Exited;
        if has_ended {
            record.see(status.shown, began, now);
        }
        if has_ended || seen == Seen::Same {
            record.learn(status, began, now);
        }
        if has_ended {
            applied.add(id, seen, before, record);
        }
        applied.is_stale = !matches!(seen, Seen::Same | Seen::Older);
        let changes = failed || before != record.state || details != record.details;
        (changes, applied)
    }
}

/// Returns true if the status call returned NotFound.
fn is_denied(answer: Option<&Result<Report, CallError>>) -> bool {
    matches!(answer, Some(Err(error)) if error.kind == CallErrorKind::NotFound)
}
