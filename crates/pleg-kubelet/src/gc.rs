//! Dead containers and sandboxes of a pod that must be removed now, by upstream's rules.
//!
//! A container is removed only after every registered consumer has acknowledged its Died: removal
//! before that could lose an exit code (k#104107). Upstream has no such rule. It has bounds, because
//! a consumer may never acknowledge: [`GcPolicy::max_unacknowledged`], and ten minutes for a deleted
//! pod.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::time::Duration;

use pleg::core::SandboxState;
use pleg::{ContainerState, ContainerStatus, Id, PodStatus, WallTime};

/// Which dead containers are kept. The default is upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GcPolicy {
    /// A container is kept for this time after its creation. Default: 0. One that was created in the future, because
    /// the clock was set back, is not kept.
    pub min_age: Duration,
    /// How many dead containers are kept per pod and container name; `None`: all. Default: 1.
    pub max_per_pod_container: Option<usize>,
    /// How many dead containers of a pod and name, and how many sandboxes of a pod, wait to be acknowledged. Older ones
    /// are removed: a consumer that never acknowledges would fill the disk. Default: 3, because that many exit records
    /// of a name are kept.
    pub max_unacknowledged: NonZeroUsize,
}

impl Default for GcPolicy {
    fn default() -> Self {
        Self {
            min_age: Duration::ZERO,
            max_per_pod_container: Some(1),
            max_unacknowledged: NonZeroUsize::MIN.saturating_add(2),
        }
    }
}

/// One removal of what has ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Removal {
    /// Stop this container: its state is unknown, so it may run. It is removed by a later plan,
    /// when its Died has been acknowledged. Upstream removes it at once.
    StopContainer(Id),
    /// Remove this container.
    Container(Id),
    /// Stop and remove this sandbox.
    Sandbox(Id),
}

/// The input of a garbage collection, besides the status of the pod.
pub(crate) struct Gc<'a> {
    pub(crate) policy: GcPolicy,
    /// The wall clock, in which runtimes report the time of creation.
    pub(crate) now: WallTime,
    /// The pod has no specification, and nothing of it runs.
    pub(crate) is_deleted: bool,
    /// Returns true if every registered consumer has acknowledged the Died of this container or
    /// sandbox. Asked only for what has ended.
    pub(crate) is_acknowledged: &'a dyn Fn(&Id) -> bool,
}

impl Gc<'_> {
    /// What to remove now, in this order: containers first, and of each name the oldest first.
    ///
    /// A sandbox is removed by a later collection than its last container.
    pub(crate) fn removals(&self, pod: &PodStatus) -> Vec<Removal> {
        let mut removals = self.containers(pod);
        removals.extend(self.sandboxes(pod));
        removals
    }

    fn containers(&self, pod: &PodStatus) -> Vec<Removal> {
        let mut names: BTreeMap<&str, Vec<&ContainerStatus>> = BTreeMap::new();
        for container in pod.containers.iter().filter(|c| self.is_evictable(c)) {
            names.entry(&container.name).or_default().push(container);
        }
        let most = self.policy.max_per_pod_container.unwrap_or(usize::MAX);
        let kept = if self.is_deleted { 0 } else { most };
        let mut removals = Vec::new();
        for mut dead in names.into_values() {
            // The id decides between equals, so that the order does not vary.
            dead.sort_by_key(|c| (Reverse((c.attempt, c.created_at)), &c.id));
            let exited = dead.iter().filter(|c| c.state == ContainerState::Exited);
            let waiting = self.waiting(exited.map(|c| &c.id));
            // A container that waits counts as one that is kept.
            let old = dead.iter().skip(kept).rev();
            removals.extend(old.filter(|c| !waiting.contains(&c.id)).map(|c| removal(c)));
        }
        removals
    }

    /// Of what has ended, newest first, the ids that wait to be acknowledged.
    fn waiting<'b>(&self, ended: impl Iterator<Item = &'b Id>) -> BTreeSet<&'b Id> {
        let unacknowledged = ended.filter(|id| !(self.is_acknowledged)(id));
        let most = self.policy.max_unacknowledged.get();
        unacknowledged.take(most).collect()
    }

    /// Returns true for a container that does not run and is old enough.
    fn is_evictable(&self, container: &ContainerStatus) -> bool {
        let oldest = self.now.before(self.policy.min_age);
        let created = container.created_at;
        let is_young = created.is_some_and(|at| at > oldest && at <= self.now);
        container.state != ContainerState::Running && !is_young
    }

    fn sandboxes(&self, pod: &PodStatus) -> Vec<Removal> {
        let used: BTreeSet<_> = pod
            .containers
            .iter()
            .filter_map(|c| c.sandbox.as_ref())
            .collect();
        // The status has the newest first.
        let not_ready = pod
            .sandboxes
            .iter()
            .filter(|s| s.state == SandboxState::NotReady);
        let waiting = self.waiting(not_ready.map(|s| &s.id));
        let old = pod
            .sandboxes
            .iter()
            .skip(usize::from(!self.is_deleted))
            .rev();
        old.filter(|s| s.state != SandboxState::Ready)
            .filter(|s| !waiting.contains(&s.id) && !used.contains(&s.id))
            .map(|s| Removal::Sandbox(s.id.clone()))
            .collect()
    }
}

