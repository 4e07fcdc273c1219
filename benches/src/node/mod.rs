//! The node that the runtime serves: which pods there are and what happens to them. Pure.

mod plan;
pub mod table;

use std::collections::BTreeMap;

use pleg_cri::v1::ContainerState;
use serde::{Deserialize, Serialize};

use crate::random::Random;

pub use plan::{Plan, Planned, Template, Work, encode_event};
pub use table::{Page, Table};

/// When the pods that exist from the start were made: 2026-01-01, in ns.
const LONG_AGO: i64 = 1_767_225_600_000_000_000;

/// A container.
#[derive(Clone, Debug)]
pub struct Container {
    /// 64 hexadecimal digits.
    pub id: String,
    /// Its name in the pod.
    pub name: String,
    /// How often one of this name was there before.
    pub attempt: u32,
    /// What state it is in.
    pub state: ContainerState,
    /// In ns since the epoch.
    pub created_at: i64,
    /// 0 until it is started.
    pub started_at: i64,
    /// 0 until it has ended.
    pub finished_at: i64,
    /// Only if it has ended.
    pub exit_code: i32,
}

/// A pod of one sandbox.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Which one it is; its names follow from that.
    pub number: u32,
    /// Its uid.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its address.
    pub ip: String,
    /// The id of its sandbox.
    pub sandbox: String,
    /// Whether the sandbox is ready.
    pub ready: bool,
    /// When the sandbox was made, in ns since the epoch.
    pub created_at: i64,
    /// Its containers.
    pub containers: Vec<Container>,
}

/// All pods, by number.
pub type Pods = BTreeMap<u32, Pod>;

/// The pod of that number, running.
#[must_use]
pub fn pod(seed: u64, number: u32, containers: u32) -> Pod {
    let mut random = Random::new(seed ^ (u64::from(number) << 20));
    let uid = random.hex(2);
    let (a, b) = (number / 250, number % 250);
    Pod {
        number,
        uid: [
            &uid[..8],
            &uid[8..12],
            &uid[12..16],
            &uid[16..20],
            &uid[20..],
        ]
        .join("-"),
        name: format!("checkout-api-6c4d9f7b8d-{number:05}"),
        namespace: "payments".to_owned(),
        ip: format!("10.128.{a}.{}", b + 2),
        sandbox: random.hex(4),
        ready: true,
        created_at: LONG_AGO,
        containers: (0..containers)
            .map(|n| Container {
                id: random.hex(4),
                name: format!("app-{n}"),
                attempt: 0,
                state: ContainerState::ContainerRunning,
                created_at: LONG_AGO,
                started_at: LONG_AGO,
                finished_at: 0,
                exit_code: 0,
            })
            .collect(),
    }
}

/// The pods 0, 1, 2, … of a node.
#[must_use]
pub fn pods(seed: u64, pods: u32, containers: u32) -> Pods {
    (0..pods).map(|n| (n, pod(seed, n, containers))).collect()
}

/// So many containers that have ended, of the first ones of these pods in turn: what is left where
/// nobody removes them.
pub fn add_exited_containers(pods: &mut Pods, seed: u64, count: u32) {
    let mut random = Random::new(seed ^ 0x11_77e4);
    let numbers: Vec<u32> = pods.keys().copied().collect();
    for &number in numbers.iter().cycle().take(count as usize) {
        let Some(pod) = pods.get_mut(&number) else {
            continue;
        };
        let Some(first) = pod.containers.first_mut() else {
            continue;
        };
        let old = Container {
            id: random.hex(4),
            state: ContainerState::ContainerExited,
            finished_at: LONG_AGO,
            exit_code: 1,
            ..first.clone()
        };
        first.attempt += 1;
        // Newest first, as runtimes have them.
        pod.containers.insert(1, old);
    }
}

/// What happens to one pod. Where a moment is stored, it is the moment at which it happens.
#[derive(Clone, Debug)]
pub enum Change {
    /// Its sandbox is there, without containers.
    Add(Box<Pod>),
    /// Nothing that can be seen: a sandbox's STARTED follows its CREATED.
    Nothing,
    /// One more container.
    Put(Box<Container>),
    /// A container runs.
    Start(String),
    /// A container has ended, with that code.
    Stop(String, i32),
    /// A container is gone.
    Remove(String),
    /// The sandbox is not ready any more.
    StopSandbox,
    /// The pod is gone.
    RemovePod,
}

/// Lets it happen to that pod, now.
pub fn apply(pods: &mut Pods, number: u32, change: &Change, now: i64) {
    match change {
        Change::Add(pod) => {
            let created_at = now;
            pods.insert(
                number,
                Pod {
                    created_at,
                    ..Pod::clone(pod)
                },
            );
            return;
        }
        Change::RemovePod => {
            pods.remove(&number);
            return;
        }
        _ => {}
    }
    let Some(pod) = pods.get_mut(&number) else {
        return;
    };
    match change {
        Change::Put(container) => {
            let created_at = now;
            // Newest first, as runtimes have them.
            pod.containers.insert(
                0,
                Container {
                    created_at,
                    ..Container::clone(container)
                },
            );
        }
        Change::Remove(id) => pod.containers.retain(|c| c.id != *id),
        Change::StopSandbox => pod.ready = false,
        Change::Start(id) | Change::Stop(id, _) => {
            let Some(container) = pod.containers.iter_mut().find(|c| c.id == *id) else {
                return;
            };
            if let Change::Stop(_, code) = change {
                container.state = ContainerState::ContainerExited;
                container.exit_code = *code;
                container.finished_at = now;
            } else {
                container.state = ContainerState::ContainerRunning;
                container.started_at = now;
            }
        }
        Change::Add(_) | Change::RemovePod | Change::Nothing => {}
    }
}

/// What a cache should show of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    /// The pod.
    pub uid: String,
    /// Its containers: id, and the state's number in CRI.
    pub containers: BTreeMap<String, i32>,
}

impl Truth {
    /// What it should show of that pod.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let containers = pod.containers.iter();
        Self {
            uid: pod.uid.clone(),
            containers: containers.map(|c| (c.id.clone(), c.state.into())).collect(),
        }
    }

    /// What it should show of one that does not exist.
    #[must_use]
    pub fn nothing(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            containers: BTreeMap::new(),
        }
    }
}

/// What a cache should show of all of them.
#[must_use]
pub fn truth(pods: &Pods) -> Vec<Truth> {
    pods.values().map(Truth::of).collect()
}
