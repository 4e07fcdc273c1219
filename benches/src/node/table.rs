//! The node as a table of answers, encoded ahead as far as nothing has changed.

use std::collections::HashMap;
use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use pleg_cri::v1;
use prost::Message as _;

use super::{Change, Planned, Pods, Truth, apply, encode_event, truth};
use crate::payload::{self, Profile};
use crate::random::Random;
use crate::wire::{self, Mapped};

/// In how many orders of its maps each row is kept; lists take turns.
const ORDERS: usize = 3;

/// Whether a list comes whole or in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// In one message.
    Whole,
    /// In messages of at most so many rows.
    Of(usize),
}

/// Framed messages: the answer to one call.
pub type Frames = Vec<Bytes>;

/// What the runtime knows, and answers.
#[derive(Debug)]
pub struct Table {
    profile: Profile,
    pods: Pods,
    /// Which pod a uid, a sandbox's or a container's id belongs to.
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
pub enum Kind {
    /// ListPodSandbox.
    Sandboxes,
    /// ListContainers.
    Containers,
}

impl Table {
    /// A node of those pods.
    #[must_use]
    pub fn new(pods: Pods, profile: Profile, seed: u64) -> Self {
        let mut table = Self {
            profile,
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

    /// The pods.
    #[must_use]
    pub const fn pods(&self) -> &Pods {
        &self.pods
    }

    /// What a cache should show.
    #[must_use]
    pub fn truth(&self) -> Vec<Truth> {
        truth(&self.pods)
    }

    /// Something happens.
    pub fn happens(&mut self, planned: &Planned, now: i64) {
        self.change(planned.pod, &planned.change, now);
    }

    /// Something happens to that pod.
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
        let message = encode_event(&head, self.profile, pod, &mut self.random);
        Some(wire::framed(&message))
    }

    /// An id of 64 hexadecimal digits.
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

    /// Which pod this uid or id belongs to.
    #[must_use]
    pub fn pod_of(&self, of: &str) -> Option<u32> {
        self.index.get(of).copied()
    }

    /// A full list; each time its maps are in another order.
    pub fn list(&mut self, kind: Kind, page: Page) -> Frames {
        if kind == Kind::Sandboxes {
            self.turn = (self.turn + 1) % ORDERS;
        }
        let (turn, profile) = (self.turn, self.profile);
        let Some(order) = self.orders.get_mut(turn) else {
            return Vec::new();
        };
        let kept = match kind {
            Kind::Sandboxes => &order.sandboxes,
            Kind::Containers => &order.containers,
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
                .or_insert_with(|| encode(profile, pod, &mut self.random));
            match kind {
                Kind::Sandboxes => rows.push(of_pod.sandbox.clone()),
                Kind::Containers => rows.extend(of_pod.containers.iter().cloned()),
            }
        }
        let frames = pages(&rows, page);
        let kept = Some((page, frames.clone()));
        match kind {
            Kind::Sandboxes => order.sandboxes = kept,
            Kind::Containers => order.containers = kept,
        }
        frames
    }

    /// A list of one pod, by its uid or the id of its sandbox. As in containerd and CRI-O, a row is made
    /// of every item before the filter is compared with it.
    pub fn list_of(&mut self, kind: Kind, of: &str) -> Frames {
        let mut rows = Vec::new();
        for pod in self.pods.values() {
            match kind {
                Kind::Sandboxes => {
                    let item = black_box(payload::sandbox_row_without_maps(pod));
                    if item.id == of || pod.uid == of {
                        let row = payload::sandbox_row(self.profile, pod);
                        rows.push(field(row, &mut self.random));
                    }
                }
                Kind::Containers => {
                    for container in &pod.containers {
                        let item = payload::container_row_without_maps(pod, container);
                        if black_box(item).pod_sandbox_id == of || pod.uid == of {
                            let row = payload::container_row(self.profile, pod, container);
                            rows.push(field(row, &mut self.random));
                        }
                    }
                }
            }
        }
        pages(&rows, Page::Whole)
    }

    /// PodSandboxStatus; `None` if there is no such sandbox.
    pub fn sandbox_status(&mut self, id: &str) -> Option<Frames> {
        let pod = self.pods.get(self.index.get(id)?)?;
        let status = (pod.sandbox == id).then(|| payload::sandbox_status(self.profile, pod))?;
        Some(self.status(status))
    }

    /// ContainerStatus; `None` if there is no such container.
    pub fn container_status(&mut self, id: &str) -> Option<Frames> {
        let pod = self.pods.get(self.index.get(id)?)?;
        let container = pod.containers.iter().find(|c| c.id == id)?;
        let status = payload::container_status(self.profile, pod, container);
        Some(self.status(status))
    }

    fn status(&mut self, status: impl Mapped) -> Frames {
        let (mut part, mut message) = (BytesMut::new(), BytesMut::new());
        status.shuffled(&mut self.random, &mut part);
        wire::nested(1, &part, &mut message);
        vec![wire::framed(&message)]
    }

    /// Encodes every list ahead.
    pub fn prepare(&mut self, page: Page) {
        for _ in 0..ORDERS {
            self.list(Kind::Sandboxes, page);
            self.list(Kind::Containers, page);
        }
    }
}

/// The rows of one pod, as fields of a list.
fn encode(profile: Profile, pod: &super::Pod, random: &mut Random) -> Rows {
    let sandbox = field(payload::sandbox_row(profile, pod), random);
    let containers = pod.containers.iter();
    let containers = containers.map(|c| field(payload::container_row(profile, pod, c), random));
    Rows {
        sandbox,
        containers: containers.collect(),
    }
}

/// A row as a field of a list.
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

/// Answers to calls that are no lists.
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
        let mut table = Table::new(pods(1, 4, 2), Profile::Typical, 1);
        let lists: BTreeSet<_> = (0..ORDERS)
            .map(|_| {
                table.list(Kind::Sandboxes, Page::Whole);
                table.list(Kind::Containers, Page::Whole)
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
        let pages = table.list(Kind::Containers, Page::Of(3));
        assert_eq!((pages.len(), rows(&pages).len()), (3, 8));
    }

    #[test]
    fn change_is_in_every_answer() {
        let mut table = Table::new(pods(1, 3, 1), Profile::Lean, 1);
        table.prepare(Page::Whole);
        let id = table.pods()[&1].containers[0].id.clone();
        table.change(1, &Change::Stop(id.clone(), 3), 77);
        let exited = v1::ContainerState::ContainerExited as i32;
        for _ in 0..ORDERS {
            let all = rows(&table.list(Kind::Containers, Page::Whole));
            assert_eq!(all.iter().filter(|c| c.state == exited).count(), 1);
        }
        let uid = table.pods()[&1].uid.clone();
        assert_eq!(
            rows(&table.list_of(Kind::Containers, &uid))[0].state,
            exited
        );
        let status = table.container_status(&id).unwrap();
        let status = v1::ContainerStatusResponse::decode(&status[0][wire::HEAD..]).unwrap();
        assert_eq!(status.status.unwrap().finished_at, 77);
        table.change(1, &Change::RemovePod, 78);
        assert_eq!(table.container_status(&id), None);
        assert!(rows(&table.list_of(Kind::Containers, &uid)).is_empty());
        assert_eq!(rows(&table.list(Kind::Containers, Page::Whole)).len(), 2);
    }
}
