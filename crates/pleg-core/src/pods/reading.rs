//! Reads of a pod: which statuses complete its rows, and what rows and statuses change.

use std::collections::{BTreeMap, BTreeSet};

use crate::pods::record::{Record, Seen};
use crate::pods::rows::{PodRows, Row};
use crate::pods::{Change, Pods};
use crate::types::error::{CallError, CallErrorKind};
use crate::types::ids::{Id, Kind, PodUid};
use crate::types::report::{Details, Report, ReportedState};
use crate::types::status::KnownState;
use crate::types::time::Instant;

/// The answers to the status calls of a read.
pub(crate) type Answers = BTreeMap<Id, Result<Report, CallError>>;

/// What events have reported of an id.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reported<'a> {
    /// Its own status.
    pub(crate) own: Option<&'a Report>,
    pub(crate) deleted: bool,
}

impl Reported<'_> {
    /// Returns true if the own status completes a row in that state, so that no status must be read.
    fn serves(self, row: ReportedState) -> bool {
        let Some(own) = self.own else { return false };
        let has_code = match &own.details {
            Details::Container(details) => details.exit_code.is_some(),
            Details::Sandbox(_) => true,
        };
        own.shown == row
            && row != ReportedState::Unknown
            && (row != ReportedState::Exited || has_code)
    }
}

/// What a read changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Applied {
    /// The read showed less than what is recorded: an end, or an id whose status is missing.
    pub(crate) shows_less: bool,
    /// Ids whose end or removal the read has undone.
    pub(crate) undone: BTreeSet<Id>,
    /// Ids that are gone, as they were published last.
    pub(crate) removed: Vec<(Id, Record)>,
    /// The changes that the event stream should report.
    pub(crate) changes: Vec<(Id, Change)>,
    /// A caller wants a PodSync even if nothing has changed.
    pub(crate) needs_sync: bool,
}

/// What a status changed that was read by itself.
#[derive(Debug, Default)]
pub(crate) struct Alone {
    /// It shows another state than the published one.
    pub(crate) differs: bool,
    /// It changes the view of the pod.
    pub(crate) changes: bool,
    pub(crate) applied: Applied,
}

impl Applied {
    /// Adds what a read shows of an id. `before`: its state before the read, if it was published.
    fn add(&mut self, id: &Id, seen: Seen, before: Option<KnownState>, record: &Record) {
        if seen == Seen::Changed && record.is_regular() && before != record.state {
            let ran = before == Some(KnownState::Running) || record.started_at().is_some();
            let change = match record.state {
                Some(KnownState::Running) => Some(Change::Runs),
                Some(KnownState::Exited) if ran => Some(Change::Ended),
                _ => None,
            };
            let change = change.map(|change| (id.clone(), change));
            self.changes.extend(change);
        }
        match seen {
            Seen::TooEarly => self.shows_less = true,
            Seen::Undone => {
                self.undone.insert(id.clone());
            }
            Seen::Same | Seen::Changed | Seen::Older => {}
        }
    }
}

