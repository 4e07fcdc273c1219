//! The node as a table of answers. An answer is encoded again only after a change.

use std::collections::HashMap;
use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use pleg_cri::v1;
use prost::Message as _;

use super::{Change, ExpectedPod, PlannedChange, Pods, apply, encode_event, expected_pods};
use crate::payload;
use crate::random::Random;
use crate::wire::{self, Mapped};

/// The number of map orders in which each row is kept. Lists use them in turn.
const ORDERS: usize = 3;

/// Whether a list is sent in one message or in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// In one message.
    Whole,
    /// In messages of at most this many rows.
    Of(usize),
}

/// The framed messages that answer one call.
pub type Frames = Vec<Bytes>;

/// The state of the runtime, and its answers.
#[derive(Debug)]
pub struct Table {
    pods: Pods,
    /// The pod of each uid, sandbox id and container id.
    index: HashMap<String, u32>,
    orders: [Order; ORDERS],
    turn: usize,
    random: Random,
}

/// All rows with their maps in one order.
#[derive(Debug, Default)]
struct Order {
    rows: HashMap<u32, Rows>,
    sandboxes: Option<(Page, Frames)>,
    containers: Option<(Page, Frames)>,
}

/// The rows of one pod.
#[derive(Clone, Debug, Default)]
struct Rows {
    sandbox: Bytes,
    containers: Vec<Bytes>,
}

/// One of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// ListPodSandbox.
    Sandboxes,
    /// ListContainers.
    Containers,
}

impl Table {
    /// Creates the table of a node with these pods.
    #[must_use]
    pub fn new(pods: Pods, seed: u64) -> Self {
        let mut table = Self {
            index: HashMap::new(),
            pods,
            orders: Default::default(),
            turn: 0,
            random: Random::new(seed ^ 0x7ab1e),
        };
        let numbers: Vec<u32> = table.pods.keys().copied().collect();
        for number in numbers {
            table.reindex(number);
        }
        table
    }

    /// Returns the pods.
    #[must_use]
    pub const fn pods(&self) -> &Pods {
        &self.pods
    }

    /// Returns what the cache must show.
    #[must_use]
    pub fn expected(&self) -> Vec<ExpectedPod> {
        expected_pods(&self.pods)
    }

    /// Applies a planned change.
    pub fn apply(&mut self, planned: &PlannedChange, now: i64) {
        self.change(planned.pod, &planned.change, now);
    }

    /// Applies a change to one pod.
    pub fn change(&mut self, number: u32, change: &Change, now: i64) {
        if matches!(change, Change::RemovePod)
            && let Some(pod) = self.pods.get(&number)
        {
            for id in [&pod.uid, &pod.sandbox]
                .into_iter()
                .chain(pod.containers.iter().map(|c| &c.id))
            {
                self.index.remove(id);
            }
        }
        apply(&mut self.pods, number, change, now);
        self.reindex(number);
        for order in &mut self.orders {
            order.rows.remove(&number);
            order.sandboxes = None;
            order.containers = None;
        }
    }

    /// Changes a pod and returns the event of the change. `None` if there is no such pod.
    pub fn write(
        &mut self,
        number: u32,
        kind: v1::ContainerEventType,
        subject: &str,
        change: &Change,
        now: i64,
    ) -> Option<Bytes> {
        let before = self.pods.get(&number).cloned();
        self.change(number, change, now);
        let pod = self.pods.get(&number).or(before.as_ref())?;
        let head = v1::ContainerEventResponse {
            container_id: subject.to_owned(),
            container_event_type: kind.into(),
            created_at: now,
            ..Default::default()
        };
        let message = encode_event(&head, pod, &mut self.random);
        Some(wire::framed(&message))
    }

    /// Returns a new id of 64 hexadecimal digits.
    pub fn new_id(&mut self) -> String {
        self.random.hex(4)
    }

    fn reindex(&mut self, number: u32) {
        let Some(pod) = self.pods.get(&number) else {
            return;
        };
        self.index.insert(pod.uid.clone(), number);
        self.index.insert(pod.sandbox.clone(), number);
        for container in &pod.containers {
            self.index.insert(container.id.clone(), number);
        }
    }

    /// Returns the number of the pod with this uid or id.
    #[must_use]
    pub fn pod_of(&self, of: &str) -> Option<u32> {
        self.index.get(of).copied()
    }

    /// Returns a full list. Each list has its maps in a different order.
    pub fn list(&mut self, kind: ListKind, page: Page) -> Frames {
        if kind == ListKind::Sandboxes {
            self.turn = (self.turn + 1) % ORDERS;
        }
        let Some(order) = self.orders.get_mut(self.turn) else {
            return Vec::new();
        };
        let kept = match kind {
            ListKind::Sandboxes => &order.sandboxes,
            ListKind::Containers => &order.containers,
        };
        if let Some((of, frames)) = kept
            && *of == page
        {
            return frames.clone();
        }
        let mut rows = Vec::with_capacity(self.pods.len());
        for (number, pod) in &self.pods {
            let of_pod = order
                .rows
                .entry(*number)
                .or_insert_with(|| encode(pod, &mut self.random));
            match kind {
                ListKind::Sandboxes => rows.push(of_pod.sandbox.clone()),
                ListKind::Containers => rows.extend(of_pod.containers.iter().cloned()),
            }
        }
        let frames = pages(&rows, page);
        let kept = Some((page, frames.clone()));
        match kind {
            ListKind::Sandboxes => order.sandboxes = kept,
            ListKind::Containers => order.containers = kept,
        }
        frames
    }

