//! A plan of changes. Its events are encoded in advance; only timestamps are set when an event is
//! sent.

use bytes::{Bytes, BytesMut};
use pleg_cri::v1::{self, ContainerEventType as EventType, ContainerState};
use prost::Message as _;
use serde::{Deserialize, Serialize};

use super::{Change, Container, Pod, Pods, apply, pod};
use crate::payload;
use crate::random::Random;
use crate::wire::{self, Mapped as _};

/// The changes that a plan makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "changes")]
pub enum Changes {
    /// A container exits and is replaced: four events each. Every eighth exits with an error.
    Restarts {
        /// The number of restarts.
        count: u32,
    },
    /// A new pod is created and the oldest one is removed: four events for each container and four
    /// for each sandbox.
    Lifecycles {
        /// The number of pods.
        count: u32,
    },
    /// All containers and sandboxes of `pods` pods stop, in random order.
    Deaths {
        /// The number of pods.
        pods: u32,
    },
    /// The first pod stops without events. Then containers of the other pods are restarted.
    RestartsExceptFirst {
        /// The number of restarts.
        count: u32,
    },
}

/// A sequence of changes.
#[derive(Debug, Default)]
pub struct Plan {
    /// The changes, one for each event.
    pub events: Vec<PlannedChange>,
    /// The node afterwards.
    pub after: Pods,
}

/// A planned change of one pod.
#[derive(Debug)]
pub struct PlannedChange {
    /// The number of the pod.
    pub pod: u32,
    /// The change.
    pub change: Change,
    /// Its encoded event.
    pub event: Template,
    /// Whether an event is sent.
    pub reported: bool,
}

/// An encoded event with placeholders for its timestamps.
#[derive(Debug)]
pub struct Template {
    bytes: Vec<u8>,
    /// The position of each timestamp, and the index of the event whose time it is.
    timestamps: Vec<(usize, usize)>,
}

/// A placeholder for a timestamp: a value that occurs nowhere else, with the index of the event in its
/// lower 28 bits. As a varint it has nine bytes, like every current timestamp.
const PLACEHOLDER: i64 = 0x1a5c_93b7_6000_0000;
const PLACEHOLDER_BITS: u32 = 28;
const TIMESTAMP_LEN: usize = 9;

impl Template {
    fn new(message: &[u8]) -> Self {
        let bytes = wire::framed(message).to_vec();
        let mut placeholder = Vec::with_capacity(TIMESTAMP_LEN);
        prost::encoding::encode_varint(PLACEHOLDER.cast_unsigned(), &mut placeholder);
        // A byte holds seven bits: the first four bytes hold the index.
        let high = &placeholder[4..];
        let at = |place: usize| {
            let low = &bytes[place - 4..place];
            let digits = low.iter().rev().map(|b| usize::from(b & 0x7f));
            (place - 4, digits.fold(0, |n, d| n << 7 | d))
        };
        let found = bytes.windows(high.len()).enumerate().skip(4);
        let timestamps = found
            .filter(|(_, w)| *w == high)
            .map(|(n, _)| at(n))
            .collect();
        Self { bytes, timestamps }
    }

    /// Returns the frame to send, with the timestamps of the events so far.
    #[must_use]
    pub fn fill(&self, timestamps: &[i64]) -> Bytes {
        let mut bytes = self.bytes.clone();
        for &(place, event) in &self.timestamps {
            let timestamp = timestamps.get(event).copied().unwrap_or(PLACEHOLDER);
            prost::encoding::encode_varint(
                timestamp.cast_unsigned(),
                &mut &mut bytes[place..place + TIMESTAMP_LEN],
            );
        }
        bytes.into()
    }
}

impl Plan {
    /// Plans these changes of a node.
    #[must_use]
    pub fn new(changes: Changes, before: &Pods, seed: u64) -> Self {
        let mut planner = Planner {
            plan: Self {
                events: Vec::new(),
                after: before.clone(),
            },
            random: Random::new(seed ^ 0x5eed),
        };
        match changes {
            Changes::Restarts { count } => planner.restarts(count),
            Changes::Lifecycles { count } => planner.lifecycles(seed, count),
            Changes::Deaths { pods } => planner.deaths(pods),
            Changes::RestartsExceptFirst { count } => planner.restart_all_but_first(count),
        }
        planner.plan
    }
}

struct Planner {
    plan: Plan,
    random: Random,
}

