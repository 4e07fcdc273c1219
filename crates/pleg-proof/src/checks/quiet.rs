//! What must be true when it is quiet again: the cache equals the truth, everything has been said,
//! everybody has been answered.

use std::collections::BTreeMap;

use pleg_core::{LifecycleType, SandboxState};

use super::{Asked, Checks, states};
use crate::runtime::uid;
use crate::truth::{State, Truth};

impl Checks {
    /// The cache equals the truth.
    pub fn equals(&self, truth: &Truth, now: u64, in_detail: bool) -> Result<(), String> {
        let mut shown = BTreeMap::new();
        for (uid, view) in &self.cache {
            for (id, state) in states(&view.status) {
                if shown.insert(id.clone(), (uid.clone(), state)).is_some() {
                    return Err(format!("{id} is shown in two pods"));
                }
            }
        }
        for life in &truth.lives {
            let real = life
                .at(now)
                .filter(|&s| s != State::Gone)
                .map(|s| (uid(life.pod), Some(s)));
            let held = shown.get(&life.id).cloned();
            if real != held {
                return Err(format!("{} is {real:?} and is shown as {held:?}", life.id));
            }
        }
        if !in_detail {
            return Ok(());
        }
        for view in self.cache.values() {
            let newest = view
                .status
                .sandboxes
                .first()
                .filter(|s| s.state == SandboxState::Ready);
            for c in &view.status.containers {
                let Some(life) = truth.life(&c.id) else {
                    continue;
                };
                let code = life.exited.map(|_| life.code);
                if c.details.exit_code != code {
                    return Err(format!(
                        "{} is shown with exit code {:?}, it is {code:?}",
                        c.id, c.details.exit_code
                    ));
                }
                let active = newest.is_some_and(|s| Some(&s.id) == life.sandbox.as_ref());
                if (c.active, &c.sandbox, &*c.name) != (active, &life.sandbox, life.name.as_str()) {
                    return Err(format!(
                        "{} is shown in {:?}, active: {}",
                        c.id, c.sandbox, c.active
                    ));
                }
            }
            if view.status.error.is_some() {
                return Err(format!("{} still shows an error", view.status.uid));
            }
        }
        Ok(())
    }

    /// Everything that was to be announced has been, and everybody is answered.
    pub fn complete(&self, truth: &Truth, now: u64) -> Result<(), String> {
        use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted};
        for id in &self.published {
            let said = self.said.iter().rfind(|((i, _), _)| i == id);
            let said = said.map(|(_, s)| s.clone()).unwrap_or_default();
            let state = truth.life(id).and_then(|l| l.at(now));
            let due = match state {
                Some(State::Running) => Some(ContainerStarted),
                Some(State::Exited) => Some(ContainerDied),
                Some(State::Gone) => Some(ContainerRemoved),
                _ => None,
            };
            let reborn = self.said.keys().any(|(i, n)| i == id && *n > 0);
            if let Some(due) = due
                && !said.contains(&due)
                && !(reborn && due == ContainerDied)
            {
                return Err(format!(
                    "{id} is {state:?}, and {due} was never announced, only {said:?}"
                ));
            }
            if said.contains(&ContainerStarted)
                && said.contains(&ContainerRemoved)
                && !said.contains(&ContainerDied)
            {
                return Err(format!("{id} was removed without having died"));
            }
        }
        if let Some((waiter, asked)) = self.waiting.iter().find(|(_, a)| a.after.as_nanos() < now) {
            return Err(format!("waiter {waiter} is not answered: {asked:?}"));
        }
        Ok(())
    }

    /// Whether somebody waits whose question is older than `nanos`.
    pub fn kept_waiting(&self, now: u64, nanos: u64) -> Result<(), String> {
        let late = |a: &&Asked| now > a.after.max(a.asked).as_nanos() + nanos;
        match self.waiting.values().find(late) {
            Some(asked) => Err(format!("kept waiting: {asked:?}")),
            None => Ok(()),
        }
    }
}
