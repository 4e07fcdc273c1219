//! Checks announcements: each once, in order, and after the cache shows the state.

use pleg_core::{LifecycleType, PodLifecycleEvent};

use super::cache::OVERRULE_REMOVAL_DELAY;
use super::{Checks, states};
use crate::assertions::{self, CheckResult};
use crate::coverage::CoverPoint;
use crate::oracle::{Oracle, State};

impl Checks {
    pub(super) fn announce(&mut self, oracle: &Oracle, event: &PodLifecycleEvent) -> CheckResult {
        use LifecycleType::{ContainerChanged, ContainerDied, ContainerRemoved, ContainerStarted};
        if let Some(point) = CoverPoint::announced(event.event) {
            self.coverage.hit(point);
        }
        let Some(subject) = &event.subject else {
            return Ok(());
        };
        let (id, what) = (&subject.id, event.event);
        let Some(object) = oracle.object(id) else {
            let what = format!("{id} is announced and never existed");
            return Err(assertions::NOTHING_INVENTED.violated(what));
        };
        let fails = |assertion: assertions::Assertion, what: String| {
            Err(assertion.violated(what).in_pod(Some(object.pod)))
        };
        let cached = self.cache.get(&event.uid);
        let cached = cached.and_then(|v| states(&v.status).find(|(other, _)| *other == id));
        let cached = cached.map(|(_, state)| state);
        let false_events = self.false_events;
        let Some(record) = self.record_mut(oracle, id) else {
            return Ok(());
        };
        if record.first_seen_removed && subject.incarnation == 0 {
            return fails(
                assertions::FIRST_SEEN_REMOVED,
                format!("{what} of {id}, which was first learned as removed"),
            );
        }
        if subject.incarnation != record.incarnation {
            // An incarnation that is overruled before its announcement is not announced.
            if subject.incarnation < record.incarnation || !false_events {
                let n = subject.incarnation;
                return fails(
                    assertions::INCARNATION,
                    format!("{what} of incarnation {n} of {id}, without a false event"),
                );
            }
            let now = event.detected.as_nanos();
            // Only for an id in the cache: others were overruled before their removal.
            let left_cache = record.left_cache.take_if(|_| cached.is_some());
            let left_cache = left_cache.filter(|_| !record.first_seen_removed);
            if let Some((gone, _)) = left_cache
                && now < gone + OVERRULE_REMOVAL_DELAY
            {
                let after = (now - gone) / 1_000_000;
                return fails(
                    assertions::OVERRULE_DELAY,
                    format!("the removal of {id} is overruled after {after} ms"),
                );
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
        }
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
        if twice {
            return fails(
                assertions::ONCE,
                format!("{what} of {id} is announced twice"),
            );
        }
        // A new incarnation may be exited from the start; then there is no Died.
        let without_event = what == ContainerRemoved && !record.died && record.incarnation == 0;
        if late || without_event {
            let (died, removed) = (record.died, record.removed);
            return fails(
                assertions::IN_ORDER,
                format!("{what} of {id} when died was {died} and removed {removed}"),
            );
        }
        match what {
            ContainerStarted => record.started = true,
            ContainerDied => record.died = true,
            ContainerRemoved => record.removed = true,
            ContainerChanged => record.changed = true,
            _ => {}
        }
        let seen_running = record.seen_running;
        self.present += u64::from(first && subject.incarnation == 0);
        let gone = u64::from(what == ContainerRemoved);
        self.present = self.present.saturating_sub(gone);
        if what == ContainerStarted && !seen_running {
            return fails(
                assertions::STARTED_WAS_SEEN,
                format!("{id} started, and nothing has shown it running"),
            );
        }
        let wrong = match what {
            ContainerDied => cached.is_some_and(|s| s.is_some_and(|s| s < State::Exited)),
            ContainerRemoved => cached.is_some(),
            _ => false,
        };
        if wrong {
            return fails(
                assertions::CACHE_FIRST,
                format!("{what} of {id} is announced and the cache shows {cached:?}"),
            );
        }
        let now = event.detected.as_nanos();
        if what == ContainerRemoved && !false_events && object.exists(now) {
            return fails(
                assertions::EXISTING_NOT_REMOVED,
                format!("{id} is announced as removed and exists"),
            );
        }
        if let Some(code) = subject.exit_code
            && code != object.code
        {
            let real = object.code;
            return fails(
                assertions::TRUE_EXIT_CODE,
                format!("{id} is announced with exit code {code}, it is {real}"),
            );
        }
        Ok(())
    }
}
