//! Which containers and sandboxes to remove now, by upstream's rules.
//!
//! A container is removed only after every registered consumer has acknowledged its Died: removal before
//! that could lose an exit code (k#104107). Upstream has no such rule. It has bounds, because a consumer may never
//! acknowledge: see [`GcPolicy::max_unacknowledged`] and [`Decider::removals`](crate::decision::Decider::removals).

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::time::Duration;

use pleg::core::{Health, SandboxState};
use pleg::{ContainerState, ContainerStatus, Id, PodStatus, PodUid, WallTime};

use crate::decision::Decision;
use crate::worker::Run;

/// Which dead containers are kept. The default is upstream's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcPolicy {
    /// A container is kept for this time after its creation. Default: 0. One that was created in the future, because
    /// the clock was set back, is not kept.
    pub min_age: Duration,
    /// How many dead containers are kept per pod and container name; `None`: all. Default: 1.
    pub max_per_pod_container: Option<usize>,
    /// How many dead containers are kept in all; `None`: any number. Default: `None`.
    pub max_containers: Option<usize>,
    /// How many dead containers of a pod and name, and how many sandboxes of a pod, wait to be acknowledged. Older ones
    /// are removed: a consumer that never acknowledges would fill the disk. Default: 3, for so many ends of a name are
    /// kept as terminal records.
    pub max_unacknowledged: NonZeroUsize,
}

impl Default for GcPolicy {
    fn default() -> Self {
        Self {
            min_age: Duration::ZERO,
            max_per_pod_container: Some(1),
            max_containers: None,
            max_unacknowledged: NonZeroUsize::MIN.saturating_add(2),
        }
    }
}

/// What the kubelet knows of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodExistence {
    /// It is to exist.
    Exists,
    /// It has ended, and its object is still there.
    Terminated,
    /// The kubelet does not know it, or it has ended and its object is gone.
    Deleted,
}

/// One step of a garbage collection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Removal {
    /// Stop this container: its state is unknown, so it may run. It is removed by a later collection,
    /// when its Died has been acknowledged. Upstream removes it at once.
    StopContainer(Id),
    /// Remove this container.
    Container(Id),
    /// Stop and remove this sandbox.
    Sandbox(Id),
}

/// What a garbage collection is decided from.
pub struct Gc<'a> {
    /// Which dead containers are kept.
    pub policy: GcPolicy,
    /// The wall clock, in which runtimes report the time of creation.
    pub now: WallTime,
    /// What the kubelet knows of a pod.
    pub existence: &'a dyn Fn(&PodUid) -> PodExistence,
    /// Whether all sources of pods have been read. Until then no pod is known to be deleted.
    /// (Upstream asks this for containers only.)
    pub sources_ready: bool,
    /// Whether pods that have terminated are treated as deleted (upstream does so when the disk is
    /// full).
    pub evict_terminated: bool,
    /// Whether every registered consumer has acknowledged the Died of this container or sandbox. It is asked
    /// for what has ended only.
    pub acknowledged: &'a dyn Fn(&Id) -> bool,
}

impl std::fmt::Debug for Gc<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gc")
            .field("policy", &self.policy)
            .field("now", &self.now)
            .field("sources_ready", &self.sources_ready)
            .field("evict_terminated", &self.evict_terminated)
            .finish_non_exhaustive()
    }
}

/// A dead container.
#[derive(Clone, Copy)]
struct Dead<'a> {
    status: &'a ContainerStatus,
}

impl Dead<'_> {
    /// Newer first. The id decides between equals, so that the order does not vary.
    fn newest_first(&self, other: &Self) -> Ordering {
        let age = |c: &Self| (c.status.attempt, c.status.created_at);
        let by_id = || self.status.id.cmp(&other.status.id);
        Reverse(age(self))
            .cmp(&Reverse(age(other)))
            .then_with(by_id)
    }
}