    /// Returns the list of one pod, by its uid or the id of its sandbox. As in containerd and CRI-O, every
    /// item is converted to a row before the filter is applied.
    pub fn list_of(&mut self, kind: ListKind, of: &str) -> Frames {
        let mut rows = Vec::new();
        for pod in self.pods.values() {
            match kind {
                ListKind::Sandboxes => {
                    let item = black_box(payload::sandbox_row_without_maps(pod));
                    if item.id == of || pod.uid == of {
                        let row = payload::sandbox_row(pod);
                        rows.push(field(row, &mut self.random));
                    }
                }
                ListKind::Containers => {
                    for container in &pod.containers {
                        let item = payload::container_row_without_maps(pod, container);
                        if black_box(item).pod_sandbox_id == of || pod.uid == of {
                            let row = payload::container_row(pod, container);
                            rows.push(field(row, &mut self.random));
                        }
                    }
                }
            }
        }
        pages(&rows, Page::Whole)
    }

    /// Answers PodSandboxStatus; `None` if there is no such sandbox.
    pub fn sandbox_status(&mut self, id: &str) -> Option<Frames> {
        let pod = self.pods.get(self.index.get(id)?)?;
        let status = (pod.sandbox == id).then(|| payload::sandbox_status(pod))?;
        Some(self.status(status))
    }

    /// Answers ContainerStatus; `None` if there is no such container.
    pub fn container_status(&mut self, id: &str) -> Option<Frames> {
        let pod = self.pods.get(self.index.get(id)?)?;
        let container = pod.containers.iter().find(|c| c.id == id)?;
        let status = payload::container_status(pod, container);
        Some(self.status(status))
    }

    fn status(&mut self, status: impl Mapped) -> Frames {
        let (mut part, mut message) = (BytesMut::new(), BytesMut::new());
        status.shuffled(&mut self.random, &mut part);
        wire::nested(1, &part, &mut message);
        vec![wire::framed(&message)]
    }

    /// Encodes every list in advance.
    pub fn prepare(&mut self, page: Page) {
        for _ in 0..ORDERS {
            self.list(ListKind::Sandboxes, page);
            self.list(ListKind::Containers, page);
        }
    }
}

/// Encodes the rows of one pod as fields of a list.
fn encode(pod: &super::Pod, random: &mut Random) -> Rows {
    let sandbox = field(payload::sandbox_row(pod), random);
    let containers = pod.containers.iter();
    let containers = containers.map(|c| field(payload::container_row(pod, c), random));
    Rows {
        sandbox,
        containers: containers.collect(),
    }
}

/// Encodes a row as a field of a list.
fn field(row: impl Mapped, random: &mut Random) -> Bytes {
    let (mut part, mut field) = (BytesMut::new(), BytesMut::new());
    row.shuffled(random, &mut part);
    wire::nested(1, &part, &mut field);
    field.freeze()
}

fn pages(rows: &[Bytes], page: Page) -> Frames {
    let frame = |rows: &[Bytes]| wire::framed(&rows.concat());
    match page {
        Page::Whole => vec![frame(rows)],
        Page::Of(size) => rows.chunks(size.max(1)).map(frame).collect(),
    }
}

/// Answers Version.
#[must_use]
pub fn version() -> Frames {
    let answer = v1::VersionResponse {
        version: "0.1.0".into(),
        runtime_name: "bench".into(),
        runtime_version: "v2.1.0".into(),
        runtime_api_version: "v1".into(),
    };
    vec![wire::framed(&answer.encode_to_vec())]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::node::pods;

    fn rows(frames: &Frames) -> Vec<v1::Container> {
        let message = |f: &Bytes| v1::ListContainersResponse::decode(&f[wire::HEAD..]).unwrap();
        frames.iter().flat_map(|f| message(f).containers).collect()
    }

    #[test]
    fn lists_return_all_rows_in_different_map_orders() {
        let mut table = Table::new(pods(1, 4, 2), 1);
        let lists: BTreeSet<_> = (0..ORDERS)
            .map(|_| {
                table.list(ListKind::Sandboxes, Page::Whole);
                table.list(ListKind::Containers, Page::Whole)
            })
            .collect();
        assert_eq!(lists.len(), ORDERS);
        let expected: Vec<_> = (0..4)
            .flat_map(|n| table.pods()[&n].containers.clone())
            .collect();
        for list in lists {
            let ids: Vec<_> = rows(&list).into_iter().map(|c| c.id).collect();
            assert_eq!(
                ids,
                expected.iter().map(|c| c.id.clone()).collect::<Vec<_>>()
            );
        }
        let pages = table.list(ListKind::Containers, Page::Of(3));
        assert_eq!((pages.len(), rows(&pages).len()), (3, 8));
    }

    #[test]
    fn change_is_in_every_answer() {
        let mut table = Table::new(pods(1, 3, 1), 1);
        table.prepare(Page::Whole);
        let id = table.pods()[&1].containers[0].id.clone();
        table.change(1, &Change::Stop(id.clone(), 3), 77);
        let exited = v1::ContainerState::ContainerExited as i32;
        for _ in 0..ORDERS {
            let all = rows(&table.list(ListKind::Containers, Page::Whole));
            assert_eq!(all.iter().filter(|c| c.state == exited).count(), 1);
        }
        let uid = table.pods()[&1].uid.clone();
        assert_eq!(
            rows(&table.list_of(ListKind::Containers, &uid))[0].state,
            exited
        );
        let status = table.container_status(&id).unwrap();
        let status = v1::ContainerStatusResponse::decode(&status[0][wire::HEAD..]).unwrap();
        assert_eq!(status.status.unwrap().finished_at, 77);
        table.change(1, &Change::RemovePod, 78);
        assert_eq!(table.container_status(&id), None);
        assert!(rows(&table.list_of(ListKind::Containers, &uid)).is_empty());
        assert_eq!(
            rows(&table.list(ListKind::Containers, Page::Whole)).len(),
            2
        );
    }
}
