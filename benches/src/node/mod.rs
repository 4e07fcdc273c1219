//! The node that the runtime serves: its pods and their changes. Does no I/O.

mod plan;
pub mod table;

use std::collections::BTreeMap;

use pleg_cri::v1::ContainerState;
use serde::{Deserialize, Serialize};

use crate::random::Random;

pub use plan::{Changes, Plan, PlannedChange, Template, encode_event};
pub use table::{Page, Table};

/// The time at which the initial pods were created: 2026-01-01, in ns.
const INITIAL_TIME: i64 = 1_767_225_600_000_000_000;

/// A container.
#[derive(Clone, Debug)]
pub struct Container {
    /// 64 hexadecimal digits.
    pub id: String,
    /// Its name in the pod.
    pub name: String,
    /// The number of earlier containers with this name.
    pub attempt: u32,
    /// Its state.
    pub state: ContainerState,
    /// Its creation time, in ns since the epoch.
    pub created_at: i64,
    /// Its start time; 0 if it was not started.
    pub started_at: i64,
    /// Its exit time; 0 if it did not exit.
    pub finished_at: i64,
    /// Its exit code; 0 if it did not exit.
    pub exit_code: i32,
}

/// A pod with one sandbox.
#[derive(Clone, Debug)]
pub struct Pod {
    /// Its number, from which its names are derived.
    pub number: u32,
    /// Its uid.
    pub uid: String,
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its IP address.
    pub ip: String,
    /// The id of its sandbox.
    pub sandbox: String,
    /// Whether the sandbox is ready.
    pub ready: bool,
    /// The creation time of the sandbox, in ns since the epoch.
    pub created_at: i64,
    /// Its containers.
    pub containers: Vec<Container>,
}

/// All pods, by number.
pub type Pods = BTreeMap<u32, Pod>;

/// Returns the running pod with this number.
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
        created_at: INITIAL_TIME,
        containers: (0..containers)
            .map(|n| Container {
                id: random.hex(4),
                name: format!("app-{n}"),
                attempt: 0,
                state: ContainerState::ContainerRunning,
                created_at: INITIAL_TIME,
                started_at: INITIAL_TIME,
                finished_at: 0,
                exit_code: 0,
            })
            .collect(),
    }
}

/// Returns the pods 0, 1, 2, … of a node.
#[must_use]
pub fn pods(seed: u64, pods: u32, containers: u32) -> Pods {
    (0..pods).map(|n| (n, pod(seed, n, containers))).collect()
}

/// Adds `count` exited containers, one to each pod in turn. Exited containers remain on a node until
/// they are removed.
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
            finished_at: INITIAL_TIME,
            exit_code: 1,
            ..first.clone()
        };
        first.attempt += 1;
        // Newest first, as in real runtimes.
        pod.containers.insert(1, old);
    }
}

/// A change of one pod. Timestamps are the time of the change.
#[derive(Clone, Debug)]
pub enum Change {
    /// A sandbox is created, without containers.
    AddPod(Box<Pod>),
    /// No change: STARTED of a sandbox follows its CREATED.
    SandboxStarted,
    /// A container is created.
    AddContainer(Box<Container>),
    /// A container is started.
    Start(String),
    /// A container exits with this code.
    Stop(String, i32),
    /// A container is removed.
    Remove(String),
    /// The sandbox is stopped.
    StopSandbox,
    /// The pod is removed.
    RemovePod,
}

/// Applies the change to the pod at time `now`.
pub fn apply(pods: &mut Pods, number: u32, change: &Change, now: i64) {
    match change {
        Change::AddPod(pod) => {
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
        Change::AddContainer(container) => {
            let created_at = now;
            // Newest first, as in real runtimes.
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
        Change::AddPod(_) | Change::RemovePod | Change::SandboxStarted => {}
    }
}

/// The state of a pod that the cache must show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedPod {
    /// The uid of the pod.
    pub uid: String,
    /// The state of each container by id, as a number of CRI.
    pub containers: BTreeMap<String, i32>,
}

impl ExpectedPod {
    /// Returns the expected state of this pod.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let containers = pod.containers.iter();
        Self {
            uid: pod.uid.clone(),
            containers: containers.map(|c| (c.id.clone(), c.state.into())).collect(),
        }
    }

    /// Returns the expected state of a pod that does not exist.
    #[must_use]
    pub fn removed(uid: &str) -> Self {
        Self {
            uid: uid.to_owned(),
            containers: BTreeMap::new(),
        }
    }
}

/// Returns the expected state of every pod.
#[must_use]
pub fn expected_pods(pods: &Pods) -> Vec<ExpectedPod> {
    pods.values().map(ExpectedPod::of).collect()
}
