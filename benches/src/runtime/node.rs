//! The pods of the simulated node, their changes, and the encoded answers to calls about these pods.

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use pleg_cri::v1::{self, ContainerEventType as EventType, ContainerState};
use prost::Message as _;

use super::encoded::{Encoded, framed};
use crate::protocol::ExpectedPod;
use crate::typical::{self, Container, Pod, Random};

/// The pods of a node, by number.
pub(super) struct Node {
    pods: BTreeMap<u64, Entry>,
    /// The number of the pod for each pod uid, sandbox id and container id.
    index: HashMap<String, u64>,
    /// The encoded answers to lists of the whole node, kept until the next change.
    lists: HashMap<List, Bytes>,
    pub(super) random: Random,
}

struct Entry {
    pod: Pod,
    sandbox: Object,
    /// The encoded containers of the pod, in the order of `pod.containers`.
    containers: Vec<Object>,
}

/// A sandbox or container.
struct Object {
    row: Encoded,
    status: Encoded,
}

/// The kind of a list or status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum List {
    Sandboxes,
    Containers,
}

/// A change of one pod.
#[derive(Debug)]
pub(super) enum Change {
    AddPod(Box<Pod>),
    /// The runtime sends STARTED of the sandbox, as containerd does after CREATED, but the pod does not change.
    StartSandbox,
    AddContainer(Container),
    Start(String),
    /// A container exits with this code.
    Stop(String, i32),
    Remove(String),
    StopSandbox,
    RemovePod,
}

impl Change {
    const fn event(&self) -> EventType {
        match self {
            Self::AddPod(_) | Self::AddContainer(_) => EventType::ContainerCreatedEvent,
            Self::StartSandbox | Self::Start(_) => EventType::ContainerStartedEvent,
            Self::Stop(..) | Self::StopSandbox => EventType::ContainerStoppedEvent,
            Self::Remove(_) | Self::RemovePod => EventType::ContainerDeletedEvent,
        }
    }
}

impl Node {
    pub(super) fn new(pods: u64) -> Self {
        let mut node = Self {
            pods: BTreeMap::new(),
            index: HashMap::new(),
            lists: HashMap::new(),
            random: Random(1),
        };
        for number in 0..pods {
            node.add(number, typical::pod(number));
        }
        node
    }

    pub(super) fn pods(&self) -> impl Iterator<Item = (u64, &Pod)> {
        self.pods
            .iter()
            .map(|(number, entry)| (*number, &entry.pod))
    }

    /// The number of the pod with this uid, sandbox id or container id.
    pub(super) fn pod_of(&self, of: &str) -> Option<u64> {
        self.index.get(of).copied()
    }

    pub(super) fn expected(&self, after_deaths: bool) -> Vec<ExpectedPod> {
        let runs = |c: &Container| c.state == ContainerState::ContainerRunning && !after_deaths;
        self.pods()
            .map(|(_, pod)| ExpectedPod {
                uid: pod.uid.clone(),
                running: pod
                    .containers
                    .iter()
                    .map(|c| (c.id.clone(), runs(c)))
                    .collect(),
            })
            .collect()
    }

    fn add(&mut self, number: u64, mut pod: Pod) {
        let containers = std::mem::take(&mut pod.containers);
        let sandbox = Object {
            row: Encoded::new(&typical::sandbox_row(&pod), 3..=4, &mut self.random),
            status: Encoded::new(&typical::sandbox_status(&pod), 3..=4, &mut self.random),
        };
        self.index.insert(pod.uid.clone(), number);
        self.index.insert(pod.sandbox.clone(), number);
        let entry = Entry {
            pod,
            sandbox,
            containers: Vec::new(),
        };
        self.pods.insert(number, entry);
        for container in containers {
            self.add_container(number, container);
        }
    }

    fn add_container(&mut self, number: u64, container: Container) {
        let Some(entry) = self.pods.get_mut(&number) else {
            return;
        };
        let row = typical::container_row(&entry.pod, &container);
        let status = typical::container_status(&entry.pod, &container);
        let object = Object {
            row: Encoded::new(&row, 6..=7, &mut self.random),
            status: Encoded::new(&status, 3..=10, &mut self.random),
        };
        self.index.insert(container.id.clone(), number);
        entry.containers.insert(0, object);
        entry.pod.containers.insert(0, container);
    }

    /// Changes a pod at time `now`. Returns the event of the change; `None` if the pod or container does not exist.
    pub(super) fn change(&mut self, number: u64, change: Change, now: i64) -> Option<Bytes> {
        self.lists.clear();
        let kind = change.event();
        let mut subject = None;
        let mut removed = None;
        match change {
            Change::AddPod(pod) => self.add(number, *pod),
            Change::AddContainer(container) => {
                subject = Some(container.id.clone());
                self.add_container(number, container);
            }
            Change::StartSandbox => {}
            Change::StopSandbox => self.pods.get_mut(&number)?.pod.ready = false,
            Change::RemovePod => {
                let entry = self.pods.remove(&number)?;
                self.index.retain(|_, of| *of != number);
                removed = Some(entry);
            }
            Change::Remove(id) => {
                let entry = self.pods.get_mut(&number)?;
                let nth = entry.pod.containers.iter().position(|c| c.id == id)?;
                entry.pod.containers.remove(nth);
                entry.containers.remove(nth);
                self.index.remove(&id);
                subject = Some(id);
            }
            Change::Start(ref id) | Change::Stop(ref id, _) => {
                let containers = &mut self.pods.get_mut(&number)?.pod.containers;
                let container = containers.iter_mut().find(|c| c.id == *id)?;
                if let Change::Stop(_, code) = change {
                    container.state = ContainerState::ContainerExited;
                    container.exit_code = code;
                    container.finished_at = now;
                } else {
                    container.state = ContainerState::ContainerRunning;
                    container.started_at = now;
                }
                subject = Some(id.clone());
            }
        }
        let entry = removed.as_ref().or_else(|| self.pods.get(&number))?;
        let head = v1::ContainerEventResponse {
            container_id: subject.unwrap_or_else(|| entry.pod.sandbox.clone()),
            container_event_type: kind.into(),
            created_at: now,
            ..Default::default()
        };
        Some(entry.event(&head))
    }

