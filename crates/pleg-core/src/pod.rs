//! One pod: its members, its freshness, and its published status.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::CallError;
use crate::ids::{Id, Ids, Kind, PodUid};
use crate::observed::{Inspection, Report, ReportedState};
use crate::order::Position;
use crate::record::Record;
use crate::records::Records;
use crate::status::{ContainerStatus, PodStatus, SandboxState, SandboxStatus, Text};
use crate::time::Instant;

/// All pods. Large values are boxed, because tree nodes have spare slots.
pub(crate) type Pods = BTreeMap<PodUid, Box<Pod>>;

/// What is held for a pod besides the records of its ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pod {
    pub(crate) namespace: Text,
    pub(crate) name: Text,
    /// Its ids that exist.
    pub(crate) members: Ids,
    /// Its ids, including removed ones, of which a read contradicts the record.
    pub(crate) contradicted: Ids,
    /// The proven freshness of the state.
    pub(crate) as_of: Option<Instant>,
    pub(crate) error: Option<Arc<CallError>>,
    /// The status in the cache.
    pub(crate) published: Option<Arc<PodStatus>>,
    /// How often the pod was inspected again because an id stayed unknown or contradicted.
    pub(crate) rechecks: u32,
    /// When the next such inspection is due.
    pub(crate) recheck_due: Option<Instant>,
    /// A read left out a member, which was listed and had no status: an inspection is owed.
    pub(crate) recheck_skipped: bool,
    /// A read that listed ids without a status. The pod is read once more before waiters are
    /// answered.
    pub(crate) first_read: Option<Box<FirstRead>>,
    /// Since when the whole pod has ended on a stream that may not report removals.
    pub(crate) ended_since: Option<Instant>,
}

/// A read whose lists and status calls disagree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FirstRead {
    pub(crate) read: Inspection,
    /// The ids that become unsettled if the second read shows the same.
    pub(crate) open: Vec<Id>,
}

impl Pod {
    /// Whether nothing needs to be kept for the pod.
    pub(crate) fn is_gone(&self) -> bool {
        self.members.is_empty() && self.contradicted.is_empty()
    }

    /// Sets the pod's names from an answer that has them.
    pub(crate) fn named(&mut self, namespace: Option<&Text>, name: Option<&Text>) {
        for (known, said) in [(&mut self.namespace, namespace), (&mut self.name, name)] {
            if known.is_empty()
                && let Some(said) = said
            {
                *known = said.clone();
            }
        }
    }

    /// The pod's status as it is to be published.
    pub(crate) fn assemble(&self, uid: &PodUid, records: &Records) -> PodStatus {
        let members = self
            .members
            .iter()
            .filter_map(|id| Some((id, &**records.get(id)?)));
        let mut status = assemble_members(uid, members);
        status.namespace = self.namespace.clone();
        status.name = self.name.clone();
        status.error = self.error.clone();
        status.ips = self.addresses(&status);
        status
    }

