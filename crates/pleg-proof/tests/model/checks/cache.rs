//! Laws 2, 3, 5, 6 and 7, as the cache shows them.

use std::collections::BTreeMap;

use pleg_core::{
    CallError, Confirmed, ContainerState, Id, Instant, KnownState, PodStatus, PodUid, PodView,
    SandboxState, WaiterId,
};

use super::{Input, Laws, hold};
use crate::node::{Node, State};
use crate::ops::Pod;
use crate::stand::Broken;
use crate::told::{MS, instant};

/// What a status shows of one id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The state, also one under an UNKNOWN; none if none was ever known.
    pub state: Option<State>,
    pub unknown: bool,
    pub sandbox: Option<Id>,
    pub name: String,
    pub code: Option<i32>,
}

/// What a status shows, by id.
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

impl Laws {
    pub(super) fn publish(
        &mut self,
        node: &Node,
        now: u64,
        uid: &PodUid,
        view: &PodView,
    ) -> Result<(), Broken> {
        let before = self.cache.get(uid).cloned();
        if let Some(old) = before.as_ref().filter(|v| !v.status.is_nothing()) {
            hold!(
                view.as_of >= old.as_of,
                "law3-never-older",
                "{uid} was as of {:?} and is as of {:?}",
                old.as_of,
                view.as_of
            );
        }
        let old = before.as_ref().map(|v| seen(&v.status)).unwrap_or_default();
        let new = seen(&view.status);
        for (id, seen) in &new {
            self.shows(node, now, id, seen)?;
            if let Some(old) = old.get(id).filter(|_| !self.lied.contains_key(id)) {
                let kept = (old.sandbox.is_none() || old.sandbox == seen.sandbox)
                    && (old.name.is_empty() || old.name == seen.name)
                    && (old.code.is_none() || old.code == seen.code);
                hold!(
                    kept,
                    "law7-nothing-erased",
                    "{id} was {old:?} and is {seen:?}"
                );
            }
        }
        self.fresh(node, now, uid, view)?;
        self.cache.insert(uid.clone(), view.clone());
        self.vanished(now, old.keys().filter(|id| !new.contains_key(*id)));
        Ok(())
    }

    /// One id in the cache.
    fn shows(&mut self, node: &Node, now: u64, id: &Id, seen: &Seen) -> Result<(), Broken> {
        let life = node.life(id);
        let real = life.and_then(|l| l.at(now));
        hold!(
            real.is_some(),
            "law2-nothing-invented",
            "{id} never existed"
        );
        if let (Some(life), Some(code)) = (life, seen.code) {
            hold!(
                code == life.code && life.exited.is_some(),
                "law2-true-exit-code",
                "{id} is shown with exit code {code}, {life:?}"
            );
            hold!(
                seen.state.is_none_or(|s| s == State::Exited),
                "law2-true-exit-code",
                "{id} has an exit code and is {:?}",
                seen.state
            );
        }
        let Some(state) = seen.state else {
            if self.believed.get(id).is_none_or(|(s, _)| *s < State::Gone) {
                self.ever_shown.insert(id.clone());
            }
            return Ok(());
        };
        if !self.lied.contains_key(id) {
            hold!(
                Some(state) <= real,
                "law2-not-ahead",
                "{id} is shown {state:?} and is {real:?}"
            );
        }
        match self.believed.get(id).copied() {
            Some((State::Gone, since)) if self.reappears(id, state, since) => return Ok(()),
            Some((believed, since)) if believed > state => {
                self.may_go_back(now, id, state, (believed, since))?;
                *self.went_back.entry(id.clone()).or_default() += 1;
                self.believed.insert(id.clone(), (state, now));
            }
            Some((believed, _)) if believed == state => {}
            _ => {
                self.believed.insert(id.clone(), (state, now));
            }
        }
        self.ever_shown.insert(id.clone());
        Ok(())
    }

    /// A removed id is shown as the newest read showed it, until that is decided: when it is, it was
    /// shown twice, far enough apart.
    fn reappears(&self, id: &Id, state: State, since: u64) -> bool {
        let sights = self.sights.get(id).map(Vec::as_slice).unwrap_or_default();
        let newest = sights.iter().map(|s| s.began).max();
        let mut newest = sights.iter().filter(|s| Some(s.began) == newest);
        let shown = newest.any(|s| s.began > since && s.state == state);
        shown && !self.is_denied_twice(id, (State::Gone, since))
    }

    /// A state is overruled only when a call has shown an earlier one twice, in reads begun after
    /// it was believed, far enough apart.
    fn may_go_back(
        &self,
        now: u64,
        id: &Id,
        to: State,
        (believed, since): (State, u64),
    ) -> Result<(), Broken> {
        let gone = believed == State::Gone;
        let lied = self.lied.contains_key(id);
        match gone {
            true => hold!(
                lied,
                "law6-removed-stays",
                "{id} was removed and is {to:?} again"
            ),
            false => hold!(
                lied,
                "law2-forward",
                "{id} was {believed:?} and is {to:?} again"
            ),
        }
        let sights = self.sights.get(id);
        hold!(
            self.is_denied_twice(id, (believed, since)),
            "law2-overruled-late",
            "{id} is {to:?} again at {now}, believed {believed:?} since {since}: {sights:?}"
        );
        Ok(())
    }

