//! Garbage collection: which containers and sandboxes are removed, and in which order.

use std::num::NonZeroUsize;
use std::time::Duration;

use pleg::core::{SandboxState, SandboxStatus};
use pleg::{ContainerState, ContainerStatus, Id, PodStatus, PodUid, WallTime};
use pleg_kubelet::gc::{Gc, GcPolicy, PodExistence, Removal};

const NOW: WallTime = WallTime::from_nanos(1_782_900_000_000_000_000);
const UNKNOWN: ContainerState = ContainerState::Unknown { last: None };
use ContainerState::{Created, Exited, Running};

/// A container `NAME-ATTEMPT`, created 1,000 − 10 × attempt seconds ago.
fn container(name: &str, attempt: u32, state: ContainerState) -> ContainerStatus {
    let mut status = ContainerStatus::new(&*format!("{name}-{attempt}"), name, state);
    status.attempt = attempt;
    status.created_at = Some(NOW.before(Duration::from_secs(1_000 - 10 * u64::from(attempt))));
    status
}

/// The exited attempts of that name, newest first.
fn exited(name: &str, attempts: std::ops::Range<u32>) -> Vec<ContainerStatus> {
    attempts
        .rev()
        .map(|attempt| container(name, attempt, Exited))
        .collect()
}

fn pod(uid: &str, containers: Vec<ContainerStatus>, sandboxes: Vec<SandboxStatus>) -> PodStatus {
    let mut pod = PodStatus::nothing(PodUid::from(uid));
    (pod.containers, pod.sandboxes) = (containers.into(), sandboxes.into());
    pod
}

/// Which pods exist, and what holds besides.
#[derive(Clone, Copy)]
struct Node<'a> {
    policy: GcPolicy,
    deleted: &'a [&'a str],
    terminated: &'a [&'a str],
    not_acknowledged: &'a [&'a str],
    sources_ready: bool,
    evict_terminated: bool,
}

const NODE: Node<'_> = Node {
    policy: GcPolicy {
        min_age: Duration::ZERO,
        max_per_pod_container: Some(1),
        max_containers: None,
        max_unacknowledged: NonZeroUsize::MIN.saturating_add(2),
    },
    deleted: &[],
    terminated: &[],
    not_acknowledged: &[],
    sources_ready: true,
    evict_terminated: false,
};

fn removals(node: Node<'_>, pods: &[PodStatus]) -> Vec<String> {
    let existence = |uid: &PodUid| match uid.as_str() {
        uid if node.deleted.contains(&uid) => PodExistence::Deleted,
        uid if node.terminated.contains(&uid) => PodExistence::Terminated,
        _ => PodExistence::Exists,
    };
    let gc = Gc {
        policy: node.policy,
        now: NOW,
        existence: &existence,
        sources_ready: node.sources_ready,
        evict_terminated: node.evict_terminated,
        acknowledged: &|id: &Id| !node.not_acknowledged.contains(&id.as_str()),
    };
    let shown = |removal| match removal {
        Removal::StopContainer(id) => format!("stop {id}"),
        Removal::Container(id) => id.to_string(),
        Removal::Sandbox(id) => format!("sandbox {id}"),
    };
    let pods: Vec<_> = pods.iter().collect();
    gc.removals(&pods).into_iter().map(shown).collect()
}

fn policy(per_container: Option<usize>, all: Option<usize>) -> GcPolicy {
    GcPolicy {
        max_per_pod_container: per_container,
        max_containers: all,
        ..GcPolicy::default()
    }
}

#[test]
fn default_policy_keeps_one_dead_container_per_name() {
    assert_eq!(NODE.policy, GcPolicy::default());
    let mut containers = vec![container("a", 4, Running)];
    containers.extend(exited("a", 0..4));
    containers.extend(exited("b", 0..2));
    let pods = [
        pod("p", containers, vec![]),
        pod("q", exited("a", 7..8), vec![]),
    ];
    assert_eq!(removals(NODE, &pods), ["a-0", "a-1", "a-2", "b-0"]);
}

#[test]
fn numbers_of_kept_containers_follow_the_policy() {
    let pods = [
        pod("p", exited("a", 0..3), vec![]),
        pod("q", exited("b", 4..9), vec![]),
    ];
    let all = ["a-0", "a-1", "a-2", "b-4", "b-5", "b-6", "b-7", "b-8"];
    let cases: [(GcPolicy, &[&str]); 8] = [
        (policy(None, None), &[]),
        (policy(Some(0), None), &all),
        (policy(Some(2), None), &["a-0", "b-4", "b-5", "b-6"]),
        (policy(Some(9), None), &[]),
        // Two for each name.
        (policy(None, Some(4)), &["a-0", "b-4", "b-5", "b-6"]),
        // One for each name.
        (
            policy(None, Some(3)),
            &["a-0", "a-1", "b-4", "b-5", "b-6", "b-7"],
        ),
        // One for each name, then the oldest of all.
        (
            policy(None, Some(1)),
            &["a-0", "a-1", "b-4", "b-5", "b-6", "b-7", "a-2"],
        ),
        (
            policy(Some(1), Some(8)),
            &["a-0", "a-1", "b-4", "b-5", "b-6", "b-7"],
        ),
    ];
    for (policy, removed) in cases {
        assert_eq!(
            removals(Node { policy, ..NODE }, &pods),
            removed,
            "{policy:?}"
        );
    }
}

