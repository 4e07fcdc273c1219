//! Checks invariants 2, 3, 5, 6 and 7 on the cache.

use std::collections::BTreeMap;

use pleg_core::{
    CallError, Confirmed, ContainerState, Id, Instant, KnownState, PodStatus, PodUid, PodView,
    SandboxState, WaiterId,
};

use super::{Checks, Input, hold};
use crate::harness::Violation;
use crate::node::{Node, State};
use crate::ops::Pod;
use crate::reports::{MS, instant};

/// What a status shows of one id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The state, or the last known one under an UNKNOWN.
    pub state: Option<State>,
    pub unknown: bool,
    pub sandbox: Option<Id>,
    pub name: String,
    pub code: Option<i32>,
}

/// The ids in a status.
pub fn seen(status: &PodStatus) -> BTreeMap<Id, Seen> {
    let mut all = BTreeMap::new();
    for s in &status.sandboxes {
        let ready = |r| if r { State::Running } else { State::Exited };
        let (state, unknown) = match s.state {
            SandboxState::Ready => (Some(State::Running), false),
            SandboxState::NotReady => (Some(State::Exited), false),
            SandboxState::Unknown { last_ready } => (last_ready.map(ready), true),
            _ => (None, true),
        };
        let seen = Seen {
            state,
            unknown,
            sandbox: None,
            name: String::new(),
            code: None,
        };
        all.insert(s.id.clone(), seen);
    }
    for c in &status.containers {
        let known = |k| match k {
            KnownState::Created => State::Created,
            KnownState::Running => State::Running,
            KnownState::Exited => State::Exited,
        };
        let (state, unknown) = match c.state {
            ContainerState::Created => (Some(State::Created), false),
            ContainerState::Running => (Some(State::Running), false),
            ContainerState::Exited => (Some(State::Exited), false),
            ContainerState::Unknown { last } => (last.map(known), true),
            _ => (None, true),
        };
        let seen = Seen {
            state,
            unknown,
            sandbox: c.sandbox.clone(),
            name: c.name.to_string(),
            code: c.details.exit_code,
        };
        all.insert(c.id.clone(), seen);
    }
    all
}

impl Checks {
    pub(super) fn publish(
        &mut self,
        node: &Node,
        now: u64,
        uid: &PodUid,
        view: &PodView,
    ) -> Result<(), Violation> {
        let before = self.cache.get(uid).cloned();
        if let Some(old) = before.as_ref().filter(|v| !v.status.is_nothing()) {
            hold!(
                view.as_of >= old.as_of,
                "invariant-3-never-older",
                "{uid} was as of {:?} and is as of {:?}",
                old.as_of,
                view.as_of
            );
        }
        let old = before.as_ref().map(|v| seen(&v.status)).unwrap_or_default();
        let new = seen(&view.status);
        for (id, seen) in &new {
            self.shows(node, now, id, seen)?;
            if let Some(old) = old
                .get(id)
                .filter(|_| !self.misreported_at.contains_key(id))
            {
                let kept = (old.sandbox.is_none() || old.sandbox == seen.sandbox)
                    && (old.name.is_empty() || old.name == seen.name)
                    && (old.code.is_none() || old.code == seen.code);
                hold!(
                    kept,
                    "invariant-7-nothing-erased",
                    "{id} was {old:?} and is {seen:?}"
                );
            }
        }
        self.fresh(node, now, uid, view)?;
        self.cache.insert(uid.clone(), view.clone());
        self.left_cache(now, old.keys().filter(|id| !new.contains_key(*id)));
        Ok(())
    }

    /// One id in the cache.
    fn shows(&mut self, node: &Node, now: u64, id: &Id, seen: &Seen) -> Result<(), Violation> {
        let object = node.object(id);
        let real = object.and_then(|l| l.at(now));
        hold!(
            real.is_some(),
            "invariant-2-nothing-invented",
            "{id} never existed"
        );
        if let (Some(object), Some(code)) = (object, seen.code) {
            hold!(
                code == object.code && object.exited.is_some(),
                "invariant-2-true-exit-code",
                "{id} is shown with exit code {code}, {object:?}"
            );
            hold!(
                seen.state.is_none_or(|s| s == State::Exited),
                "invariant-2-true-exit-code",
                "{id} has an exit code and is {:?}",
                seen.state
            );
        }
        let Some(state) = seen.state else {
            if self
                .recorded
                .get(id)
                .is_none_or(|(s, _)| *s < State::Removed)
            {
                self.ever_shown.insert(id.clone());
            }
            return Ok(());
        };
        if !self.misreported_at.contains_key(id) {
            hold!(
                Some(state) <= real,
                "invariant-2-state-reached",
                "{id} is shown {state:?} and is {real:?}"
            );
        }
        match self.recorded.get(id).copied() {
            Some((State::Removed, since)) if self.is_shown_again(id, state, since) => return Ok(()),
            Some((recorded, since)) if recorded > state => {
                self.may_be_overruled(now, id, state, (recorded, since))?;
                *self.went_back.entry(id.clone()).or_default() += 1;
                self.recorded.insert(id.clone(), (state, now));
            }
            Some((recorded, _)) if recorded == state => {}
            _ => {
                self.recorded.insert(id.clone(), (state, now));
            }
        }
        self.ever_shown.insert(id.clone());
        Ok(())
    }