    /// The list of the node.
    pub(super) fn list(&mut self, list: List) -> Bytes {
        let pods = &self.pods;
        let encode = || {
            let mut rows = BytesMut::new();
            for entry in pods.values() {
                entry.append_rows(list, &mut rows);
            }
            framed(&rows)
        };
        self.lists.entry(list).or_insert_with(encode).clone()
    }

    /// The list of one pod, by its uid or the id of its sandbox. Converts every item of the node to a row before it
    /// applies the filter, as containerd and CRI-O do.
    pub(super) fn list_of(&self, list: List, of: &str) -> Bytes {
        let mut rows = BytesMut::new();
        for entry in self.pods.values() {
            let pod = &entry.pod;
            match list {
                List::Sandboxes => drop(black_box(typical::sandbox_item(pod))),
                List::Containers => {
                    for container in &pod.containers {
                        drop(black_box(typical::container_item(pod, container)));
                    }
                }
            }
            if pod.uid == of || pod.sandbox == of {
                entry.append_rows(list, &mut rows);
            }
        }
        framed(&rows)
    }

    /// The answer to PodSandboxStatus or ContainerStatus; `None` if no sandbox or container has this id.
    pub(super) fn status(&self, list: List, id: &str) -> Option<Bytes> {
        let entry = self.pods.get(self.index.get(id)?)?;
        let mut status = BytesMut::new();
        match list {
            List::Sandboxes => entry.append_sandbox_status(1, &mut status),
            List::Containers => {
                let nth = entry.pod.containers.iter().position(|c| c.id == id)?;
                entry.append_container_status(1, nth, &mut status);
            }
        }
        Some(framed(&status))
    }
}

impl Entry {
    fn append_rows(&self, list: List, out: &mut BytesMut) {
        match list {
            List::Sandboxes => {
                let changed = v1::PodSandbox {
                    state: typical::sandbox_state(&self.pod),
                    created_at: self.pod.created_at,
                    ..Default::default()
                };
                self.sandbox.row.append(1, &changed, out);
            }
            List::Containers => {
                for (object, container) in self.containers.iter().zip(&self.pod.containers) {
                    let changed = v1::Container {
                        state: container.state.into(),
                        created_at: container.created_at,
                        ..Default::default()
                    };
                    object.row.append(1, &changed, out);
                }
            }
        }
    }

    fn append_sandbox_status(&self, field: u32, out: &mut BytesMut) {
        let changed = v1::PodSandboxStatus {
            state: typical::sandbox_state(&self.pod),
            created_at: self.pod.created_at,
            ..Default::default()
        };
        self.sandbox.status.append(field, &changed, out);
    }

    fn append_container_status(&self, field: u32, nth: usize, out: &mut BytesMut) {
        let changed = typical::container_state(&self.pod.containers[nth]);
        self.containers[nth].status.append(field, &changed, out);
    }

    /// An event with the statuses of the sandbox and of the containers in it, as in containerd 2.
    fn event(&self, head: &v1::ContainerEventResponse) -> Bytes {
        let mut message = BytesMut::new();
        head.encode(&mut message).unwrap_or_default();
        self.append_sandbox_status(4, &mut message);
        for nth in 0..self.containers.len() {
            self.append_container_status(5, nth, &mut message);
        }
        framed(&message)
    }
}

#[cfg(test)]
mod tests {
    use super::super::encoded::HEAD;
    use super::*;

    #[test]
    fn container_exit_shows_in_event_and_later_lists_and_status() {
        let mut node = Node::new(3);
        node.list(List::Containers);
        let id = typical::pod(1).containers[0].id.clone();
        let exited = i32::from(ContainerState::ContainerExited);
        let event = node.change(1, Change::Stop(id.clone(), 3), 77).unwrap();
        let event = v1::ContainerEventResponse::decode(&event[HEAD..]).unwrap();
        let status = &event.containers_statuses[0];
        assert_eq!((event.created_at, &event.container_id), (77, &id));
        assert_eq!((status.finished_at, status.exit_code), (77, 3));
        let uid = &typical::pod(1).uid;
        for (list, rows) in [
            (node.list(List::Containers), 3),
            (node.list_of(List::Containers, uid), 1),
        ] {
            let list = v1::ListContainersResponse::decode(&list[HEAD..]).unwrap();
            let states = list.containers.iter().filter(|c| c.state == exited);
            assert_eq!((list.containers.len(), states.count()), (rows, 1));
        }
        let status = node.status(List::Containers, &id).unwrap();
        let status = v1::ContainerStatusResponse::decode(&status[HEAD..]).unwrap();
        assert_eq!(status.status.unwrap().reason, "Error");
        let event = node.change(1, Change::RemovePod, 78).unwrap();
        let event = v1::ContainerEventResponse::decode(&event[HEAD..]).unwrap();
        assert_eq!(event.container_id, typical::pod(1).sandbox);
        assert_eq!(node.status(List::Containers, &id), None);
        assert_eq!(node.change(1, Change::StopSandbox, 79), None);
        assert_eq!(node.expected(false).len(), 2);
    }
}
