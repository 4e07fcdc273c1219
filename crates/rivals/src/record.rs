//! The pods as the runtime's last handled and current lists show them, and upstream's table of state transitions.

use std::collections::{BTreeMap, BTreeSet};

use pleg_core::{Id, LifecycleType, PodUid, ReportedState};

use crate::cache::PodStatus;
use crate::subject::Event;

/// The state of a container or sandbox in upstream's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    NonExistent,
    Running,
    Exited,
    /// Unknown or created.
    Unknown,
}

fn state(pod: Option<&PodStatus>, id: &Id) -> State {
    let mut all = pod
        .into_iter()
        .flat_map(|pod| pod.containers.iter().chain(&pod.sandboxes));
    match all.find(|r| r.id == *id).map(|r| r.shown) {
        None => State::NonExistent,
        Some(ReportedState::Running) => State::Running,
        Some(ReportedState::Exited) => State::Exited,
        Some(ReportedState::Created | ReportedState::Unknown) => State::Unknown,
    }
}

/// A pod as the last handled list shows it, and as the current list shows it.
#[derive(Debug, Default)]
pub(crate) struct Record {
    old: Option<PodStatus>,
    pub(crate) current: Option<PodStatus>,
}

impl Record {
    /// The events for the changes between the two lists. Ids of the old list come first, containers before sandboxes.
    pub(crate) fn events(&self, uid: &PodUid) -> Vec<Event> {
        let mut seen = BTreeSet::new();
        let pods = [&self.old, &self.current].into_iter().flatten();
        let ids = pods.flat_map(|p| p.containers.iter().chain(&p.sandboxes));
        let ids = ids.map(|r| &r.id).filter(|id| seen.insert(*id));
        ids.flat_map(|id| {
            let (old, new) = (self.old.as_ref(), self.current.as_ref());
            let types = transition(state(old, id), state(new, id));
            types.iter().map(|event| Event {
                uid: uid.clone(),
                event: *event,
                data: Some(id.clone()),
            })
        })
        .collect()
    }
}

/// The events that upstream's table has for a change from the state `old` to the state `new`.
const fn transition(old: State, new: State) -> &'static [LifecycleType] {
    use LifecycleType::{ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted};
    use State::{Exited, NonExistent, Running, Unknown};
    match (old, new) {
        (Running, Running) | (Exited, Exited) | (Unknown, Unknown) | (NonExistent, NonExistent) => {
            &[]
        }
        (_, Running) => &[ContainerStarted],
        (_, Exited) => &[ContainerDied],
        (_, Unknown) => &[ContainerChanged],
        (Exited, NonExistent) => &[ContainerRemoved],
        (Running | Unknown, NonExistent) => &[ContainerDied, ContainerRemoved],
    }
}

/// The records of all pods.
#[derive(Debug, Default)]
pub(crate) struct Records(BTreeMap<PodUid, Record>);

impl Records {
    /// Sets the current list of the node. Pods that are not in the list do not exist.
    pub(crate) fn set_all(&mut self, pods: Vec<PodStatus>) {
        for record in self.0.values_mut() {
            record.current = None;
        }
        for pod in pods {
            self.set(pod);
        }
    }

    /// Sets the current list of one pod.
    pub(crate) fn set(&mut self, pod: PodStatus) {
        let record = self.0.entry(pod.uid.clone()).or_default();
        record.current = Some(pod);
    }

    pub(crate) fn uids(&self) -> Vec<PodUid> {
        self.0.keys().cloned().collect()
    }

    pub(crate) fn get(&self, uid: &PodUid) -> Option<&Record> {
        self.0.get(uid)
    }

    /// Records that the current list of the pod has been handled.
    pub(crate) fn advance(&mut self, uid: &PodUid) {
        let Some(record) = self.0.get_mut(uid) else {
            return;
        };
        match record.current.take() {
            Some(current) => record.old = Some(current),
            None => _ = self.0.remove(uid),
        }
    }
}