impl Pods {
    /// The ids whose status must be read to complete these rows. `all`: a caller wants details.
    pub(crate) fn due<'a>(
        &self,
        uid: &PodUid,
        rows: &PodRows,
        events: impl Fn(&Id) -> Reported<'a>,
        all: bool,
        now: Instant,
    ) -> Vec<(Id, Kind)> {
        let records = self.get(uid).map(|pod| &pod.records);
        let mut due = Vec::new();
        for (id, row) in &rows.rows {
            let is_due = match records.and_then(|records| records.get(id)) {
                Some(record) => record.is_due(row.shown, rows.as_of, all, now),
                // The status of a gone id decides whether it is there again.
                None => all || self.is_gone(id) || !events(id).serves(row.shown),
            };
            if is_due {
                due.push((id.clone(), row.kind));
            }
        }
        if !rows.of_relist {
            // A list of the pod does not prove that an id is gone, NotFound or a DELETED does.
            for (id, record) in records.into_iter().flatten() {
                let is_absent = record.in_pod_lists && !rows.rows.contains_key(id);
                let has_failed = record.status.error().is_some();
                let is_in_backoff = has_failed && record.status.is_in_backoff(now);
                let is_proven = record.status.is_missing() || events(id).deleted;
                if is_absent && !is_proven && (all || !is_in_backoff) {
                    due.push((id.clone(), record.kind()));
                }
            }
        }
        due
    }

    /// These statuses are requested.
    pub(crate) fn requested(&mut self, ids: &[(Id, Kind)], now: Instant) {
        for (id, _) in ids {
            if let Some(record) = self.record_mut(id) {
                record.status.requested(now);
            }
        }
    }

    /// Applies a read: rows, and the statuses that were due.
    pub(crate) fn apply<'a>(
        &mut self,
        uid: &PodUid,
        read: &PodRows,
        answers: &Answers,
        events: impl Fn(&Id) -> Reported<'a>,
        now: Instant,
    ) -> Applied {
        let mut applied = Applied::default();
        self.listed(uid, read.as_of);
        for (id, row) in &read.rows {
            let of_id = (uid, id);
            self.apply_row(
                of_id,
                row,
                read.as_of,
                answers.get(id),
                &events,
                &mut applied,
                now,
            );
        }
        for id in self.absent(uid, read) {
            self.apply_absent(
                (uid, &id),
                read,
                answers.get(&id),
                &events,
                &mut applied,
                now,
            );
        }
        applied
    }

    /// A row shows the id.
    #[allow(clippy::too_many_arguments, reason = "one read, taken apart")]
    fn apply_row<'a>(
        &mut self,
        (uid, id): (&PodUid, &Id),
        row: &Row,
        as_of: Instant,
        answer: Option<&Result<Report, CallError>>,
        events: impl Fn(&Id) -> Reported<'a>,
        applied: &mut Applied,
        now: Instant,
    ) {
        let before = self.record(id).and_then(|record| record.state);
        if let Some(whole) = &row.whole {
            if self.is_published_in(uid, id) {
                self.identify(uid, whole);
            } else if self.is_gone(id) && is_denied(answer) {
                return;
            } else if self.insert(uid, whole, events(id).own) {
                applied.undone.insert(id.clone());
            }
        }
        let Some(record) = self.record_mut(id) else {
            return;
        };
        let status = answer.and_then(|answer| answer.as_ref().ok());
        let shown = status.map_or(row.shown, |status| status.shown);
        let seen = record.see(shown, as_of, now);
        match answer {
            Some(Ok(status)) => record.learn(status, as_of, now),
            Some(Err(error)) => record.status_failed(error, now),
            None => {}
        }
        // A status may lag behind its row: nobody else would look again.
        let lags = row.shown == ReportedState::Exited && shown < ReportedState::Exited;
        applied.shows_less |= record.status.is_missing() || lags;
        applied.add(id, seen, before, record);
        self.note_failure(uid, id);
    }

    /// The published ids of the pod that the rows do not show.
    fn absent(&self, uid: &PodUid, read: &PodRows) -> Vec<Id> {
        let records = self.get(uid).map(|pod| &pod.records);
        let ids = records.into_iter().flat_map(|records| records.keys());
        ids.filter(|id| !read.rows.contains_key(*id))
            .cloned()
            .collect()
    }

    /// No row shows the id: it is gone if that is proven.
    fn apply_absent<'a>(
        &mut self,
        (uid, id): (&PodUid, &Id),
        read: &PodRows,
        answer: Option<&Result<Report, CallError>>,
        events: impl Fn(&Id) -> Reported<'a>,
        applied: &mut Applied,
        now: Instant,
    ) {
        let Some(record) = self.record_mut(id) else {
            return;
        };
        let before = record.state;
        let is_missing = record.status.is_missing() || events(id).deleted;
        let is_gone = read.of_relist || (record.in_pod_lists && is_missing);
        match answer {
            _ if is_gone => {}
            _ if !record.in_pod_lists => return,
            Some(Err(_)) if is_denied(answer) => {}
            Some(Err(error)) => {
                record.status_failed(error, now);
                return self.note_failure(uid, id);
            }
            Some(Ok(status)) => {
                // The list has lost it, but it exists.
                let seen = record.see(status.shown, read.as_of, now);
                record.learn(status, read.as_of, now);
                return applied.add(id, seen, before, record);
            }
            None => return,
        }
        if let Some(record) = self.remove(uid, id, now) {
            if record.state == Some(KnownState::Running) && record.is_regular() {
                applied.changes.push((id.clone(), Change::Gone));
            }
            applied.removed.push((id.clone(), record));
        }
    }

    /// A status that was read by itself shows details and an end, nothing else.
    pub(crate) fn learn_alone(
        &mut self,
        id: &Id,
        status: &Report,
        began: Instant,
        now: Instant,
    ) -> Alone {
        let mut alone = Alone::default();
        let Some(record) = self.record_mut(id) else {
            return alone;
        };
        let (before, failed) = (record.state, record.status.has_failed());
        let details = record.details.clone();
        let seen = record.compare(status.shown, began);
        alone.differs = !matches!(seen, Seen::Same | Seen::Older);
        let has_ended = status.shown == ReportedState::Exited;
        if has_ended {
            record.see(status.shown, began, now);
        }
        if has_ended || seen == Seen::Same {
            record.learn(status, began, now);
        }
        alone.changes = failed || before != record.state || details != record.details;
        if has_ended {
            alone.applied.add(id, seen, before, record);
        }
        alone
    }
}

/// Returns true if the runtime says that the id does not exist.
fn is_denied(answer: Option<&Result<Report, CallError>>) -> bool {
    matches!(answer, Some(Err(error)) if error.kind == CallErrorKind::NotFound)
}
