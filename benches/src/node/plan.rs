//! What will happen, with its events encoded ahead: while it happens, only the moments are filled
//! in.

use bytes::{Bytes, BytesMut};
use pleg_cri::v1::{self, ContainerEventType as Kind, ContainerState};
use prost::Message as _;
use serde::{Deserialize, Serialize};

use super::{Change, Container, Pod, Pods, apply, pod};
use crate::payload::{self, Profile};
use crate::random::Random;
use crate::wire::{self, Mapped as _};

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "work")]
pub enum Work {
    /// So many times a container ends, and another takes its place: four events each. Every
    /// eighth ends with an error.
    Restarts {
        /// How many.
        count: u32,
    },
    /// So many times a new pod comes and the oldest one goes: four events for each container and
    /// four for each sandbox.
    Lifecycles {
        /// How many.
        count: u32,
    },
    /// Every container of so many pods ends, in any order, and the sandboxes.
    Deaths {
        /// Of how many pods.
        pods: u32,
    },
    /// The first pod ends, and nobody is told. Then so many restarts of the others.
    Around {
        /// How many.
        count: u32,
    },
}

/// What will happen, in order.
#[derive(Debug, Default)]
pub struct Plan {
    /// One for each event.
    pub events: Vec<Planned>,
    /// The node afterwards.
    pub after: Pods,
}

/// One thing that will happen.
#[derive(Debug)]
pub struct Planned {
    /// To which pod.
    pub pod: u32,
    /// What.
    pub change: Change,
    /// What is told of it.
    pub event: Template,
    /// Whether it is told at all.
    pub reported: bool,
}

/// An event but for its moments.
#[derive(Debug)]
pub struct Template {
    bytes: Vec<u8>,
    /// Where a moment stands, and of which event of the plan it is.
    moments: Vec<(usize, usize)>,
}

/// In a template a moment is a number that occurs nowhere else: this, and the number of the event
/// in its lower 28 bits. Like every moment of our days it takes nine bytes.
const MARK: i64 = 0x1a5c_93b7_6000_0000;
const MARK_BITS: u32 = 28;
const MOMENT: usize = 9;

impl Template {
    fn new(message: &[u8]) -> Self {
        let bytes = wire::framed(message).to_vec();
        let mut mark = Vec::with_capacity(MOMENT);
        prost::encoding::encode_varint(MARK.cast_unsigned(), &mut mark);
        // Seven bits to the byte: the first four hold the number.
        let high = &mark[4..];
        let at = |place: usize| {
            let low = &bytes[place - 4..place];
            let digits = low.iter().rev().map(|b| usize::from(b & 0x7f));
            (place - 4, digits.fold(0, |n, d| n << 7 | d))
        };
        let found = bytes.windows(high.len()).enumerate().skip(4);
        let moments = found
            .filter(|(_, w)| *w == high)
            .map(|(n, _)| at(n))
            .collect();
        Self { bytes, moments }
    }

    /// The frame to send, with the moments of the plan's events so far.
    #[must_use]
    pub fn fill(&self, moments: &[i64]) -> Bytes {
        let mut bytes = self.bytes.clone();
        for &(place, event) in &self.moments {
            let moment = moments.get(event).copied().unwrap_or(MARK);
            prost::encoding::encode_varint(
                moment.cast_unsigned(),
                &mut &mut bytes[place..place + MOMENT],
            );
        }
        bytes.into()
    }
}

impl Plan {
    /// What that workload does to a node.
    #[must_use]
    pub fn new(work: Work, before: &Pods, profile: Profile, seed: u64) -> Self {
        let mut planner = Planner {
            plan: Self {
                events: Vec::new(),
                after: before.clone(),
            },
            profile,
            random: Random::new(seed ^ 0x5eed),
        };
        match work {
            Work::Restarts { count } => planner.restarts(count),
            Work::Lifecycles { count } => planner.lifecycles(seed, count),
            Work::Deaths { pods } => planner.deaths(pods),
            Work::Around { count } => planner.around(count),
        }
        planner.plan
    }
}

