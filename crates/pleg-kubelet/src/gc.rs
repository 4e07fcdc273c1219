//! Dead containers and sandboxes that must be removed now, by upstream's rules. Unless the pod is deleted, the newest
//! dead container of each name and the newest sandbox stay.
//!
//! A container is removed only after every registered consumer has acknowledged its Died: removal before that could
//! lose an exit code (k#104107). Upstream has no such rule. The wait is bounded, because a consumer may never
//! acknowledge: by [`MAX_UNACKNOWLEDGED`], and by ten minutes for a deleted pod.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use pleg::core::SandboxState;
use pleg::{ContainerState, ContainerStatus, Id, PodStatus};

/// Number of unacknowledged dead containers of a name, and of sandboxes of a pod, that stay. Older ones are removed: a
/// consumer that never acknowledges would fill the disk. The generator stores as many exit records of a name.
const MAX_UNACKNOWLEDGED: usize = 3;

/// Removal of an ended container or sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Removal {
    /// Stop this container: its state is unknown, so it may run. A later plan removes it, when its Died has been
    /// acknowledged. Upstream removes it at once.
    StopContainer(Id),
    /// Remove this container.
    Container(Id),
    /// Stop and remove this sandbox.
    Sandbox(Id),
}

/// The removals for a pod now: containers first, and of each name the oldest first. A sandbox is removed by a later
/// collection than its last container.
///
/// `is_deleted`: the pod has no specification, and no container of it runs. `is_acknowledged` returns true if every
/// registered consumer has acknowledged the Died of this ended container or sandbox.
pub(crate) fn removals(
    pod: &PodStatus,
    is_deleted: bool,
    is_acknowledged: impl Fn(&Id) -> bool,
) -> Vec<Removal> {
    let (mut removals, staying) = (Vec::new(), usize::from(!is_deleted));
    let mut names: BTreeMap<&str, Vec<&ContainerStatus>> = BTreeMap::new();
    for container in pod
        .containers
        .iter()
        .filter(|c| c.state != ContainerState::Running)
    {
        names.entry(&container.name).or_default().push(container);
    }
    for mut dead in names.into_values() {
        // Equal containers are ordered by id, so that the order does not vary.
        dead.sort_by_key(|c| (Reverse((c.attempt, c.created_at)), &c.id));
        let exited = dead.iter().filter(|c| c.state == ContainerState::Exited);
        let waiting = waiting(exited.map(|c| &c.id), &is_acknowledged);
        // If the newest container waits to be acknowledged, no other one stays in its place.
        let old = dead.iter().skip(staying).rev();
        removals.extend(old.filter(|c| !waiting.contains(&c.id)).map(|c| removal(c)));
    }
    let used: BTreeSet<_> = pod
        .containers
        .iter()
        .filter_map(|c| c.sandbox.as_ref())
        .collect();
    // The status lists the newest sandbox first.
    let sandboxes = pod.sandboxes.iter();
    let ended = sandboxes
        .clone()
        .filter(|s| s.state == SandboxState::NotReady);
    let waiting = waiting(ended.map(|s| &s.id), &is_acknowledged);
    let old = sandboxes
        .skip(staying)
        .rev()
        .filter(|s| s.state != SandboxState::Ready);
    let old = old
        .map(|s| &s.id)
        .filter(|id| !waiting.contains(id) && !used.contains(id));
    removals.extend(old.cloned().map(Removal::Sandbox));
    removals
}

/// The ids that wait to be acknowledged, from ids of ended containers or sandboxes, newest first.
fn waiting<'a>(
    ended: impl Iterator<Item = &'a Id>,
    is_acknowledged: impl Fn(&Id) -> bool,
) -> BTreeSet<&'a Id> {
    let unacknowledged = ended.filter(|id| !is_acknowledged(id));
    unacknowledged.take(MAX_UNACKNOWLEDGED).collect()
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

    /// A container in words: `NAME-ATTEMPT`, and its state if it has not exited.
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
        status
    }

    /// The removals for a pod with these containers or sandboxes. The exits of the last ids are not acknowledged.
    fn removed(is_deleted: bool, pod: &PodStatus, unacknowledged: &str) -> String {
        let is_acknowledged = |id: &Id| !unacknowledged.contains(id.as_str());
        let shown = |removal| match removal {
            Removal::StopContainer(id) => format!("stop {id}"),
            Removal::Container(id) | Removal::Sandbox(id) => id.to_string(),
        };
        let removals = removals(pod, is_deleted, is_acknowledged).into_iter();
        removals.map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn newest_and_unacknowledged_dead_containers_stay() {
        let many = "a-4 running, a-3 created, a-2, a-1, a-0, b-1, b-0";
        let (four, last_four) = (
            "a-3, a-2, a-1, a-0, b-1, b-0, c-0 created",
            "a-0 a-1 a-2 a-3 b-0 c-0",
        );
        for (is_deleted, containers, unacknowledged, expected) in [
            (false, many, "", "a-0 a-1 a-2 b-0"),
            (true, many, "", "a-0 a-1 a-2 a-3 b-0 b-1"),
            // At most three of a name wait. The container c never ran, so it has no exit.
            (true, four, last_four, "a-0 b-1 c-0"),
            (false, "a-1, a-0 unknown", "", "stop a-0"),
        ] {
            let mut pod = PodStatus::nothing("p".into());
            pod.containers = containers.split(", ").map(container).collect();
            let found = removed(is_deleted, &pod, unacknowledged);
            assert_eq!(found, expected, "{containers}");
        }
    }

    #[test]
    fn dead_empty_sandboxes_are_removed_except_the_pods_newest() {
        let (ready, dead) = (SandboxState::Ready, SandboxState::NotReady);
        let unknown = SandboxState::Unknown { last_ready: None };
        for (is_deleted, newest, unacknowledged, expected) in [
            (false, ready, "", "s0 s1 s3"),
            (false, dead, "", "s0 s1 s3"),
            (true, ready, "", "s0 s1 s3"),
            (true, dead, "", "s0 s1 s3 s4"),
            (false, ready, "s0 s3", "s1"),
        ] {
            let mut pod = PodStatus::nothing("p".into());
            let mut user = container("a-0 running");
            user.sandbox = Some("s2".into());
            pod.containers = [user].into();
            let states = [
                ("s4", newest),
                ("s3", dead),
                ("s2", dead),
                ("s1", unknown),
                ("s0", dead),
            ];
            pod.sandboxes = states
                .map(|(id, state)| SandboxStatus::new(id, state))
                .into();
            let found = removed(is_deleted, &pod, unacknowledged);
            assert_eq!(found, expected, "{is_deleted} {newest:?}");
        }
    }
}
