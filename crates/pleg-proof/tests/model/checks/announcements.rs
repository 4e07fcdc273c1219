//! Checks invariant 9: announcements to a subscriber that keeps up and to a lagging one.

use std::collections::BTreeSet;

use pleg_core::{Id, Inbox, LifecycleType, PodLifecycleEvent, TerminalRecord};

use super::cache::seen;
use super::{Checks, hold};
use crate::harness::Violation;
use crate::node::{Node, State};

/// The announcements of one incarnation of an id.
#[derive(Clone, Debug, Default)]
pub struct Announced(pub Vec<LifecycleType>);

impl Announced {
    pub fn has(&self, what: LifecycleType) -> bool {
        self.0.contains(&what)
    }
}

/// The position of an announcement in the lifecycle.
const fn rank(what: LifecycleType) -> u32 {
    match what {
        LifecycleType::ContainerStarted => 1,
        LifecycleType::ContainerDied => 2,
        LifecycleType::ContainerRemoved => 3,
        _ => 0,
    }
}

impl Checks {
    pub(super) fn announce(
        &mut self,
        node: &Node,
        event: &PodLifecycleEvent,
    ) -> Result<(), Violation> {
        self.lagging.push(event);
        let Some(subject) = &event.subject else {
            return Ok(());
        };
        let (id, what) = (&subject.id, event.event);
        let first_seen_removed = self.first_seen_removed.contains(id) && subject.incarnation == 0;
        hold!(
            !first_seen_removed,
            "invariant-6-first-seen-removed-is-silent",
            "{what} of {id}, which was first reported as removed"
        );
        let went_back = self.went_back.get(id).copied().unwrap_or_default();
        hold!(
            subject.incarnation <= went_back,
            "invariant-2-incarnation",
            "{what} of {id} in incarnation {}, it went back {went_back} times",
            subject.incarnation
        );
        let announced = self
            .announced
            .entry((id.clone(), subject.incarnation))
            .or_default();
        if rank(what) > 0 {
            hold!(
                !announced.has(what),
                "invariant-9-once",
                "{what} of {id} is announced again"
            );
            let later = announced.0.iter().any(|&e| rank(e) > rank(what));
            hold!(
                !later,
                "invariant-9-in-order",
                "{what} of {id} comes after {:?}",
                announced.0
            );
        }
        announced.0.push(what);
        let seen_running = self.seen_running.contains(id);
        hold!(
            what != LifecycleType::ContainerStarted || seen_running,
            "invariant-9-started-was-seen",
            "{id} was never seen running"
        );
        let cached = self.cache.get(&event.uid).map(|v| seen(&v.status));
        let cached = cached.and_then(|c| c.get(id).cloned());
        let shows_it = match what {
            LifecycleType::ContainerStarted | LifecycleType::ContainerDied => {
                let least = [State::Running, State::Exited]
                    [usize::from(what == LifecycleType::ContainerDied)];
                cached.as_ref().is_none_or(|s| s.state >= Some(least))
            }
            LifecycleType::ContainerRemoved => cached.is_none(),
            _ => true,
        };
        hold!(
            shows_it,
            "invariant-9-cache-first",
            "{what} of {id}, and the cache shows {cached:?}"
        );
        let code = node.object(id).map(|l| l.code);
        hold!(
            subject.exit_code.is_none() || subject.exit_code == code,
            "invariant-9-true-exit-code",
            "{what} of {id} with exit code {:?}, it is {code:?}",
            subject.exit_code
        );
        Ok(())
    }

    pub(super) fn terminal_records(
        &self,
        node: &Node,
        records: &[TerminalRecord],
    ) -> Result<(), Violation> {
        for end in records {
            let ended_again = |r: &TerminalRecord| {
                let mut all = records.iter();
                all.any(|later| later.id == r.id && later.incarnation > r.incarnation)
            };
            let past = records.iter().filter(|r| {
                (r.kind, &r.name) == (end.kind, &end.name) && (r.removed || ended_again(r))
            });
            hold!(
                past.count() <= 3,
                "invariant-9-bounded-terminal-records",
                "{records:?}"
            );
            let object = node.object(&end.id);
            hold!(
                object.is_some_and(|l| end.exit_code.is_none_or(|c| c == l.code)),
                "invariant-9-true-exit-code",
                "{end:?} of {object:?}"
            );
        }
        Ok(())
    }
}

/// A subscriber that takes its events only now and then.
pub struct Lagging {
    inbox: Inbox,
    /// The exits and removals that it must get.
    due: BTreeSet<(Id, u32, LifecycleType)>,
    /// Those that it missed according to `Lagged`.
    lagged: BTreeSet<(Id, u32, LifecycleType)>,
}

impl Lagging {
    pub(super) fn new() -> Self {
        Self {
            inbox: Inbox::new(3),
            due: BTreeSet::new(),
            lagged: BTreeSet::new(),
        }
    }

    fn key(event: &PodLifecycleEvent) -> Option<(Id, u32, LifecycleType)> {
        let subject = event.subject.as_ref().filter(|_| rank(event.event) >= 2)?;
        Some((subject.id.clone(), subject.incarnation, event.event))
    }

    fn push(&mut self, event: &PodLifecycleEvent) {
        self.due.extend(Self::key(event));
        self.inbox.push(event.clone());
    }

    pub fn take(&mut self, most: usize) -> Result<(), Violation> {
        for _ in 0..most {
            if self.inbox.take_missed().is_some() {
                self.lagged.append(&mut self.due);
            }
            let Some(event) = self.inbox.pop() else {
                break;
            };
            if let Some(key) = Self::key(&event) {
                let is_owed = self.due.remove(&key) || self.lagged.remove(&key);
                hold!(
                    is_owed,
                    "invariant-9-lagging-once",
                    "{key:?} is taken twice"
                );
            }
        }
        Ok(())
    }

    /// It takes all its events; no exit or removal was lost silently.
    pub fn catch_up(&mut self) -> Result<(), Violation> {
        self.take(usize::MAX)?;
        hold!(
            self.due.is_empty(),
            "invariant-9-lagging-misses-no-terminal-event",
            "{:?}",
            self.due
        );
        Ok(())
    }
}