struct Planner {
    plan: Plan,
    profile: Profile,
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
                Kind::ContainerStoppedEvent,
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
                Kind::ContainerCreatedEvent,
                &id,
                Change::Put(Box::new(next)),
            );
            self.event(
                number,
                Kind::ContainerStartedEvent,
                &id,
                Change::Start(id.clone()),
            );
            self.event(
                number,
                Kind::ContainerDeletedEvent,
                &old.id,
                Change::Remove(old.id.clone()),
            );
        }
    }

    fn around(&mut self, count: u32) {
        if let Some(first) = self.plan.after.keys().next().copied() {
            self.dies(first);
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
            self.comes(seed, last, containers);
            if let Some((first, _)) = first {
                self.goes(first);
            }
        }
    }

    fn comes(&mut self, seed: u64, number: u32, containers: u32) {
        let mut new = pod(seed, number, containers);
        let all = std::mem::take(&mut new.containers);
        let sandbox = new.sandbox.clone();
        self.event(
            number,
            Kind::ContainerCreatedEvent,
            &sandbox,
            Change::Add(Box::new(new)),
        );
        self.event(
            number,
            Kind::ContainerStartedEvent,
            &sandbox,
            Change::Nothing,
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
                Kind::ContainerCreatedEvent,
                &id,
                Change::Put(Box::new(created)),
            );
            self.event(
                number,
                Kind::ContainerStartedEvent,
                &id,
                Change::Start(id.clone()),
            );
        }
    }

    fn goes(&mut self, number: u32) {
        self.dies(number);
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
                Kind::ContainerDeletedEvent,
                &id,
                Change::Remove(id.clone()),
            );
        }
        self.event(
            number,
            Kind::ContainerDeletedEvent,
            &sandbox,
            Change::RemovePod,
        );
    }

    fn deaths(&mut self, pods: u32) {
        let mut numbers: Vec<u32> = self.plan.after.keys().copied().collect();
        self.random.shuffle(&mut numbers);
        for number in numbers.into_iter().take(pods as usize) {
            self.dies(number);
        }
    }

    /// The containers end, with 0, and then the sandbox.
    fn dies(&mut self, number: u32) {
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
                Kind::ContainerStoppedEvent,
                &id,
                Change::Stop(id.clone(), 0),
            );
        }
        self.event(
            number,
            Kind::ContainerStoppedEvent,
            &sandbox,
            Change::StopSandbox,
        );
    }

    /// One more event. It shows its sandbox and the containers that are in it then, as containerd
    /// 2 does; the DELETED of a sandbox shows it not ready.
    fn event(&mut self, number: u32, kind: Kind, subject: &str, change: Change) {
        let now = MARK | i64::try_from(self.plan.events.len()).unwrap_or(0);
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
        let message = encode_event(&head, self.profile, pod, &mut self.random);
        debug_assert!(self.plan.events.len() < 1 << MARK_BITS);
        self.plan.events.push(Planned {
            pod: number,
            change,
            event: Template::new(&message),
            reported: true,
        });
    }
}

/// An event with the statuses of its sandbox and of the containers in it.
#[must_use]
pub fn encode_event(
    head: &v1::ContainerEventResponse,
    profile: Profile,
    pod: &Pod,
    random: &mut Random,
) -> BytesMut {
    let (mut message, mut part) = (BytesMut::new(), BytesMut::new());
    head.encode_raw(&mut message);
    payload::sandbox_status(profile, pod).shuffled(random, &mut part);
    wire::nested(4, &part, &mut message);
    for container in &pod.containers {
        part.clear();
        payload::container_status(profile, pod, container).shuffled(random, &mut part);
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
    use crate::node::{pods, truth};

    fn decode(frame: &Bytes) -> v1::ContainerEventResponse {
        v1::ContainerEventResponse::decode(&frame[wire::HEAD..]).unwrap()
    }

    #[test]
    fn every_moment_is_filled_in_where_it_belongs() {
        let before = pods(1, 3, 1);
        let plan = Plan::new(Work::Restarts { count: 2 }, &before, Profile::Typical, 1);
        let start = 1_800_000_000_000_000_000;
        let moments: Vec<i64> = (0..8).map(|n| start + n).collect();
        let events: Vec<_> = plan
            .events
            .iter()
            .map(|p| decode(&p.event.fill(&moments)))
            .collect();
        assert_eq!(events.len(), 8);
        for (event, moment) in events.iter().zip(&moments) {
            assert_eq!(event.created_at, *moment);
        }
        let own = |n: usize| {
            let event = &events[n];
            let mut all = event.containers_statuses.iter();
            all.find(|c| c.id == event.container_id).unwrap().clone()
        };
        assert_eq!((own(0).finished_at, own(0).exit_code), (moments[0], 1));
        assert_eq!((own(1).created_at, own(1).started_at), (moments[1], 0));
        assert_eq!(
            (own(2).created_at, own(2).started_at),
            (moments[1], moments[2])
        );
        assert_eq!(
            events[3].containers_statuses.len(),
            1,
            "the old one is gone"
        );
        assert_eq!(own(4).exit_code, 0, "only every eighth fails");
    }

    #[test]
    fn first_pod_ends_unreported_and_is_not_restarted() {
        let before = pods(1, 5, 1);
        let plan = Plan::new(Work::Around { count: 7 }, &before, Profile::Lean, 9);
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
        let ended = |p: &Pod| p.containers.iter().filter(|c| !runs(c)).count();
        assert_eq!(before.values().map(ended).collect::<Vec<_>>(), [3, 2, 2]);
        assert!(before.values().all(|p| runs(&p.containers[0])));
        let plan = Plan::new(Work::Restarts { count: 5 }, &before, Profile::Lean, 9);
        assert_eq!(plan.after.values().map(ended).sum::<usize>(), 7);
    }

    #[test]
    fn what_happens_is_what_was_planned() {
        for work in [
            Work::Restarts { count: 7 },
            Work::Lifecycles { count: 7 },
            Work::Deaths { pods: 3 },
            Work::Around { count: 7 },
        ] {
            let mut pods = pods(1, 5, 2);
            let plan = Plan::new(work, &pods, Profile::Lean, 9);
            for planned in &plan.events {
                apply(&mut pods, planned.pod, &planned.change, 1);
            }
            assert_eq!(truth(&pods), truth(&plan.after), "{work:?}");
            assert_eq!(pods.len(), 5);
        }
    }
}