    /// Whether a removed id is shown as the newest read showed it; that ends when it was contradicted
    /// twice, far enough apart.
    fn is_shown_again(&self, id: &Id, state: State, since: u64) -> bool {
        let sightings = self
            .sightings
            .get(id)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let newest = sightings.iter().map(|s| s.began).max();
        let mut newest = sightings.iter().filter(|s| Some(s.began) == newest);
        let shown = newest.any(|s| s.began > since && s.state == state);
        shown && !self.is_contradicted_twice(id, (State::Removed, since))
    }

    /// A state is overruled only when a call has shown an earlier one twice, in reads begun after it was
    /// recorded, far enough apart.
    fn may_be_overruled(
        &self,
        now: u64,
        id: &Id,
        to: State,
        (recorded, since): (State, u64),
    ) -> Result<(), Violation> {
        let gone = recorded == State::Removed;
        let misreported_at = self.misreported_at.contains_key(id);
        match gone {
            true => hold!(
                misreported_at,
                "invariant-6-removed-stays",
                "{id} was removed and is {to:?} again"
            ),
            false => hold!(
                misreported_at,
                "invariant-2-forward",
                "{id} was {recorded:?} and is {to:?} again"
            ),
        }
        let sightings = self.sightings.get(id);
        hold!(
            self.is_contradicted_twice(id, (recorded, since)),
            "invariant-2-overrule-delay",
            "{id} is {to:?} again at {now}, recorded {recorded:?} since {since}: {sightings:?}"
        );
        Ok(())
    }

    /// Whether one call has shown an earlier state twice since, far enough apart.
    fn is_contradicted_twice(&self, id: &Id, (recorded, since): (State, u64)) -> bool {
        let apart = match recorded {
            State::Removed => 10_000,
            _ => 100,
        };
        let sightings = self
            .sightings
            .get(id)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let against = |s: &&super::Sighting| s.began > since && s.state < recorded;
        sightings.iter().filter(against).any(|first| {
            let is_second =
                |s: &super::Sighting| s.by == first.by && s.began >= first.began + apart;
            sightings.iter().filter(against).any(is_second)
        })
    }

