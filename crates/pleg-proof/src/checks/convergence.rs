//! What must be true when it is quiet again: the cache equals the truth, everything has been said,
//! everybody has been answered.

use pleg_core::{LifecycleType, SandboxState};

use super::{Book, Checks, states};
use crate::laws::{self, Lawful};
use crate::runtime::pod_of;
use crate::truth::{Life, State, Truth};

impl Checks {
    /// # Errors
    /// The cache is not equal to the truth.
    pub fn equals(&self, truth: &Truth, now: u64, in_detail: bool) -> Lawful {
        let mut shown: Vec<Option<(Option<usize>, Option<State>)>> = vec![None; truth.lives.len()];
        for (uid, view) in self.cache.iter() {
            for (id, state) in states(&view.status) {
                let place = truth.handle(id).and_then(|n| shown.get_mut(n));
                let Some(place) = place else {
                    return Err(laws::INVENTED.broken(format!("{id} is shown")));
                };
                if place.replace((pod_of(&uid), state)).is_some() {
                    let what = format!("{id} is shown in two pods");
                    return Err(laws::HOME.broken(what).of(pod_of(&uid)));
                }
            }
        }
        for (life, held) in truth.lives.iter().zip(shown) {
            let real = life.at(now).filter(|&s| s != State::Gone);
            let real = real.map(|s| (Some(life.pod), Some(s)));
            if real != held {
                let what = format!("{} is {real:?} and is shown as {held:?}", life.id);
                return Err(laws::SETTLED.broken(what).of(Some(life.pod)));
            }
        }
        if in_detail {
            self.details_equal(truth)?;
        }
        Ok(())
    }

    fn details_equal(&self, truth: &Truth) -> Lawful {
        for (uid, view) in self.cache.iter() {
            let of = pod_of(&uid);
            let fails = |what: String| Err(laws::COMPLETE_DETAILS.broken(what).of(of));
            let newest = view.status.sandboxes.first();
            let newest = newest.filter(|s| s.state == SandboxState::Ready);
            for c in &view.status.containers {
                let Some(life) = truth.life(&c.id) else {
                    continue;
                };
                let (id, code) = (&c.id, life.exited.map(|_| life.code));
                let said = c.details.exit_code;
                if said != code {
                    return fails(format!(
                        "{id} is shown with exit code {said:?}, it is {code:?}"
                    ));
                }
                let active = newest.is_some_and(|s| Some(&s.id) == life.sandbox.as_ref());
                if (c.active, &c.sandbox, &*c.name) != (active, &life.sandbox, life.name) {
                    let (sandbox, active) = (&c.sandbox, c.active);
                    return fails(format!("{id} is shown in {sandbox:?}, active: {active}"));
                }
            }
            if let Some(error) = &view.status.error {
                let what = format!("{uid} still shows {error:?}");
                return Err(laws::ALIVE_AND_WELL.broken(what).of(of));
            }
        }
        Ok(())
    }

    /// # Errors
    /// Something that was to be announced has not been, or somebody is not answered.
    pub fn complete(&self, truth: &Truth, now: u64) -> Lawful {
        for (life, book) in truth.lives.iter().zip(&self.books) {
            if book.published {
                book.all_said(life, now)?;
            }
        }
        self.all_answered(now)
    }
}

impl Book {
    fn all_said(&self, life: &Life, now: u64) -> Lawful {
        use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted};
        let (id, state) = (&life.id, life.at(now));
        let (due, said) = match state {
            Some(State::Running) => (ContainerStarted, self.started),
            Some(State::Exited) => (ContainerDied, self.died || self.incarnation > 0),
            Some(State::Gone) => (ContainerRemoved, self.removed),
            _ => return Ok(()),
        };
        let fails = |what: String| Err(laws::ALL_SAID.broken(what).of(Some(life.pod)));
        if !said {
            return fails(format!("{id} is {state:?}, and {due} was never announced"));
        }
        if self.started && self.removed && !self.died {
            return fails(format!("{id} was removed without having died"));
        }
        Ok(())
    }
}
