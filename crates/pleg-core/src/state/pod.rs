//! One pod: its members, its freshness, and its published status.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::state::order::Position;
use crate::state::record::Record;
use crate::state::records::Records;
use crate::types::error::CallError;
use crate::types::ids::{Id, Ids, Kind, PodUid};
use crate::types::reads::Ticket;
use crate::types::status::{ContainerStatus, PodStatus, SandboxState, SandboxStatus, Text};
use crate::types::time::Instant;

/// All pods. Large values are boxed, because tree nodes have spare slots.
pub(crate) type Pods = BTreeMap<PodUid, Box<Pod>>;

/// What is held for a pod besides the records of its ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pod {
    pub(crate) namespace: Text,
    pub(crate) name: Text,
    /// Its ids that exist.
    pub(crate) members: Ids,
    /// Its members of which a read contradicts what is recorded.
    pub(crate) contradicted: Ids,
    /// Ids that are recorded as removed and that the newest read showed all the same, as it showed
    /// them. Until that is decided, they are published (invariant 2).
    pub(crate) reappeared: BTreeMap<Id, Box<Record>>,
    /// The freshness that is proved.
    pub(crate) as_of: Option<Instant>,
    pub(crate) error: Option<Arc<CallError>>,
    /// The status in the cache.
    pub(crate) published: Option<Arc<PodStatus>>,
    /// How often the pod was inspected again because an id stayed unknown or contradicted.
    pub(crate) rechecks: u32,
    /// When the next such inspection is due.
    pub(crate) recheck_due: Option<Instant>,
    /// The last inspection omitted a member, or could not read the status of a listed one: another one is owed.
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
    pub(crate) ticket: Ticket,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    /// The ids that became unsettled by it, if the second read says the same.
    pub(crate) open: Vec<Id>,
}

impl Pod {
    /// Whether nothing of it is recorded or shown any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.members.is_empty() && self.reappeared.is_empty()
    }

    /// Whether a read contradicts what is recorded of one of its ids, and it is not decided.
    pub(crate) fn is_disputed(&self) -> bool {
        !self.contradicted.is_empty() || !self.reappeared.is_empty()
    }

    /// Its ids: those that exist, and those that are recorded as removed and shown all the same.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &Id> {
        self.members.iter().chain(self.reappeared.keys())
    }

    /// What is published of each of its ids.
    pub(crate) fn shown<'a>(
        &'a self,
        records: &'a Records,
    ) -> impl Iterator<Item = (&'a Id, &'a Record)> {
        let members = self.members.iter();
        let members = members.filter_map(|id| Some((id, &**records.get(id)?)));
        members.chain(self.reappeared.iter().map(|(id, shown)| (id, &**shown)))
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
        let mut status = assemble_ids(uid, self.shown(records));
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

fn assemble_ids<'a>(uid: &PodUid, shown: impl Iterator<Item = (&'a Id, &'a Record)>) -> PodStatus {
    let mut sandboxes = Vec::new();
    let mut containers: Vec<(&Id, &Record)> = Vec::new();
    for (id, record) in shown {
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
fn order_of_sandbox(s: &SandboxStatus) -> (u32, Option<crate::types::time::WallTime>, &Id) {
    (s.attempt, s.created_at, &s.id)
}

/// Upstream sorts containers by creation time; consumers use the first of a name as its latest.
fn order_of_container(c: &ContainerStatus) -> (Option<crate::types::time::WallTime>, u32, &Id) {
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
