//! Selects the dead containers and sandboxes that must be removed now, by upstream's rules. Unless the pod is deleted,
//! the newest dead container of each name and the newest sandbox stay. A container in the state unknown may run, so it
//! stays until the planner has stopped it. Upstream removes such a container at once.
//!
//! A container is removed after every registered consumer has acknowledged its exit (exceptions: `Plan::begin`): an
//! earlier removal could lose an exit code (kubernetes#104107). Upstream has no such rule.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use pleg::core::SandboxState;
use pleg::{ContainerState, Id, PodStatus};

use crate::worker::is_live;

/// The number of dead containers of a name, or sandboxes of a pod, that may wait for acknowledgement: a consumer that
/// never acknowledges must not fill the disk. The generator stores the exits of as many removed containers of a name.
const MAX_UNACKNOWLEDGED: usize = 3;

/// Removal of an ended container or sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Removal {
    /// Removal of this container.
    Container(Id),
    /// Stop and removal of this sandbox.
    Sandbox(Id),
}

/// The containers of a pod to remove now, the oldest of each name first, then the sandboxes without containers.
/// `is_deleted` is true if the pod has no specification and no running container.
pub(crate) fn removals(
    pod: &PodStatus,
    is_deleted: bool,
    is_acknowledged: impl Fn(&Id) -> bool,
) -> Vec<Removal> {
    let (mut removals, staying) = (Vec::new(), usize::from(!is_deleted));
    let unacknowledged = |id: &&Id| !is_acknowledged(id);
    // Containers and sandboxes that stay until their exits are acknowledged.
    let mut waiting: BTreeSet<&Id> = BTreeSet::new();
    let mut dead: Vec<_> = pod.containers.iter().filter(|c| !is_live(c)).collect();
    // Containers with the same attempt and creation time are ordered by id, so that the order is always the same.
    dead.sort_by_key(|c| (&c.name, Reverse((c.attempt, c.created_at)), &c.id));
    for of_name in dead.chunk_by(|a, b| a.name == b.name) {
        let exited = of_name.iter().filter(|c| c.state == ContainerState::Exited);
        let exited = exited.map(|c| &c.id).filter(unacknowledged);
        waiting.extend(exited.take(MAX_UNACKNOWLEDGED));
        // Unless the pod is deleted, the newest container stays.
        let old = of_name.iter().skip(staying).rev();
        let old = old.filter(|c| !waiting.contains(&c.id));
        removals.extend(old.map(|c| Removal::Container(c.id.clone())));
    }
    let containers = pod.containers.iter();
    let used: BTreeSet<_> = containers.filter_map(|c| c.sandbox.as_ref()).collect();
    // The status lists the newest sandbox first.
    let ended = pod.sandboxes.iter();
    let ended = ended.filter(|s| s.state == SandboxState::NotReady);
    let ended = ended.map(|s| &s.id).filter(unacknowledged);
    waiting.extend(ended.take(MAX_UNACKNOWLEDGED));
    let old = pod.sandboxes.iter().skip(staying).rev();
    let old = old.filter(|s| s.state != SandboxState::Ready);
    let old = old.filter(|s| !waiting.contains(&s.id) && !used.contains(&s.id));
    removals.extend(old.map(|s| Removal::Sandbox(s.id.clone())));
    removals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notation::{pod, rows};

    /// A row: `deleted` or nothing, the pod's containers and sandboxes, the unacknowledged ids, and the ids to remove.
    #[test]
    fn newest_and_unacknowledged_dead_containers_and_sandboxes_stay() {
        let table = "
                    | a-4 running, a-3 created, a-2 exited, a-1 exited, a-0 exited, b-1 exited, b-0 exited | | a-0 a-1 a-2 b-0
            deleted | a-4 running, a-3 created, a-2 exited, a-1 exited, a-0 exited, b-1 exited, b-0 exited | | a-0 a-1 a-2 a-3 b-0 b-1
            # At most three containers of a name wait for acknowledgement. Container c never ran, so it has no exit.
            deleted | a-3 exited, a-2 exited, a-1 exited, a-0 exited, b-1 exited, b-0 exited, c-0 created | a-0 a-1 a-2 a-3 b-0 c-0 | a-0 b-1 c-0
                    | a-2 exited, a-1 unknown, a-0 exited | | a-0
            # A sandbox with a container stays.
                    | sandbox-4 ready, sandbox-3 ended, sandbox-2 ended, sandbox-1 unknown, sandbox-0 ended, a running in=2 | | sandbox-0 sandbox-1 sandbox-3
                    | sandbox-4 ended, sandbox-3 ended, sandbox-2 ended, sandbox-1 unknown, sandbox-0 ended, a running in=2 | | sandbox-0 sandbox-1 sandbox-3
            deleted | sandbox-4 ready, sandbox-3 ended, sandbox-2 ended, sandbox-1 unknown, sandbox-0 ended, a running in=2 | | sandbox-0 sandbox-1 sandbox-3
            deleted | sandbox-4 ended, sandbox-3 ended, sandbox-2 ended, sandbox-1 unknown, sandbox-0 ended, a running in=2 | | sandbox-0 sandbox-1 sandbox-3 sandbox-4
                    | sandbox-4 ready, sandbox-3 ended, sandbox-2 ended, sandbox-1 unknown, sandbox-0 ended, a running in=2 | sandbox-0 sandbox-3 | sandbox-1
        ";
        for row in rows(table) {
            let is_acknowledged = |id: &Id| !row[2].contains(id.as_str());
            let removals = removals(&pod("p", row[1]), row[0] == "deleted", is_acknowledged);
            let ids = removals.iter().map(|r| match r {
                Removal::Container(id) | Removal::Sandbox(id) => id.as_str(),
            });
            assert_eq!(ids.collect::<Vec<_>>().join(" "), row[3], "{row:?}");
        }
    }
}
