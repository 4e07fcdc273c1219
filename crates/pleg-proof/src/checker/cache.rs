//! Checks published views: the `as_of` of a pod never goes back, and the core drops no pod that exists.

use std::collections::{BTreeMap, BTreeSet};

use pleg_core::{Confirmed, ContainerState, Instant, KnownState, PodUid, PodView, SandboxState};
use pleg_node_model::{Id, Kind, Label, Node, Object, State};

use super::Checker;

/// The latest published view of each pod.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Cache {
    views: BTreeMap<PodUid, PodView>,
    /// Every id that any published view has contained.
    ever: BTreeSet<Id>,
}

impl Checker {
    pub(crate) fn published(&mut self, uid: &PodUid, view: PodView) {
        let before = self.cache.views.get(uid).and_then(|view| view.as_of);
        if before > view.as_of {
            let now = view.as_of;
            self.fail(format!("{uid}: as of goes back from {before:?} to {now:?}"));
        }
        let containers = view.status.containers.iter().map(|c| &c.id);
        let ids = view
            .status
            .sandboxes
            .iter()
            .map(|s| &s.id)
            .chain(containers);
        self.cache.ever.extend(ids.map(|id| Id::from(id.as_str())));
        self.cache.views.insert(uid.clone(), view);
    }

    pub(crate) fn refreshed(&mut self, as_of: Instant, pods: &Confirmed) {
        for (uid, view) in &mut self.cache.views {
            let is_meant = match pods {
                Confirmed::All => true,
                Confirmed::These(pods) => pods.contains(uid),
            };
            if is_meant && view.status.exists() {
                view.as_of = view.as_of.max(Some(as_of));
            }
        }
    }

    /// Checks, after a relist that began at `as_of`, that each pod that existed then and now has a published view.
    pub(crate) fn relist_settled(&mut self, as_of: Instant, gone: &[PodUid], node: &Node) {
        for uid in gone {
            let view = self.cache.views.remove(uid);
            if view.is_some_and(|view| view.status.exists()) {
                self.fail(format!("{uid} is dropped although it has ids"));
            }
        }
        let existed = |o: &&Object| {
            let then = o.state_at(as_of.as_nanos());
            o.label == Label::Right && o.exists() && then.is_some_and(|s| s != State::Removed)
        };
        let mut existing = node.objects().filter(existed);
        let lost =
            existing.find(|o| !self.is_excused(o) && !self.cache.views.contains_key(&*o.pod.uid));
        if let Some(lost) = lost {
            let uid = &lost.pod.uid;
            self.fail(format!(
                "{uid} exists, is not in the cache and a relist has settled"
            ));
        }
    }
}

impl Cache {
    /// The state and the exit code that the cache shows for an object.
    pub(super) fn shown(&self, o: &Object) -> Option<(State, Option<i32>)> {
        self.views.get(&*o.pod.uid).and_then(|view| shown(view, o))
    }

    /// The instant at which the core requested the rows that the pod's latest view shows.
    pub(super) fn as_of(&self, uid: &str) -> Option<u64> {
        Some(self.views.get(uid)?.as_of?.as_nanos())
    }

    /// Returns true if the cache has a start time for the object.
    pub(super) fn has_start(&self, o: &Object) -> bool {
        let view = self.views.get(&*o.pod.uid);
        view.is_some_and(|view| has_start(view, o))
    }

    pub(super) fn was_published(&self, id: &Id) -> bool {
        self.ever.contains(id)
    }
}

fn is_ready(state: SandboxState) -> bool {
    let was_ready = SandboxState::Unknown {
        last_ready: Some(true),
    };
    state == SandboxState::Ready || state == was_ready
}

/// The state and the exit code that a view shows for an object.
pub(super) fn shown(view: &PodView, o: &Object) -> Option<(State, Option<i32>)> {
    let status = &view.status;
    match o.kind {
        Kind::Sandbox => {
            let s = status.sandboxes.iter().find(|s| *s.id.as_str() == *o.id)?;
            let ready = is_ready(s.state);
            Some((if ready { State::Running } else { State::Exited }, None))
        }
        Kind::Container => {
            let c = status.containers.iter().find(|c| *c.id.as_str() == *o.id)?;
            let state = match c.state {
                ContainerState::Running => State::Running,
                ContainerState::Exited => State::Exited,
                ContainerState::Unknown { last } => match last {
                    Some(KnownState::Running) => State::Running,
                    Some(KnownState::Exited) => State::Exited,
                    _ => State::Created,
                },
                _ => State::Created,
            };
            Some((state, c.details.exit_code))
        }
    }
}

/// Returns true if the view has a start time for the object. A sandbox starts when the runtime creates the sandbox.
pub(super) fn has_start(view: &PodView, o: &Object) -> bool {
    let status = &view.status;
    let mut containers = status.containers.iter();
    let mut sandboxes = status.sandboxes.iter();
    sandboxes.any(|s| *s.id.as_str() == *o.id && s.created_at.is_some())
        || containers.any(|c| *c.id.as_str() == *o.id && c.details.started_at.is_some())
}

/// Returns true if the view has an error for the object `o`.
pub(super) fn has_error(view: &PodView, o: &Object) -> bool {
    let sandboxes = view.status.sandboxes.iter();
    let sandboxes = sandboxes.map(|s| (&s.id, s.error.is_some()));
    let containers = view.status.containers.iter();
    let containers = containers.map(|c| (&c.id, c.error.is_some()));
    let mut all = sandboxes.chain(containers);
    all.any(|(id, has_error)| *id.as_str() == *o.id && has_error)
}