impl Planner {
    fn restarts(&mut self, count: u32) {
        let mut numbers: Vec<u32> = self.plan.after.keys().copied().collect();
        self.random.shuffle(&mut numbers);
        for (n, &number) in (0..count).zip(numbers.iter().cycle()) {
            let code = i32::from(n % 8 == 0);
            let Some(old) = self
                .plan
                .after
                .get(&number)
                .and_then(|p| p.containers.iter().rev().find(|c| runs(c)))
                .cloned()
            else {
                continue;
            };
            self.event(
                number,
                EventType::ContainerStoppedEvent,
                &old.id,
                Change::Stop(old.id.clone(), code),
            );
            let next = Container {
                id: self.random.hex(4),
                attempt: old.attempt + 1,
                state: ContainerState::ContainerCreated,
                started_at: 0,
                finished_at: 0,
                exit_code: 0,
                ..old.clone()
            };
            let id = next.id.clone();
            self.event(
                number,
                EventType::ContainerCreatedEvent,
                &id,
                Change::AddContainer(Box::new(next)),
            );
            self.event(
                number,
                EventType::ContainerStartedEvent,
                &id,
                Change::Start(id.clone()),
            );
            self.event(
                number,
                EventType::ContainerDeletedEvent,
                &old.id,
                Change::Remove(old.id.clone()),
            );
        }
    }

    fn restart_all_but_first(&mut self, count: u32) {
        if let Some(first) = self.plan.after.keys().next().copied() {
            self.stop_pod(first);
        }
        for planned in &mut self.plan.events {
            planned.reported = false;
        }
        self.restarts(count);
    }

    fn lifecycles(&mut self, seed: u64, count: u32) {
        for _ in 0..count {
            let last = self.plan.after.last_key_value().map_or(0, |(n, _)| n + 1);
            let first = self.plan.after.iter().next();
            let first = first.map(|(n, p)| (*n, p.containers.len()));
            let containers = first.map_or(1, |(_, c)| u32::try_from(c).unwrap_or(1));
            self.add_pod(seed, last, containers);
            if let Some((first, _)) = first {
                self.remove_pod(first);
            }
        }
    }

    fn add_pod(&mut self, seed: u64, number: u32, containers: u32) {
        let mut new = pod(seed, number, containers);
        let all = std::mem::take(&mut new.containers);
        let sandbox = new.sandbox.clone();
        self.event(
            number,
            EventType::ContainerCreatedEvent,
            &sandbox,
            Change::AddPod(Box::new(new)),
        );
        self.event(
            number,
            EventType::ContainerStartedEvent,
            &sandbox,
            Change::SandboxStarted,
        );
        for container in all {
            let id = container.id.clone();
            let created = Container {
                state: ContainerState::ContainerCreated,
                started_at: 0,
                ..container
            };
            self.event(
                number,
                EventType::ContainerCreatedEvent,
                &id,
                Change::AddContainer(Box::new(created)),
            );
            self.event(
                number,
                EventType::ContainerStartedEvent,
                &id,
                Change::Start(id.clone()),
            );
        }
    }

    fn remove_pod(&mut self, number: u32) {
        self.stop_pod(number);
        let Some(pod) = self.plan.after.get(&number) else {
            return;
        };
        let (ids, sandbox): (Vec<_>, _) = (
            pod.containers.iter().map(|c| c.id.clone()).collect(),
            pod.sandbox.clone(),
        );
        for id in ids {
            self.event(
                number,
                EventType::ContainerDeletedEvent,
                &id,
                Change::Remove(id.clone()),
            );
        }
        self.event(
            number,
            EventType::ContainerDeletedEvent,
            &sandbox,
            Change::RemovePod,
        );
    }

    fn deaths(&mut self, pods: u32) {
        let mut numbers: Vec<u32> = self.plan.after.keys().copied().collect();
        self.random.shuffle(&mut numbers);
        for number in numbers.into_iter().take(pods as usize) {
            self.stop_pod(number);
        }
    }

    /// Stops the containers, with exit code 0, and then the sandbox.
    fn stop_pod(&mut self, number: u32) {
        let Some(pod) = self.plan.after.get(&number) else {
            return;
        };
        let (ids, sandbox): (Vec<_>, _) = (
            pod.containers.iter().map(|c| c.id.clone()).collect(),
            pod.sandbox.clone(),
        );
        for id in ids {
            self.event(
                number,
                EventType::ContainerStoppedEvent,
                &id,
                Change::Stop(id.clone(), 0),
            );
        }
        self.event(
            number,
            EventType::ContainerStoppedEvent,
            &sandbox,
            Change::StopSandbox,
        );
    }