    /// The answer to a waiter whose own read showed ids that are recorded as removed, or left out
    /// ids that are recorded as existing. Until that is decided, the answer shows what the read
    /// showed (invariant 2).
    pub(crate) fn assemble_with(
        &self,
        uid: &PodUid,
        records: &Records,
        read: &Inspection,
        omitted: &BTreeSet<Id>,
        now: Instant,
    ) -> PodStatus {
        let mut all: BTreeMap<Id, Box<Record>> = self
            .members
            .iter()
            .filter(|id| !omitted.contains(*id))
            .filter_map(|id| Some((id.clone(), records.get(id)?.clone())))
            .collect();
        // An id that was removed during the read does not contradict it.
        let contradicts = |report: &&Report| {
            let record = records.get(&report.id);
            record.is_none_or(|r| !r.is_removed() || read.began > r.recorded_since())
        };
        let failed = read.failed.iter().filter_map(|failed| failed.row.as_ref());
        let row = |(id, shown): &(Id, ReportedState)| Some(records.get(id)?.row(id, *shown));
        let unchanged: Vec<Report> = read.unchanged.iter().filter_map(row).collect();
        let shown = read.found.iter().chain(&read.unsettled).chain(failed);
        for report in shown.chain(&unchanged).filter(contradicts) {
            all.entry(report.id.clone()).or_insert_with(|| {
                let mut record = Record::new(report.identity.clone(), now);
                match Position::shown(report.identity.kind, report.shown) {
                    Some(p) => record.join(p, crate::lifecycle::Source::Inspection, now, now),
                    None => record.set_unknown(now),
                };
                record.details_from_read(report, now);
                record.unsettled = read.unsettled.iter().any(|row| row.id == report.id);
                let failed = read.failed.iter().find(|failed| failed.id == report.id);
                record.error = failed.map(|failed| Arc::new(failed.error.clone()));
                Box::new(record)
            });
        }
        let all = all.iter().map(|(id, record)| (id, &**record));
        let mut status = assemble_members(uid, all);
        status.namespace = self.namespace.clone();
        status.name = self.name.clone();
        status.error = self.error.clone();
        status.ips = self.addresses(&status);
        status
    }

    /// Upstream's rule: the addresses of the active sandbox. While any sandbox is ready, no older
    /// addresses are used. After that the last known addresses are kept as long as anything of the
    /// pod exists.
    fn addresses(&self, status: &PodStatus) -> Box<[Text]> {
        let active = status
            .active_sandbox()
            .map(|s| &s.details.ips)
            .filter(|ips| !ips.is_empty());
        if let Some(ips) = active {
            return ips.clone();
        }
        let any_ready = status
            .sandboxes
            .iter()
            .any(|s| s.state == SandboxState::Ready);
        if any_ready {
            Box::default()
        } else {
            let published = self.published.as_ref();
            published.map_or_else(Box::default, |before| before.ips.clone())
        }
    }
}

fn assemble_members<'a>(
    uid: &PodUid,
    members: impl Iterator<Item = (&'a Id, &'a Record)>,
) -> PodStatus {
    let mut sandboxes = Vec::new();
    let mut containers: Vec<(&Id, &Record)> = Vec::new();
    for (id, record) in members {
        match record.kind() {
            Kind::Sandbox => {
                // Most pods have one sandbox.
                sandboxes.reserve_exact(1);
                sandboxes.extend(record.sandbox_status(id));
            }
            Kind::Container => containers.push((id, record)),
        }
    }
    sandboxes.sort_by(|a, b| newest_first(order_of_sandbox(a), order_of_sandbox(b)));
    let mut status = PodStatus::nothing(uid.clone());
    status.sandboxes = sandboxes.into();
    let active = status.active_sandbox().map(|s| &s.id);
    let containers = containers.into_iter().filter_map(|(id, record)| {
        let active = active.is_some() && record.identity.sandbox.as_ref() == active;
        record.container_status(id, active)
    });
    status.containers = containers.collect();
    status
        .containers
        .sort_by(|a, b| newest_first(order_of_container(a), order_of_container(b)));
    status
}

fn newest_first<T: Ord>(a: T, b: T) -> std::cmp::Ordering {
    b.cmp(&a)
}

/// Upstream sorts sandboxes by attempt, then creation time, then id.
fn order_of_sandbox(s: &SandboxStatus) -> (u32, Option<crate::time::WallTime>, &Id) {
    (s.attempt, s.created_at, &s.id)
}

/// Upstream sorts containers by creation time; consumers use the first of a name as its latest.
fn order_of_container(c: &ContainerStatus) -> (Option<crate::time::WallTime>, u32, &Id) {
    (c.created_at, c.attempt, &c.id)
}

/// Whether all sandboxes of the pod are not ready and all its containers have exited.
pub(crate) fn all_ended<'a>(records: impl Iterator<Item = &'a Record>) -> bool {
    let mut any = false;
    for record in records {
        any = true;
        if record.position() != Some(Position::Exited) {
            return false;
        }
    }
    any
}
