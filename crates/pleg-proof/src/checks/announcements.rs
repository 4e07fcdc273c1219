//! Checks announcements: each once, in order, and after the cache shows the state.

use pleg_core::{LifecycleType, PodLifecycleEvent, Subject};

use super::cache::OVERRULE_REMOVAL_DELAY;
use super::{Checks, states};
use crate::assertions::{self, CheckResult};
use crate::coverage::CoverPoint;
use crate::oracle::{Object, Oracle, State};

use LifecycleType::{ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted};

/// What the cache shows of an id, if it does: its state, or that it is unknown.
type Cached = Option<Option<State>>;

impl Checks {
    pub(super) fn announce(&mut self, oracle: &Oracle, event: &PodLifecycleEvent) -> CheckResult {
        if let Some(point) = CoverPoint::announced(event.event) {
            self.coverage.hit(point);
        }
        let Some(subject) = &event.subject else {
            return Ok(());
        };
        let Some(object) = oracle.object(&subject.id) else {
            let what = format!("{} is announced and never existed", subject.id);
            return Err(assertions::NOTHING_INVENTED.violated(what));
        };
        let checked = self.announce_id(oracle, event, subject, object);
        checked.map_err(|violation| violation.in_pod(Some(object.pod)))
    }

    fn announce_id(
        &mut self,
        oracle: &Oracle,
        event: &PodLifecycleEvent,
        subject: &Subject,
        object: &Object,
    ) -> CheckResult {
        let view = self.cache.get(&event.uid);
        let cached: Cached = view.and_then(|view| {
            let mut states = states(&view.status);
            states.find(|(id, _)| **id == subject.id).map(|(_, s)| s)
        });
        self.announce_incarnation(oracle, event, subject, cached)?;
        self.announce_once_and_in_order(oracle, event.event, subject)?;
        self.announce_what_is_cached(event.event, subject, cached)?;
        self.announce_what_is_true(event, subject, object)
    }

    /// A new incarnation has a false event as its reason, and comes after the delay.
    fn announce_incarnation(
        &mut self,
        oracle: &Oracle,
        event: &PodLifecycleEvent,
        subject: &Subject,
        cached: Cached,
    ) -> CheckResult {
        let (id, what) = (&subject.id, event.event);
        let false_events = self.false_events;
        let Some(record) = self.record_mut(oracle, id) else {
            return Ok(());
        };
        let is_first = record.first_seen_removed && subject.incarnation == 0;
        assertions::FIRST_SEEN_REMOVED.holds(!is_first, || {
            format!("{what} of {id}, which was first learned as removed")
        })?;
        if subject.incarnation == record.incarnation {
            return Ok(());
        }
        // An incarnation that is overruled before its announcement is not announced.
        let is_later = subject.incarnation > record.incarnation && false_events;
        assertions::INCARNATION.holds(is_later, || {
            let n = subject.incarnation;
            format!("{what} of incarnation {n} of {id}, without a false event")
        })?;
        let now = event.detected.as_nanos();
        // Only for an id in the cache: others were overruled before their removal.
        let left_cache = record.left_cache.take_if(|_| cached.is_some());
        if let Some((gone, _)) = left_cache.filter(|_| !record.first_seen_removed) {
            assertions::OVERRULE_DELAY.holds(now >= gone + OVERRULE_REMOVAL_DELAY, || {
                let after = now.saturating_sub(gone) / 1_000_000;
                format!("the removal of {id} is overruled after {after} ms")
            })?;
        }
        record.first_seen_removed = false;
        record.incarnation = subject.incarnation;
        let back = record.removed || !(record.started || record.died || record.changed);
        (record.started, record.died, record.removed) = (false, false, false);
        (record.changed, record.code) = (false, false);
        self.present += u64::from(back);
        self.coverage.hit(match what {
            ContainerStarted => CoverPoint::ReincarnatedStarted,
            _ => CoverPoint::ReincarnatedChanged,
        });
        Ok(())
    }

    fn announce_once_and_in_order(
        &mut self,
        oracle: &Oracle,
        what: LifecycleType,
        subject: &Subject,
    ) -> CheckResult {
        let id = &subject.id;
        let Some(record) = self.record_mut(oracle, id) else {
            return Ok(());
        };
        let first = !(record.started || record.died || record.removed || record.changed);
        let (twice, late) = match what {
            ContainerStarted => (record.started, record.died || record.removed),
            ContainerDied => (record.died, record.removed),
            ContainerRemoved => (record.removed, false),
            _ => (false, false),
        };
        assertions::ONCE.holds(!twice, || format!("{what} of {id} is announced twice"))?;
        // A new incarnation may be exited from the start; then there is no Died.
        let without_died = what == ContainerRemoved && !record.died && record.incarnation == 0;
        assertions::IN_ORDER.holds(!late && !without_died, || {
            let (died, removed) = (record.died, record.removed);
            format!("{what} of {id} when died was {died} and removed {removed}")
        })?;
        match what {
            ContainerStarted => record.started = true,
            ContainerDied => record.died = true,
            ContainerRemoved => record.removed = true,
            ContainerChanged => record.changed = true,
            _ => {}
        }
        let seen_running = record.seen_running || what != ContainerStarted;
        self.present += u64::from(first && subject.incarnation == 0);
        let gone = u64::from(what == ContainerRemoved);
        self.present = self.present.saturating_sub(gone);
        assertions::STARTED_WAS_SEEN.holds(seen_running, || {
            format!("{id} started, and nothing has shown it running")
        })
    }

    fn announce_what_is_cached(
        &self,
        what: LifecycleType,
        subject: &Subject,
        cached: Cached,
    ) -> CheckResult {
        let wrong = match what {
            ContainerDied => cached.is_some_and(|s| s.is_some_and(|s| s < State::Exited)),
            ContainerRemoved => cached.is_some(),
            _ => false,
        };
        assertions::CACHE_FIRST.holds(!wrong, || {
            let id = &subject.id;
            format!("{what} of {id} is announced and the cache shows {cached:?}")
        })
    }

    fn announce_what_is_true(
        &self,
        event: &PodLifecycleEvent,
        subject: &Subject,
        object: &Object,
    ) -> CheckResult {
        let id = &subject.id;
        let exists = object.exists(event.detected.as_nanos()) && !self.false_events;
        let is_gone = event.event == ContainerRemoved;
        assertions::EXISTING_NOT_REMOVED.holds(!(is_gone && exists), || {
            format!("{id} is announced as removed and exists")
        })?;
        let is_true = subject.exit_code.is_none_or(|code| code == object.code);
        assertions::TRUE_EXIT_CODE.holds(is_true, || {
            let (code, real) = (subject.exit_code, object.code);
            format!("{id} is announced with exit code {code:?}, it is {real}")
        })
    }
}