    /// Adds a change and its event. The event contains the statuses of the sandbox and its containers,
    /// as in containerd 2. In the DELETED of a sandbox, the sandbox is not ready.
    fn event(&mut self, number: u32, kind: EventType, subject: &str, change: Change) {
        let now = PLACEHOLDER | i64::try_from(self.plan.events.len()).unwrap_or(0);
        let before = self.plan.after.get(&number).cloned();
        apply(&mut self.plan.after, number, &change, now);
        let Some(pod) = self.plan.after.get(&number).or(before.as_ref()) else {
            return;
        };
        let head = v1::ContainerEventResponse {
            container_id: subject.to_owned(),
            container_event_type: kind.into(),
            created_at: now,
            ..Default::default()
        };
        let message = encode_event(&head, pod, &mut self.random);
        debug_assert!(self.plan.events.len() < 1 << PLACEHOLDER_BITS);
        self.plan.events.push(PlannedChange {
            pod: number,
            change,
            event: Template::new(&message),
            reported: true,
        });
    }
}

/// Encodes an event with the statuses of its sandbox and of the containers in it.
#[must_use]
pub fn encode_event(head: &v1::ContainerEventResponse, pod: &Pod, random: &mut Random) -> BytesMut {
    let (mut message, mut part) = (BytesMut::new(), BytesMut::new());
    head.encode_raw(&mut message);
    payload::sandbox_status(pod).shuffled(random, &mut part);
    wire::nested(4, &part, &mut message);
    for container in &pod.containers {
        part.clear();
        payload::container_status(pod, container).shuffled(random, &mut part);
        wire::nested(5, &part, &mut message);
    }
    message
}

fn runs(container: &Container) -> bool {
    container.state == ContainerState::ContainerRunning
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{expected_pods, pods};

    fn decode(frame: &Bytes) -> v1::ContainerEventResponse {
        v1::ContainerEventResponse::decode(&frame[wire::HEAD..]).unwrap()
    }

    #[test]
    fn fill_sets_every_timestamp() {
        let before = pods(1, 3, 1);
        let plan = Plan::new(Changes::Restarts { count: 2 }, &before, 1);
        let start = 1_800_000_000_000_000_000;
        let timestamps: Vec<i64> = (0..8).map(|n| start + n).collect();
        let events: Vec<_> = plan
            .events
            .iter()
            .map(|p| decode(&p.event.fill(&timestamps)))
            .collect();
        assert_eq!(events.len(), 8);
        for (event, timestamp) in events.iter().zip(&timestamps) {
            assert_eq!(event.created_at, *timestamp);
        }
        let own = |n: usize| {
            let event = &events[n];
            let mut all = event.containers_statuses.iter();
            all.find(|c| c.id == event.container_id).unwrap().clone()
        };
        assert_eq!((own(0).finished_at, own(0).exit_code), (timestamps[0], 1));
        assert_eq!((own(1).created_at, own(1).started_at), (timestamps[1], 0));
        assert_eq!(
            (own(2).created_at, own(2).started_at),
            (timestamps[1], timestamps[2])
        );
        assert_eq!(
            events[3].containers_statuses.len(),
            1,
            "the old container is removed"
        );
        assert_eq!(own(4).exit_code, 0, "only every eighth fails");
    }

    #[test]
    fn first_pod_stops_without_events_and_is_not_restarted() {
        let before = pods(1, 5, 1);
        let plan = Plan::new(Changes::RestartsExceptFirst { count: 7 }, &before, 9);
        for planned in &plan.events {
            assert_eq!(planned.reported, planned.pod != 0);
        }
        assert_eq!(plan.events.iter().filter(|p| !p.reported).count(), 2);
        assert!(plan.events.iter().filter(|p| p.reported).count() >= 4 * 5);
    }

    #[test]
    fn exited_containers_are_spread_and_never_restarted() {
        let mut before = pods(1, 3, 1);
        crate::node::add_exited_containers(&mut before, 1, 7);
        let exited = |p: &Pod| p.containers.iter().filter(|c| !runs(c)).count();
        assert_eq!(before.values().map(exited).collect::<Vec<_>>(), [3, 2, 2]);
        assert!(before.values().all(|p| runs(&p.containers[0])));
        let plan = Plan::new(Changes::Restarts { count: 5 }, &before, 9);
        assert_eq!(plan.after.values().map(exited).sum::<usize>(), 7);
    }

    #[test]
    fn applied_plan_gives_planned_state() {
        for changes in [
            Changes::Restarts { count: 7 },
            Changes::Lifecycles { count: 7 },
            Changes::Deaths { pods: 3 },
            Changes::RestartsExceptFirst { count: 7 },
        ] {
            let mut pods = pods(1, 5, 2);
            let plan = Plan::new(changes, &pods, 9);
            for planned in &plan.events {
                apply(&mut pods, planned.pod, &planned.change, 1);
            }
            assert_eq!(
                expected_pods(&pods),
                expected_pods(&plan.after),
                "{changes:?}"
            );
            assert_eq!(pods.len(), 5);
        }
    }
}