#[test]
fn young_and_running_containers_are_kept() {
    let pods = [pod("p", exited("a", 0..4), vec![])];
    let min_age = Duration::from_secs(985);
    let young = GcPolicy {
        min_age,
        ..policy(Some(0), None)
    };
    assert_eq!(
        removals(
            Node {
                policy: young,
                ..NODE
            },
            &pods
        ),
        ["a-0", "a-1"]
    );

    let states = vec![
        container("a", 3, Running),
        container("a", 2, Created),
        container("a", 1, Exited),
    ];
    assert_eq!(removals(NODE, &[pod("p", states, vec![])]), ["a-1"]);
}

#[test]
fn containers_of_deleted_pods_are_all_removed_once_sources_are_ready() {
    let mut containers = exited("a", 0..2);
    containers.insert(0, container("a", 2, Running));
    let pods = [
        pod("gone", containers, vec![]),
        pod("ended", exited("b", 0..1), vec![]),
    ];
    let node = Node {
        deleted: &["gone"],
        terminated: &["ended"],
        ..NODE
    };
    let cases: [(bool, bool, &[&str]); 3] = [
        (true, false, &["a-0", "a-1"]),
        (true, true, &["b-0", "a-0", "a-1"]),
        (false, true, &["a-0"]),
    ];
    for (sources_ready, evict_terminated, removed) in cases {
        let node = Node {
            sources_ready,
            evict_terminated,
            ..node
        };
        assert_eq!(removals(node, &pods), removed);
    }
}

#[test]
fn container_whose_died_was_not_acknowledged_is_kept() {
    let pods = [
        pod("p", exited("a", 0..3), vec![]),
        pod("gone", exited("b", 0..2), vec![]),
    ];
    let node = Node {
        deleted: &["gone"],
        not_acknowledged: &["a-0", "b-1"],
        ..NODE
    };
    assert_eq!(removals(node, &pods), ["b-0", "a-1"]);
    // One that never ran has no Died.
    let created = [pod("gone", vec![container("c", 0, Created)], vec![])];
    let node = Node {
        not_acknowledged: &["c-0"],
        ..node
    };
    assert_eq!(removals(node, &created), ["c-0"]);
}

#[test]
fn container_in_unknown_state_is_stopped_first() {
    let mut containers = exited("a", 2..3);
    containers.push(container("a", 1, UNKNOWN));
    containers.push(container("a", 0, UNKNOWN));
    assert_eq!(
        removals(NODE, &[pod("p", containers, vec![])]),
        ["stop a-0", "stop a-1"]
    );
}

#[test]
fn sandboxes_are_removed_when_they_are_dead_and_empty_and_not_the_newest() {
    let sandbox = |id: &str, state| SandboxStatus::new(id, state);
    let (ready, dead) = (SandboxState::Ready, SandboxState::NotReady);
    let unknown = SandboxState::Unknown { last_ready: None };
    let mut kept_by = container("a", 0, Running);
    kept_by.sandbox = Some(Id::from("s2"));
    let sandboxes = |newest| {
        vec![
            sandbox("s4", newest),
            sandbox("s3", dead),
            sandbox("s2", dead),
            sandbox("s1", unknown),
            sandbox("s0", dead),
        ]
    };
    let with = |newest| [pod("p", vec![kept_by.clone()], sandboxes(newest))];
    let old = ["sandbox s0", "sandbox s1", "sandbox s3"];
    let all = ["sandbox s0", "sandbox s1", "sandbox s3", "sandbox s4"];
    let gone = Node {
        deleted: &["p"],
        ..NODE
    };
    assert_eq!(removals(NODE, &with(ready)), old);
    assert_eq!(removals(NODE, &with(dead)), old);
    assert_eq!(removals(gone, &with(ready)), old);
    assert_eq!(removals(gone, &with(dead)), all);
    assert_eq!(
        removals(
            Node {
                sources_ready: false,
                ..gone
            },
            &with(dead)
        ),
        old
    );
    let not_acknowledged = &["s0", "s3"];
    assert_eq!(
        removals(
            Node {
                not_acknowledged,
                ..NODE
            },
            &with(ready)
        ),
        ["sandbox s1"]
    );
}
