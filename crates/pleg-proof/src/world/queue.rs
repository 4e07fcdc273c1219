//! The actions that will happen, by time.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use pleg_core::RuntimeEvent;
use pleg_node_model::{Due, Id};

use crate::worker::Op;

/// An action: something that happens at an instant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Act {
    /// A container exits with a code.
    Exit(Id, i32),
    /// A container is killed for its memory.
    OomKill(Id),
    /// A pause process is killed.
    KillSandbox(Id),
    /// A third party stops a container.
    ThirdStop(Id),
    /// A third party removes an exited container.
    ThirdRemoval(Id),
    /// Disturbances are chosen.
    Disturb,
    /// The restart of the runtime has ended.
    Restarted,
    /// The driver subscribes.
    Open,
    /// The runtime makes an event (CRI-O does it after a while).
    Generate(Due),
    /// An event arrives on the stream with the given number.
    Deliver(u64, RuntimeEvent, u64),
    /// The driver takes the map of hints.
    Drain,
    /// A call reads rows.
    Rows(u64),
    /// A call reads one of its statuses.
    Status(u64, usize),
    /// A call is answered.
    Answer(u64),
    /// `Version` is answered, or fails if its deadline has passed.
    Version(u64, u64),
    /// The stream ends.
    Cut,
    /// A consumer asks for a relist.
    Relist,
    /// A third party runs a container in the given sandbox.
    Birth(Id),
    /// A third party removes a sandbox with its containers.
    ThirdRemovePod(Id),
    /// A third party runs a sandbox of the first pod.
    ThirdRunPod,
    /// The runtime is killed. Its restart ends later.
    Kill,
    /// A worker waits for a view.
    Wake(usize),
    /// A worker's call begins.
    Perform(usize, Op),
    /// A worker's call that has timed out takes effect.
    Effect(Op, usize),
    /// A worker's call ends.
    Done(usize),
}

/// The actions that will happen. Actions at the same instant happen in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    acts: BTreeMap<(u64, u64), Act>,
    number: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at: u64, act: Act) {
        self.number += 1;
        self.acts.insert((at, self.number), act);
    }

    /// The instant of the next action.
    pub(crate) fn due(&self) -> Option<u64> {
        self.acts.keys().next().map(|&(at, _)| at)
    }

    pub(crate) fn pop(&mut self) -> Option<Act> {
        self.acts.pop_first().map(|(_, act)| act)
    }

    pub(crate) fn retain(&mut self, stays: impl Fn(&Act) -> bool) {
        self.acts.retain(|_, act| stays(act));
    }

    /// The actions that could happen by `now`, each with its place and its time.
    pub(crate) fn by(&self, now: u64) -> impl Iterator<Item = (u64, &Act)> {
        let range = self.acts.range(..=(now, u64::MAX));
        range.map(|(&(at, _), act)| (at, act))
    }

    /// The instant of the first action after `now`.
    pub(crate) fn after(&self, now: u64) -> Option<u64> {
        let mut later = self.acts.range((now, u64::MAX)..);
        later.next().map(|(&(at, _), _)| at)
    }

    /// Removes the first action after `now`.
    pub(crate) fn pop_after(&mut self, now: u64) -> Option<Act> {
        let key = *self.acts.range((now, u64::MAX)..).next()?.0;
        self.acts.remove(&key)
    }

    /// Removes the action at the place `place` of [`by`](Self::by).
    pub(crate) fn take(&mut self, place: usize) -> Option<Act> {
        let key = *self.acts.keys().nth(place)?;
        self.acts.remove(&key)
    }
}

/// The order in which actions of one instant were added does not count: a small world tries every order.
impl Hash for Queue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let acts = self.acts.iter().map(|(&(at, _), act)| {
            // The debug text of an action begins with its kind and an id.
            let text: String = format!("{act:?}").chars().take(60).collect();
            (text, at, act)
        });
        let mut acts: Vec<_> = acts.collect();
        acts.sort_by(|one, two| one.0.cmp(&two.0));
        for (_, at, act) in acts {
            (at, act).hash(state);
        }
    }
}