fn removal(container: &ContainerStatus) -> Removal {
    let id = container.id.clone();
    match container.state {
        ContainerState::Unknown { .. } => Removal::StopContainer(id),
        _ => Removal::Container(id),
    }
}

#[cfg(test)]
mod tests {
    use ContainerState::{Created, Exited, Running};
    use pleg::core::SandboxStatus;

    use super::*;

    const NOW: WallTime = WallTime::from_nanos(1_782_900_000_000_000_000);

    /// A container in words: `NAME-ATTEMPT`, its state if it has not exited. It was created 1,000 − 10 × attempt seconds ago.
    fn container(words: &str) -> ContainerStatus {
        let (id, state) = words.split_once(' ').unwrap_or((words, ""));
        let (name, attempt) = id.split_once('-').unwrap();
        let state = match state {
            "running" => Running,
            "created" => Created,
            "unknown" => ContainerState::Unknown { last: None },
            _ => Exited,
        };
        let mut status = ContainerStatus::new(id, name, state);
        status.attempt = attempt.parse().unwrap();
        let created = Duration::from_secs(10 * u64::from(status.attempt));
        status.created_at = Some(NOW.before(Duration::from_secs(1_000)).after(created));
        status
    }

    /// A pod with these containers, and the ids whose exits are not acknowledged.
    struct Case {
        policy: GcPolicy,
        is_deleted: bool,
        unacknowledged: &'static str,
        pod: PodStatus,
    }

    impl Case {
        fn new(is_deleted: bool, containers: &str) -> Self {
            let mut pod = PodStatus::nothing("p".into());
            let words = containers.split(", ").filter(|words| !words.is_empty());
            pod.containers = words.map(container).collect();
            let (policy, unacknowledged) = (GcPolicy::default(), "");
            Self {
                policy,
                is_deleted,
                unacknowledged,
                pod,
            }
        }

        fn removed(&self) -> String {
            let gc = Gc {
                policy: self.policy,
                now: NOW,
                is_deleted: self.is_deleted,
                is_acknowledged: &|id| !self.unacknowledged.contains(id.as_str()),
            };
            let shown = |removal| match removal {
                Removal::StopContainer(id) => format!("stop {id}"),
                Removal::Container(id) | Removal::Sandbox(id) => id.to_string(),
            };
            let removals = gc.removals(&self.pod).into_iter();
            removals.map(shown).collect::<Vec<_>>().join(" ")
        }
    }

    #[test]
    fn newest_dead_containers_of_each_name_are_kept_by_policy() {
        assert_eq!(GcPolicy::default().max_per_pod_container, Some(1));
        for (is_deleted, max, removed) in [
            (false, Some(1), "a-0 a-1 a-2 b-0"),
            (false, Some(0), "a-0 a-1 a-2 a-3 b-0 b-1"),
            (false, Some(2), "a-0 a-1"),
            (false, None, ""),
            (true, Some(1), "a-0 a-1 a-2 a-3 b-0 b-1"),
        ] {
            let containers = "a-4 running, a-3 created, a-2, a-1, a-0, b-1, b-0";
            let mut case = Case::new(is_deleted, containers);
            case.policy.max_per_pod_container = max;
            assert_eq!(case.removed(), removed, "{max:?}");
        }
    }

    #[test]
    fn young_container_is_kept_unless_it_is_from_the_future() {
        let mut case = Case::new(true, "a-3, a-2, a-1, a-0, f-200");
        case.policy.min_age = Duration::from_secs(985);
        assert_eq!(case.removed(), "a-0 a-1 f-200");
    }

    #[test]
    fn unacknowledged_exits_are_kept_up_to_three_of_a_name() {
        // The container c never ran, so it has no exit.
        let mut case = Case::new(true, "a-3, a-2, a-1, a-0, b-1, b-0, c-0 created");
        case.unacknowledged = "a-0 a-1 a-2 a-3 b-0 c-0";
        assert_eq!(case.removed(), "a-0 b-1 c-0");
    }

    #[test]
    fn container_in_unknown_state_is_stopped_first() {
        let case = Case::new(false, "a-1, a-0 unknown");
        assert_eq!(case.removed(), "stop a-0");
    }

    #[test]
    fn dead_empty_sandboxes_go_except_the_newest_of_a_pod() {
        let (ready, dead) = (SandboxState::Ready, SandboxState::NotReady);
        let unknown = SandboxState::Unknown { last_ready: None };
        for (is_deleted, newest, unacknowledged, removed) in [
            (false, ready, "", "s0 s1 s3"),
            (false, dead, "", "s0 s1 s3"),
            (true, ready, "", "s0 s1 s3"),
            (true, dead, "", "s0 s1 s3 s4"),
            (false, ready, "s0 s3", "s1"),
        ] {
            let mut case = Case::new(is_deleted, "");
            case.unacknowledged = unacknowledged;
            let mut user = container("a-0 running");
            user.sandbox = Some("s2".into());
            case.pod.containers = [user].into();
            let states = [
                ("s4", newest),
                ("s3", dead),
                ("s2", dead),
                ("s1", unknown),
                ("s0", dead),
            ];
            let sandboxes = states.map(|(id, state)| SandboxStatus::new(id, state));
            case.pod.sandboxes = sandboxes.into();
            assert_eq!(case.removed(), removed, "{is_deleted} {newest:?}");
        }
    }
}