impl Gc<'_> {
    /// What to remove now, in the order in which to remove it: containers first, and of each pod and
    /// name the oldest first.
    ///
    /// A sandbox is listed when its last container is gone from `pods`, so it is removed by the next
    /// collection after its containers.
    #[must_use]
    pub fn removals(&self, pods: &[&PodStatus]) -> Vec<Removal> {
        let mut removals = self.containers(pods);
        removals.extend(self.sandboxes(pods));
        removals
    }

    fn containers(&self, pods: &[&PodStatus]) -> Vec<Removal> {
        let mut removed = Vec::new();
        let mut units: BTreeMap<(&PodUid, &str), Vec<Dead<'_>>> = BTreeMap::new();
        let mut waiting = BTreeSet::new();
        for pod in pods {
            for status in pod.containers.iter().filter(|c| self.is_evictable(c)) {
                let unit = units.entry((&pod.uid, &status.name)).or_default();
                unit.push(Dead { status });
            }
        }
        for unit in units.values_mut() {
            unit.sort_by(Dead::newest_first);
            let unacknowledged = unit.iter().map(|dead| dead.status);
            let unacknowledged = unacknowledged.filter(|c| c.state == ContainerState::Exited);
            let unacknowledged = unacknowledged.filter(|c| !(self.acknowledged)(&c.id));
            let newest = unacknowledged.take(self.policy.max_unacknowledged.get());
            waiting.extend(newest.map(|c| &c.id));
        }
        units.retain(|(uid, _), unit| {
            let all = self.sources_ready && self.is_gone(uid);
            if all {
                keep_newest(unit, 0, &mut removed);
            }
            !all
        });
        if let Some(kept) = self.policy.max_per_pod_container {
            for unit in units.values_mut() {
                keep_newest(unit, kept, &mut removed);
            }
        }
        let number = |units: &BTreeMap<_, Vec<_>>| units.values().map(Vec::len).sum::<usize>();
        if let Some(max) = self.policy.max_containers
            && number(&units) > max
        {
            // The same number for each, at least one.
            let each = max.checked_div(units.len()).unwrap_or_default().max(1);
            for unit in units.values_mut() {
                keep_newest(unit, each, &mut removed);
            }
            let mut rest: Vec<_> = units.into_values().flatten().collect();
            rest.sort_by(Dead::newest_first);
            keep_newest(&mut rest, max, &mut removed);
        }
        // A container that must stay counts as one that is kept.
        removed
            .iter()
            .filter(|c| !waiting.contains(&c.status.id))
            .map(|c| removal(c.status))
            .collect()
    }

    /// Not running, and old enough.
    fn is_evictable(&self, container: &ContainerStatus) -> bool {
        let running = container.state == ContainerState::Running;
        let created = container.created_at;
        let oldest = self.now.before(self.policy.min_age);
        let young = created.is_some_and(|at| at > oldest && at <= self.now);
        !running && !young
    }

    fn is_gone(&self, uid: &PodUid) -> bool {
        match (self.existence)(uid) {
            PodExistence::Deleted => true,
            PodExistence::Terminated => self.evict_terminated,
            PodExistence::Exists => false,
        }
    }

    fn sandboxes(&self, pods: &[&PodStatus]) -> Vec<Removal> {
        let mut removals = Vec::new();
        for pod in pods {
            let used: BTreeSet<_> = pod
                .containers
                .iter()
                .filter_map(|c| c.sandbox.as_ref())
                .collect();
            let kept = usize::from(!(self.sources_ready && self.is_gone(&pod.uid)));
            // The status has the newest first.
            let ended = pod.sandboxes.iter();
            let ended = ended.filter(|s| s.state == SandboxState::NotReady);
            let waiting = ended.filter(|s| !(self.acknowledged)(&s.id));
            let waiting = waiting.take(self.policy.max_unacknowledged.get());
            let waiting: BTreeSet<_> = waiting.map(|s| &s.id).collect();
            for sandbox in pod.sandboxes.iter().skip(kept).rev() {
                let is_ready = sandbox.state == SandboxState::Ready;
                if !is_ready && !waiting.contains(&sandbox.id) && !used.contains(&sandbox.id) {
                    removals.push(Removal::Sandbox(sandbox.id.clone()));
                }
            }
        }
        removals
    }
}

fn removal(container: &ContainerStatus) -> Removal {
    let id = container.id.clone();
    match container.state {
        ContainerState::Unknown { .. } => Removal::StopContainer(id),
        _ => Removal::Container(id),
    }
}

/// What to remove of the pod of this run, by what was decided, and which of that was not acknowledged. Whether its ends
/// have been acknowledged is asked of the generator.
pub(crate) async fn removals_of_pod<S>(
    run: &Run<S>,
    decision: &Decision,
    policy: GcPolicy,
) -> (Vec<Removal>, BTreeSet<Id>) {
    let (pleg, status) = (run.pleg(), &decision.view.status);
    let existence = match (&run.spec, decision.actions.terminated) {
        (None, true) => PodExistence::Deleted,
        (Some(_), true) => PodExistence::Terminated,
        (_, false) => PodExistence::Exists,
    };
    let containers = status.containers.iter();
    let exited = containers.filter(|c| c.state == ContainerState::Exited);
    let sandboxes = status.sandboxes.iter();
    let not_ready = sandboxes.filter(|s| s.state == SandboxState::NotReady);
    let (mut acknowledged, mut others) = (BTreeSet::new(), BTreeSet::new());
    for id in exited.map(|c| &c.id).chain(not_ready.map(|s| &s.id)) {
        if pleg.is_acknowledged(id).await {
            acknowledged.insert(id);
        } else {
            others.insert(id.clone());
        }
    }
    let record = |id: &Id| decision.ends.iter().find(|record| record.id == *id);
    let is_old = |id: &Id| {
        record(id).is_some_and(|r| run.now().since(r.detected) >= Health::ACKNOWLEDGED_WITHIN)
    };
    let is_gone = existence == PodExistence::Deleted;
    let gc = Gc {
        policy,
        now: pleg.clock().wall(),
        existence: &|_| existence,
        sources_ready: true,
        evict_terminated: false,
        acknowledged: &|id| acknowledged.contains(id) || (is_gone && is_old(id)),
    };
    (gc.removals(&[status]), others)
}

/// Moves all but the newest `kept` containers to the removed ones, the oldest first.
fn keep_newest<'a>(newest_first: &mut Vec<Dead<'a>>, kept: usize, removed: &mut Vec<Dead<'a>>) {
    let kept = kept.min(newest_first.len());
    removed.extend(newest_first.drain(kept..).rev());
}