    /// Whether one call has shown an earlier state twice since, far enough apart.
    fn is_denied_twice(&self, id: &Id, (believed, since): (State, u64)) -> bool {
        let apart = match believed {
            State::Gone => 10_000,
            _ => 100,
        };
        let sights = self.sights.get(id).map(Vec::as_slice).unwrap_or_default();
        let against = |s: &&super::Sight| s.began > since && s.state < believed;
        sights.iter().filter(against).any(|first| {
            let is_second = |s: &super::Sight| s.by == first.by && s.began >= first.began + apart;
            sights.iter().filter(against).any(is_second)
        })
    }

    /// These are not in their pod any more. One whose pod became known only now has moved.
    fn vanished<'a>(&mut self, now: u64, ids: impl IntoIterator<Item = &'a Id>) {
        for id in ids {
            let moved = self
                .cache
                .values()
                .any(|v| seen(&v.status).contains_key(id));
            if !moved {
                self.believed.insert(id.clone(), (State::Gone, now));
            }
        }
    }

    pub(super) fn withdraw(&mut self, now: u64, uid: &PodUid) -> Result<(), Broken> {
        if let Some(view) = self.cache.get_mut(uid) {
            let before = seen(&view.status);
            let nothing = PodStatus::nothing(uid.clone()).into();
            *view = PodView::new(nothing, view.as_of, view.inspected);
            self.vanished(now, before.keys());
        }
        Ok(())
    }

    pub(super) fn swept(
        &mut self,
        node: &Node,
        now: u64,
        as_of: Instant,
        gone: &[PodUid],
    ) -> Result<(), Broken> {
        hold!(
            self.lists.iter().any(|(_, began)| instant(*began) == as_of),
            "law3-as-of-a-read",
            "swept as of {as_of:?}, when no complete list began"
        );
        for uid in gone {
            if self.cache.get(uid).is_some_and(|v| v.status.is_nothing()) {
                self.cache.remove(uid);
            }
        }
        // What is not in the cache does not exist as of then.
        for pod in Pod::REAL.map(Pod::uid) {
            if !self.cache.contains_key(&pod) {
                let nothing = PodStatus::nothing(pod.clone()).into();
                self.fresh(node, now, &pod, &PodView::new(nothing, Some(as_of), None))?;
            }
        }
        Ok(())
    }

    pub(super) fn confirm(
        &mut self,
        node: &Node,
        now: u64,
        as_of: Instant,
        pods: &Confirmed,
    ) -> Result<(), Broken> {
        for uid in &pods.among(self.cache.keys().cloned()) {
            let view = self.cache.get_mut(uid);
            hold!(
                view.is_some(),
                "law3-confirmed-is-cached",
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

    /// A view as of t rests on a complete read that began then, and shows what was true then, or
    /// later.
    pub fn fresh(&self, node: &Node, now: u64, uid: &PodUid, view: &PodView) -> Result<(), Broken> {
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
            "law3-as-of-a-read",
            "{uid} is as of {as_of:?}, when no complete read began"
        );
        hold!(
            view.inspected
                .is_none_or(|t| self.status_reads.contains(&t)),
            "law3-as-of-a-read",
            "{uid} was inspected {:?}, when no read of a status began",
            view.inspected
        );
        let t = as_of.as_nanos() / MS;
        let shown = seen(&view.status);
        for life in node.lives.iter().filter(|l| l.pod.uid() == *uid) {
            let lied = self.lied.get(&life.id).is_some_and(|&told| told >= t);
            if !life.exists(t) || !life.exists(now) || lied {
                continue;
            }
            let Some(seen) = shown.get(&life.id) else {
                return Err(format!("law3-fresh: {uid} as of {t} lacks {}", life.id));
            };
            // An UNKNOWN of that read or a later one may lie over it, or have lain.
            let unsure = seen.unknown || self.unsure.get(&life.id).is_some_and(|&u| u >= t);
            hold!(
                unsure || seen.state >= life.at(t),
                "law3-fresh",
                "{uid} as of {t} shows {} as {:?}, it was {:?}",
                life.id,
                seen.state,
                life.at(t)
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
    ) -> Result<(), Broken> {
        let Some(asked) = self.waiting.remove(&waiter) else {
            return Err(format!("law4-answered-once: {waiter:?} does not wait"));
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
                "law11-error-of-its-own",
                "{asked:?} gets an error of no read begun after it asked"
            );
            return Ok(());
        };
        // Where the second look at a denied id is given up, the first one answers.
        let given_up = matches!(input, Input::Time) && failed.iter().any(|&t| t > asked.number);
        hold!(
            given_up || matches!(input, Input::Read | Input::Question),
            "law4-only-reads-answer",
            "{asked:?} is answered by {input:?}"
        );
        let as_of = view.as_of.map(|t| t.as_nanos() / MS);
        hold!(
            as_of >= Some(asked.after),
            "law3-newer-than-asked",
            "{asked:?} is answered as of {as_of:?}"
        );
        if as_of == Some(asked.after) {
            let inspections = self.inspections.get(&asked.uid).into_iter().flatten();
            let served = inspections
                .chain(&self.lists)
                .any(|&(ticket, began)| began == asked.after && ticket > asked.number);
            hold!(
                served,
                "law3-newer-than-asked",
                "{asked:?} is answered by a read that was issued before"
            );
        }
        self.one_truth(&asked.uid, view)?;
        self.fresh(node, now, &asked.uid, view)
    }

    /// An answer shows what the cache shows.
    fn one_truth(&self, uid: &PodUid, view: &PodView) -> Result<(), Broken> {
        let cached = self.cache.get(uid).map(|v| seen(&v.status));
        let cached = cached.unwrap_or_default();
        let answered = seen(&view.status);
        hold!(
            answered == cached,
            "law1-one-truth",
            "{uid} is answered as {answered:?} and cached as {cached:?}"
        );
        Ok(())
    }
}
