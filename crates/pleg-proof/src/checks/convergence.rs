//! Checks after quiescence: the cache equals the oracle, everything was announced, every waiter was
//! answered.

use pleg_core::{LifecycleType, SandboxState};

use super::{Checks, IdRecord, states};
use crate::assertions::{self, CheckResult};
use crate::fault_profile::SECOND;
use crate::oracle::{Object, Oracle, State};
use crate::runtime::pod_of;

/// In this time a list follows.
const UNTIL_LISTED: u64 = 3 * SECOND;

impl Checks {
    /// # Errors
    /// The cache does not equal the oracle.
    pub fn equals_oracle(&self, oracle: &Oracle, now: u64, in_detail: bool) -> CheckResult {
        let mut shown: Vec<Option<(Option<usize>, Option<State>)>> =
            vec![None; oracle.objects.len()];
        for (uid, view) in self.cache.iter() {
            for (id, state) in states(&view.status) {
                let place = oracle.index_of(id).and_then(|n| shown.get_mut(n));
                let Some(place) = place else {
                    return Err(assertions::NOTHING_INVENTED.violated(format!("{id} is shown")));
                };
                if place.replace((pod_of(&uid), state)).is_some() {
                    let what = format!("{id} is shown in two pods");
                    return Err(assertions::OWN_POD.violated(what).in_pod(pod_of(&uid)));
                }
            }
        }
        for (object, held) in oracle.objects.iter().zip(shown) {
            let real = object.at(now).filter(|&s| s != State::Removed);
            let real = real.map(|s| (Some(object.pod), Some(s)));
            let as_listed = Some((Some(object.pod), Some(State::Exited)));
            let is_excused = held == as_listed && is_still_listed(object, now);
            if real != held && !is_excused {
                let what = format!("{} is {real:?} and is shown as {held:?}", object.id);
                return Err(assertions::CACHE_CONVERGES
                    .violated(what)
                    .in_pod(Some(object.pod)));
            }
        }
        if in_detail {
            self.details_equal(oracle)?;
        }
        Ok(())
    }

    fn details_equal(&self, oracle: &Oracle) -> CheckResult {
        for (uid, view) in self.cache.iter() {
            let of = pod_of(&uid);
            let fails = |what: String| Err(assertions::DETAILS_COMPLETE.violated(what).in_pod(of));
            let newest = view.status.sandboxes.first();
            let newest = newest.filter(|s| s.state == SandboxState::Ready);
            for c in &view.status.containers {
                let Some(object) = oracle.object(&c.id) else {
                    continue;
                };
                let (id, code) = (&c.id, object.exited.map(|_| object.code));
                let reported = c.details.exit_code;
                if reported != code {
                    return fails(format!(
                        "{id} is shown with exit code {reported:?}, it is {code:?}"
                    ));
                }
                let active = newest.is_some_and(|s| Some(&s.id) == object.sandbox.as_ref());
                if (c.active, &c.sandbox, &*c.name) != (active, &object.sandbox, object.name) {
                    let (sandbox, active) = (&c.sandbox, c.active);
                    return fails(format!("{id} is shown in {sandbox:?}, active: {active}"));
                }
            }
            if let Some(error) = &view.status.error {
                let what = format!("{uid} still shows {error:?}");
                return Err(assertions::RECOVERED.violated(what).in_pod(of));
            }
        }
        Ok(())
    }

    /// The details of resized containers are those of the oracle.
    ///
    /// # Errors
    /// They are older.
    pub fn details_converged(&self, oracle: &Oracle, now: u64) -> CheckResult {
        for (uid, view) in self.cache.iter() {
            for c in &view.status.containers {
                let limit = c.details.resources.as_ref().map(|r| r.memory_limit);
                let real = oracle.object(&c.id).and_then(|o| o.memory_limit(now));
                assertions::DETAILS_CONVERGE
                    .holds(real.is_none() || limit == real, || {
                        format!(
                            "{} has the limit {real:?} and is shown with {limit:?}",
                            c.id
                        )
                    })
                    .map_err(|violation| violation.in_pod(pod_of(&uid)))?;
            }
        }
        Ok(())
    }

    /// # Errors
    /// An announcement or an answer is missing.
    pub fn all_done(&self, oracle: &Oracle, now: u64) -> CheckResult {
        for (object, record) in oracle.objects.iter().zip(&self.records) {
            if record.published && !is_still_listed(object, now) {
                record.all_announced(object, now)?;
            }
        }
        self.all_answered(now)
    }
}

/// Whether lists show an object that a pod worker has removed a short while ago.
fn is_still_listed(object: &Object, now: u64) -> bool {
    let listed = object.listed_after_removal;
    let until = object.removed.map(|gone| gone + listed + UNTIL_LISTED);
    listed > 0 && until.is_some_and(|until| now < until)
}

impl IdRecord {
    fn all_announced(&self, object: &Object, now: u64) -> CheckResult {
        use LifecycleType::{ContainerDied, ContainerRemoved, ContainerStarted};
        let (id, state) = (&object.id, object.at(now));
        let (due, reported) = match state {
            Some(State::Running) => (ContainerStarted, self.started),
            Some(State::Exited) => (ContainerDied, self.died || self.incarnation > 0),
            Some(State::Removed) => (ContainerRemoved, self.removed),
            _ => return Ok(()),
        };
        let fails = |what: String| {
            Err(assertions::ALL_ANNOUNCED
                .violated(what)
                .in_pod(Some(object.pod)))
        };
        if !reported {
            return fails(format!("{id} is {state:?}, and {due} was never announced"));
        }
        if self.started && self.removed && !self.died {
            return fails(format!("{id} was removed without having died"));
        }
        Ok(())
    }
}
