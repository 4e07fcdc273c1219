//! The status of a pod in upstream's form.

use pleg_core::{Id, PodUid, Report, ReportedState, Text};

use crate::time::Time;

/// The cached status of a pod. Sandboxes and containers are the reports of the runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PodStatus {
    /// The pod.
    pub uid: PodUid,
    /// The namespace; empty if it is unknown.
    pub namespace: Text,
    /// The name; empty if it is unknown.
    pub name: Text,
    /// The pod's addresses.
    pub ips: Vec<Text>,
    /// The sandboxes, newest first.
    pub sandboxes: Vec<Report>,
    /// The containers, newest first: consumers use the first of each name.
    pub containers: Vec<Report>,
    /// The containers of the active sandbox. A status from an event has none (B7).
    pub active: Vec<Id>,
    /// The runtime's timestamp of the read; [`Time::ZERO`] if there is none.
    pub timestamp: Time,
}

impl PodStatus {
    /// The default status: upstream's answer for a pod that is not cached.
    #[must_use]
    pub fn empty(uid: PodUid) -> Self {
        Self {
            uid,
            namespace: "".into(),
            name: "".into(),
            ips: Vec::new(),
            sandboxes: Vec::new(),
            containers: Vec::new(),
            active: Vec::new(),
            timestamp: Time::ZERO,
        }
    }

    /// Whether the status has neither a sandbox nor a container.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// The newest container of that name.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<&Report> {
        let has_name = |r: &&Report| r.identity.name.as_deref() == Some(name);
        self.containers.iter().find(has_name)
    }

    /// Upstream keeps the last addresses of a pod without a ready sandbox, because
    /// the teardown of the network races with the read of the status.
    pub(crate) fn keep_addresses(&mut self, previous: &[Text]) {
        let is_ready = |s: &Report| s.shown == ReportedState::Running;
        if self.ips.is_empty() && !self.sandboxes.iter().any(is_ready) {
            self.ips = previous.to_vec();
        }
    }
}

/// Sorts containers by creation time, newest first.
pub(crate) fn newest_first(containers: &mut [Report]) {
    containers.sort_by_key(|r| std::cmp::Reverse(r.identity.created_at));
}
