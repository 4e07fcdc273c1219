//! Law 9: what is announced, to one who keeps up and to one who lags.

use std::collections::BTreeSet;

use pleg_core::{Id, Inbox, LifecycleType, PodLifecycleEvent, TerminalRecord};

use super::cached::seen;
use super::{Laws, hold};
use crate::node::{Node, State};
use crate::stand::Broken;

/// What was announced of one incarnation of an id.
#[derive(Clone, Debug, Default)]
pub struct Said(pub Vec<LifecycleType>);

impl Said {
    pub fn has(&self, what: LifecycleType) -> bool {
        self.0.contains(&what)
    }
}

/// How far along a life an announcement is.
const fn rank(what: LifecycleType) -> u32 {
    match what {
        LifecycleType::ContainerStarted => 1,
        LifecycleType::ContainerDied => 2,
        LifecycleType::ContainerRemoved => 3,
        _ => 0,
    }
}

impl Laws {
    pub(super) fn announce(
        &mut self,
        node: &Node,
        event: &PodLifecycleEvent,
    ) -> Result<(), Broken> {
        self.lagging.push(event);
        let Some(subject) = &event.subject else {
            return Ok(());
        };
        let (id, what) = (&subject.id, event.event);
        let silent = self.silent.contains(id) && subject.incarnation == 0;
        hold!(
            !silent,
            "law6-silent-end",
            "{what} of {id}, which was first heard of as removed"
        );
        let went_back = self.went_back.get(id).copied().unwrap_or_default();
        hold!(
            subject.incarnation <= went_back,
            "law2-incarnation",
            "{what} of {id} in incarnation {}, it went back {went_back} times",
            subject.incarnation
        );
        let said = self
            .said
            .entry((id.clone(), subject.incarnation))
            .or_default();
        if rank(what) > 0 {
            hold!(
                !said.has(what),
                "law9-once",
                "{what} of {id} is announced again"
            );
            let later = said.0.iter().any(|&e| rank(e) > rank(what));
            hold!(
                !later,
                "law9-in-order",
                "{what} of {id} comes after {:?}",
                said.0
            );
        }
        said.0.push(what);
        let ran = self.ran.contains(id);
        hold!(
            what != LifecycleType::ContainerStarted || ran,
            "law9-started-was-seen",
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
            "law9-cache-first",
            "{what} of {id}, and the cache shows {cached:?}"
        );
        let code = node.life(id).map(|l| l.code);
        hold!(
            subject.exit_code.is_none() || subject.exit_code == code,
            "law9-true-exit-code",
            "{what} of {id} with exit code {:?}, it is {code:?}",
            subject.exit_code
        );
        Ok(())
    }

    pub(super) fn ends(&self, node: &Node, records: &[TerminalRecord]) -> Result<(), Broken> {
        for end in records {
            let same = records
                .iter()
                .filter(|r| (r.kind, &r.name) == (end.kind, &end.name));
            hold!(same.count() <= 3, "law9-bounded-ends", "{records:?}");
            let life = node.life(&end.id);
            hold!(
                life.is_some_and(|l| end.exit_code.is_none_or(|c| c == l.code)),
                "law9-true-exit-code",
                "{end:?} of {life:?}"
            );
        }
        Ok(())
    }
}

/// A subscriber that takes what there is for it only now and then.
pub struct Lagging {
    inbox: Inbox,
    /// The ends that it has to be told of.
    owed: BTreeSet<(Id, u32, LifecycleType)>,
    /// Those that it was told it had missed, by a snapshot that it took.
    excused: BTreeSet<(Id, u32, LifecycleType)>,
}

impl Lagging {
    pub(super) fn new() -> Self {
        Self {
            inbox: Inbox::new(3),
            owed: BTreeSet::new(),
            excused: BTreeSet::new(),
        }
    }

    fn key(event: &PodLifecycleEvent) -> Option<(Id, u32, LifecycleType)> {
        let subject = event.subject.as_ref().filter(|_| rank(event.event) >= 2)?;
        Some((subject.id.clone(), subject.incarnation, event.event))
    }

    fn push(&mut self, event: &PodLifecycleEvent) {
        self.owed.extend(Self::key(event));
        self.inbox.push(event.clone());
    }

    pub fn take(&mut self, most: usize) -> Result<(), Broken> {
        for _ in 0..most {
            if self.inbox.take_missed().is_some() {
                self.excused.append(&mut self.owed);
            }
            let Some(event) = self.inbox.pop() else {
                break;
            };
            if let Some(key) = Self::key(&event) {
                let is_owed = self.owed.remove(&key) || self.excused.remove(&key);
                hold!(is_owed, "law9-lagging-once", "{key:?} is taken twice");
            }
        }
        Ok(())
    }

    /// It takes all there is: nothing that mattered was lost in silence.
    pub fn catch_up(&mut self) -> Result<(), Broken> {
        self.take(usize::MAX)?;
        hold!(
            self.owed.is_empty(),
            "law9-lagging-misses-no-end",
            "{:?}",
            self.owed
        );
        Ok(())
    }
}
