//! The status of a pod as upstream's consumers have it.

use pleg_core::{Id, PodUid, Report, Shown, Text};

use crate::time::Time;

/// What is cached of a pod. Sandboxes and containers are as the runtime reported them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PodStatus {
    /// The pod.
    pub uid: PodUid,
    /// Its namespace; empty if no answer said.
    pub namespace: Text,
    /// Its name; empty if no answer said.
    pub name: Text,
    /// The pod's addresses.
    pub ips: Vec<Text>,
    /// The sandboxes, newest first.
    pub sandboxes: Vec<Report>,
    /// The containers, newest first: consumers take the first of a name.
    pub containers: Vec<Report>,
    /// The containers of the active sandbox. Statuses made of events have none (B7).
    pub active: Vec<Id>,
    /// When the runtime says that it read this; [`Time::ZERO`] where it does not.
    pub timestamp: Time,
}

impl PodStatus {
    /// The default status: upstream's answer for a pod of which nothing is cached.
    #[must_use]
    pub fn nothing(uid: PodUid) -> Self {
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

    /// Whether it shows neither a sandbox nor a container.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// The newest container of that name.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<&Report> {
        let named = |r: &&Report| r.identity.name.as_deref() == Some(name);
        self.containers.iter().find(named)
    }

    /// Upstream keeps the last addresses of a pod of which no sandbox is ready any more
    /// (reference, 1.8): a teardown races with the reading of the status.
    pub(crate) fn keep_addresses(&mut self, before: &[Text]) {
        let ready = |s: &Report| s.shown == Shown::Running;
        if self.ips.is_empty() && !self.sandboxes.iter().any(ready) {
            self.ips = before.to_vec();
        }
    }
}

/// Sorts as consumers expect containers: by creation, newest first.
pub(crate) fn newest_first(containers: &mut [Report]) {
    containers.sort_by_key(|r| std::cmp::Reverse(r.identity.created_at));
}
