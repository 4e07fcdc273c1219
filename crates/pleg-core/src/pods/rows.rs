//! The rows of one pod, and the sorting of relist rows into pods.

use std::collections::{BTreeMap, BTreeSet};

use crate::pods::Pods;
use crate::pods::record::{Record, Seen};
use crate::types::{Id, Instant, Kind, PodUid, Report, ReportedState, Rows};

/// The rows of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodRows {
    /// The instant at which the rows were requested.
    pub(crate) as_of: Instant,
    /// The rows come from a relist, which shows every id of the node.
    pub(crate) of_relist: bool,
    pub(crate) rows: BTreeMap<Id, Row>,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) kind: Kind,
    pub(crate) shown: ReportedState,
    /// The decoded row; `None` for a published id in a relist, which decodes only the state of such an id.
    pub(crate) whole: Option<Report>,
}

impl PodRows {
    pub(crate) const fn new(as_of: Instant, of_relist: bool) -> Self {
        Self {
            as_of,
            of_relist,
            rows: BTreeMap::new(),
        }
    }

    /// Adds a row. If an id has two rows, the state further on in its life counts: Exited wins over Running.
    fn add(&mut self, row: Report) {
        let (id, kind, shown) = (row.id.clone(), row.identity.kind, row.shown);
        let whole = Some(row);
        let first = Row { kind, shown, whole };
        let known = self.rows.entry(id).or_insert(first);
        known.shown = known.shown.later(shown);
    }
}

/// The rows of a relist by pod.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    /// Pods whose rows match the published state and that have no status due.
    pub(crate) same: Vec<PodUid>,
    /// The pods of `same` that still need work: a listed id's status call gave NotFound, or only relists read the pod.
    pub(crate) with_work: BTreeSet<PodUid>,
    /// All other pods: new, changed, absent, or with a read due.
    pub(crate) differ: BTreeMap<PodUid, PodRows>,
}

impl Sorted {
    /// Sorts the rows of a relist. `is_read`: a read of the pod is in flight or needed, so the pod counts as changed.
    pub(crate) fn new(
        rows: &Rows,
        pods: &mut Pods,
        as_of: Instant,
        is_read: impl Fn(&PodUid) -> bool,
        now: Instant,
    ) -> Self {
        let mut new: BTreeMap<PodUid, Vec<&Report>> = BTreeMap::new();
        let sandboxes = pods_of_sandboxes(rows.new_rows());
        pods.mislabelled.clear();
        for row in rows.new_rows() {
            if let Some(uid) = place(row, &sandboxes, pods) {
                pods.move_to(&row.id, &uid);
                if row.identity.pod.as_ref().is_some_and(|pod| *pod != uid) {
                    pods.mislabelled.insert(row.id.clone(), uid.clone());
                }
                new.entry(uid).or_default().push(row);
            }
        }
        let mut sorted = Self::default();
        for (uid, pod) in pods.iter() {
            let is_same = |(id, record): (&Id, &Record)| {
                let row = rows.state(id, record.kind());
                row.is_some_and(|row| {
                    record.compare(row, as_of) == Seen::Same
                        && !record.is_due(row, as_of, false, now)
                })
            };
            let is_known = !new.contains_key(uid) && !pod.records.is_empty();
            if is_known && pod.error.is_none() && !is_read(uid) && pod.records().all(is_same) {
                sorted.same.push(uid.clone());
                if pod.misses_status() || pod.needs_relist() {
                    sorted.with_work.insert(uid.clone());
                }
                continue;
            }
            let mut of_pod = PodRows::new(as_of, true);
            for (id, record) in &pod.records {
                let kind = record.kind();
                if let Some(shown) = rows.state(id, kind) {
                    let whole = None;
                    of_pod.rows.insert(id.clone(), Row { kind, shown, whole });
                }
            }
            sorted.differ.insert(uid.clone(), of_pod);
        }
        for (uid, rows) in new {
            let none = || PodRows::new(as_of, true);
            let of_pod = sorted.differ.entry(uid).or_insert_with(none);
            rows.into_iter().cloned().for_each(|row| of_pod.add(row));
        }
        sorted
    }

    /// Adds to `differ`, without rows, a pod that is being read or must be read, but is neither listed nor published.
    pub(crate) fn add_absent(&mut self, uid: &PodUid, as_of: Instant) {
        // `same` is sorted by pod, as a binary search requires.
        if self.same.binary_search(uid).is_err() && !self.differ.contains_key(uid) {
            self.differ.insert(uid.clone(), PodRows::new(as_of, true));
        }
    }
}

/// The rows of a pod list that belong to that pod: some runtimes ignore the filter and return the rows of all pods.
pub(crate) fn rows_of(uid: &PodUid, rows: Vec<Report>, pods: &Pods, as_of: Instant) -> PodRows {
    let sandboxes = pods_of_sandboxes(&rows);
    let mut of_pod = PodRows::new(as_of, false);
    for row in rows {
        if place(&row, &sandboxes, pods).as_ref() == Some(uid) {
            of_pod.add(row);
        }
    }
    of_pod
}

/// The pod of each sandbox in `rows`.
fn pods_of_sandboxes(rows: &[Report]) -> BTreeMap<Id, PodUid> {
    let sandboxes = rows.iter().filter(|r| r.identity.kind == Kind::Sandbox);
    let pods = sandboxes.map(|row| {
        let own = row.identity.pod.clone();
        (row.id.clone(), own.unwrap_or_else(|| (&row.id).into()))
    });
    pods.collect()
}

/// The pod of a row: its sandbox's pod, else the pod that has its id, else its label's, else its sandbox's id as uid.
fn place(row: &Report, sandboxes: &BTreeMap<Id, PodUid>, pods: &Pods) -> Option<PodUid> {
    let identity = &row.identity;
    let sandbox = match identity.kind {
        Kind::Sandbox => Some(&row.id),
        Kind::Container => identity.sandbox.as_ref(),
    };
    let of_sandbox = sandbox.and_then(|id| sandboxes.get(id).or_else(|| pods.pod_of(id)));
    let known = of_sandbox.or_else(|| pods.pod_of(&row.id));
    let pod = known.or(identity.pod.as_ref()).cloned();
    pod.or_else(|| sandbox.map(PodUid::from))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Details, Identity};

    fn row(id: &str, sandbox: Option<&str>, label: Option<&str>) -> Report {
        let kind = sandbox.map_or(Kind::Sandbox, |_| Kind::Container);
        let mut identity = Identity::new(kind);
        identity.sandbox = sandbox.map(Id::from);
        identity.pod = label.map(PodUid::from);
        Report::new(id, ReportedState::Running, identity, Details::none(kind))
    }

    #[test]
    fn container_belongs_to_the_pod_of_its_sandbox() {
        let pods = Pods::default();
        let sandboxes = pods_of_sandboxes(&[row("s", None, Some("p")), row("bare", None, None)]);
        for (sandbox, label, pod) in [
            ("s", Some("q"), "p"),
            ("bare", Some("q"), "bare"),
            ("unknown", Some("q"), "q"),
            ("unknown", None, "unknown"),
        ] {
            let container = row("c", Some(sandbox), label);
            assert_eq!(place(&container, &sandboxes, &pods), Some(pod.into()));
        }
    }
}