    /// Records that these ids left their pod. One whose pod became known has only moved.
    fn left_cache<'a>(&mut self, now: u64, ids: impl IntoIterator<Item = &'a Id>) {
        for id in ids {
            let moved = self
                .cache
                .values()
                .any(|v| seen(&v.status).contains_key(id));
            // One that was shown again is recorded as removed since its removal was first reported.
            let was_removed = matches!(self.recorded.get(id), Some((State::Removed, _)));
            if !moved && !was_removed {
                self.recorded.insert(id.clone(), (State::Removed, now));
            }
        }
    }

    pub(super) fn pod_removed(&mut self, now: u64, uid: &PodUid) -> Result<(), Violation> {
        if let Some(view) = self.cache.get_mut(uid) {
            let before = seen(&view.status);
            let nothing = PodStatus::nothing(uid.clone()).into();
            *view = PodView::new(nothing, view.as_of, view.inspected);
            self.left_cache(now, before.keys());
        }
        Ok(())
    }

    pub(super) fn list_applied(
        &mut self,
        node: &Node,
        now: u64,
        as_of: Instant,
        gone: &[PodUid],
    ) -> Result<(), Violation> {
        hold!(
            self.lists.iter().any(|(_, began)| instant(*began) == as_of),
            "invariant-3-as-of-a-read",
            "swept as of {as_of:?}, when no complete list began"
        );
        for uid in gone {
            if self.cache.get(uid).is_some_and(|v| v.status.is_nothing()) {
                self.cache.remove(uid);
            }
        }
        // A pod that is not in the cache does not exist as of then.
        for pod in Pod::REAL.map(Pod::uid) {
            if !self.cache.contains_key(&pod) {
                let nothing = PodStatus::nothing(pod.clone()).into();
                self.fresh(node, now, &pod, &PodView::new(nothing, Some(as_of), None))?;
            }
        }
        Ok(())
    }

    pub(super) fn refreshed(
        &mut self,
        node: &Node,
        now: u64,
        as_of: Instant,
        pods: &Confirmed,
    ) -> Result<(), Violation> {
        for uid in &pods.among(self.cache.keys().cloned()) {
            let view = self.cache.get_mut(uid);
            hold!(
                view.is_some(),
                "invariant-3-refreshed-is-cached",
                "{uid} is not in the cache"
            );
            if let Some(view) = view {
                view.as_of = view.as_of.max(Some(as_of));
                let view = view.clone();
                self.fresh(node, now, uid, &view)?;
            }
        }
        Ok(())
    }

    /// A view as of t is based on a complete read that began then, and shows the state at t or a later
    /// one.
    pub fn fresh(
        &self,
        node: &Node,
        now: u64,
        uid: &PodUid,
        view: &PodView,
    ) -> Result<(), Violation> {
        let Some(as_of) = view.as_of else {
            return Ok(());
        };
        let inspections = self
            .inspections
            .get(uid)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let began = |all: &[(_, u64)], t| all.iter().any(|(_, b)| instant(*b) == t);
        hold!(
            began(&self.lists, as_of) || began(inspections, as_of),
            "invariant-3-as-of-a-read",
            "{uid} is as of {as_of:?}, when no complete read began"
        );
        hold!(
            view.inspected
                .is_none_or(|t| self.status_reads.contains(&t)),
            "invariant-3-as-of-a-read",
            "{uid} was inspected {:?}, when no read of a status began",
            view.inspected
        );
        let t = as_of.as_nanos() / MS;
        let shown = seen(&view.status);
        for object in node.objects.iter().filter(|l| l.pod.uid() == *uid) {
            let misreported_at = self
                .misreported_at
                .get(&object.id)
                .is_some_and(|&at| at >= t);
            if !object.exists(t) || !object.exists(now) || misreported_at {
                continue;
            }
            let Some(seen) = shown.get(&object.id) else {
                return Err(format!(
                    "invariant-3-fresh: {uid} as of {t} lacks {}",
                    object.id
                ));
            };
            // An UNKNOWN of that read or of a later one may hide the state.
            let unknown_since =
                seen.unknown || self.unknown_since.get(&object.id).is_some_and(|&u| u >= t);
            hold!(
                unknown_since || seen.state >= object.at(t),
                "invariant-3-fresh",
                "{uid} as of {t} shows {} as {:?}, it was {:?}",
                object.id,
                seen.state,
                object.at(t)
            );
        }
        Ok(())
    }

    pub(super) fn answer(
        &mut self,
        node: &Node,
        now: u64,
        waiter: WaiterId,
        answer: Result<&PodView, &CallError>,
        input: Input,
    ) -> Result<(), Violation> {
        let Some(asked) = self.waiting.remove(&waiter) else {
            return Err(format!(
                "invariant-4-answered-once: {waiter:?} does not wait"
            ));
        };
        let failed = self
            .failed
            .get(&asked.uid)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let Ok(view) = answer else {
            hold!(
                failed.iter().any(|&t| t > asked.number)
                    || self.unlabelled && self.failed_lists.iter().any(|&t| t > asked.number),
                "invariant-11-own-error",
                "{asked:?} gets an error of no read begun after it asked"
            );
            return Ok(());
        };
        // Where the second read of a contradicted id is cancelled, the first one answers, also a waiter
        // that asked during the second.
        let given_up = matches!(input, Input::Time) && !failed.is_empty();
        hold!(
            given_up || matches!(input, Input::Read | Input::Request),
            "invariant-4-only-reads-answer",
            "{asked:?} is answered by {input:?}"
        );
        let as_of = view.as_of.map(|t| t.as_nanos() / MS);
        hold!(
            as_of >= Some(asked.after),
            "invariant-3-newer-than-asked",
            "{asked:?} is answered as of {as_of:?}"
        );
        if as_of == Some(asked.after) {
            let inspections = self.inspections.get(&asked.uid).into_iter().flatten();
            let served = inspections
                .chain(&self.lists)
                .any(|&(ticket, began)| began == asked.after && ticket > asked.number);
            hold!(
                served,
                "invariant-3-newer-than-asked",
                "{asked:?} is answered by a read that was issued before"
            );
        }
        self.answer_equals_cache(&asked.uid, view)?;
        self.fresh(node, now, &asked.uid, view)
    }

    /// An answer shows what the cache shows.
    fn answer_equals_cache(&self, uid: &PodUid, view: &PodView) -> Result<(), Violation> {
        let cached = self.cache.get(uid).map(|v| seen(&v.status));
        let cached = cached.unwrap_or_default();
        let answered = seen(&view.status);
        hold!(
            answered == cached,
            "invariant-1-answer-equals-cache",
            "{uid} is answered as {answered:?} and cached as {cached:?}"
        );
        Ok(())
    }
}
