//! One pod as it is published.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::pods::record::Record;
use crate::types::error::CallError;
use crate::types::ids::{Id, Kind, PodUid};
use crate::types::report::Identity;
use crate::types::status::{PodStatus, PodView, SandboxState, Text};
use crate::types::time::Instant;

/// A pod: its ids, and how fresh they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Pod {
    pub(crate) records: BTreeMap<Id, Record>,
    pub(crate) namespace: Text,
    pub(crate) name: Text,
    /// When the rows of the last read were requested.
    pub(crate) as_of: Option<Instant>,
    /// The error of the last read, if its rows failed.
    pub(crate) error: Option<Arc<CallError>>,
    pub(crate) published: Option<Arc<PodStatus>>,
}

impl Pod {
    /// Takes the names from the identity of one of its ids, unless they are known.
    pub(crate) fn set_name(&mut self, of: &Identity) {
        let names = [
            (&mut self.namespace, &of.namespace),
            (&mut self.name, &of.pod_name),
        ];
        for (known, new) in names {
            if known.is_empty()
                && let Some(new) = new
            {
                *known = new.clone();
            }
        }
    }

    /// Returns true if lists of this pod do not show all of it, so that only relists read it.
    pub(crate) fn needs_relist(&self) -> bool {
        self.records.values().any(|record| !record.in_pod_lists)
    }

    /// The view as it is published. Unchanged statuses stay shared.
    pub(crate) fn view(&mut self, uid: &PodUid) -> PodView {
        let status = self.assemble(uid);
        let status = match self.published.take() {
            Some(before) if *before == status => before,
            _ => Arc::new(status),
        };
        self.published = Some(status.clone());
        let details_as_of = self.records.values().map(|record| record.status.as_of());
        PodView::new(status, self.as_of, details_as_of.min().flatten())
    }

    fn assemble(&self, uid: &PodUid) -> PodStatus {
        let mut status = PodStatus::nothing(uid.clone());
        status.namespace = self.namespace.clone();
        status.name = self.name.clone();
        let of = |kind| {
            let records = self.records.iter();
            records.filter(move |(_, record)| record.kind() == kind)
        };
        let sandboxes = of(Kind::Sandbox).filter_map(|(id, record)| record.sandbox_status(id));
        status.sandboxes = sandboxes.collect();
        status.sandboxes.sort_by(|a, b| {
            (b.attempt, b.created_at, &b.id).cmp(&(a.attempt, a.created_at, &a.id))
        });
        let active = status.active_sandbox().map(|sandbox| sandbox.id.clone());
        let containers = of(Kind::Container).filter_map(|(id, record)| {
            let active = active.is_some() && record.identity.sandbox == active;
            record.container_status(id, active)
        });
        status.containers = containers.collect();
        status.containers.sort_by(|a, b| {
            (b.attempt, b.created_at, &b.id).cmp(&(a.attempt, a.created_at, &a.id))
        });
        let of_status = || {
            self.records
                .values()
                .find_map(|record| record.status.error().cloned())
        };
        status.error = self.error.clone().or_else(of_status);
        status.ips = self.addresses(&status);
        status
    }

    /// Upstream's rule: the addresses of the active sandbox. After its end, the last known ones are kept.
    fn addresses(&self, status: &PodStatus) -> Box<[Text]> {
        let active = status.active_sandbox().map(|s| &s.details.ips);
        if let Some(ips) = active.filter(|ips| !ips.is_empty()) {
            return ips.clone();
        }
        let ready = |s: &crate::SandboxStatus| s.state == SandboxState::Ready;
        match &self.published {
            Some(before) if !status.sandboxes.iter().any(ready) => before.ips.clone(),
            _ => Box::default(),
        }
    }
}
