//! The scheduled actions of a world, in the order of time.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use pleg_core::RuntimeEvent;
use pleg_node_model::{Due, Id};

use crate::worker::Op;

/// An action that can be scheduled in a world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Act {
    /// A container exits with a code.
    Exit(Id, i32),
    /// The kernel kills a container because it uses too much memory.
    OomKill(Id),
    /// The pause process of a sandbox is killed.
    KillSandbox(Id),
    /// A third party stops a container.
    ThirdStop(Id),
    /// A third party removes an exited container.
    ThirdRemoval(Id),
    /// The world chooses faults that happen now.
    Disturb,
    /// The runtime has restarted, and answers again.
    Restarted,
    /// The driver subscribes to events.
    Open,
    /// The runtime reads the statuses for an event and sends it. CRI-O does this some time after the change.
    Generate(Due),
    /// An event arrives: the number of its stream, the event, and the instant of the change.
    Deliver(u64, RuntimeEvent, u64),
    /// The driver takes all hints out of its hint map, and passes them to the core.
    Drain,
    /// The runtime reads the rows for the list with this ticket.
    Rows(u64),
    /// The runtime reads a status for the call with this ticket: the index of the id in the call.
    Status(u64, usize),
    /// The core gets the answer of the call with this ticket.
    Answer(u64),
    /// The core gets the answer of `Version`, or its failure if the deadline (the second number) has passed.
    Version(u64, u64),
    /// The event stream ends.
    Cut,
    /// A consumer requests a relist.
    Relist,
    /// A third party runs a container in this sandbox.
    Birth(Id),
    /// A third party removes a sandbox with its containers.
    ThirdRemovePod(Id),
    /// A third party runs a sandbox of the first pod.
    ThirdRunPod,
    /// The runtime is killed. Its restart ends later.
    Kill,
    /// The worker of the pod with this number starts to wait for a view.
    Wake(usize),
    /// The worker of the pod with this number makes a call.
    Perform(usize, Op),
    /// A call that has timed out for the worker of the pod with this number takes effect.
    Effect(Op, usize),
    /// The runtime call by the worker of the pod with this number has ended.
    Done(usize),
}

/// The scheduled actions. Of actions with the same instant, the one that was added first happens first.
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

    /// The instant of the earliest action.
    pub(crate) fn due(&self) -> Option<u64> {
        self.acts.keys().next().map(|&(at, _)| at)
    }

    pub(crate) fn pop(&mut self) -> Option<Act> {
        self.acts.pop_first().map(|(_, act)| act)
    }

    pub(crate) fn retain(&mut self, stays: impl Fn(&Act) -> bool) {
        self.acts.retain(|_, act| stays(act));
    }

    /// The actions that are due at `now` or earlier, each with its instant.
    pub(crate) fn by(&self, now: u64) -> impl Iterator<Item = (u64, &Act)> {
        let range = self.acts.range(..=(now, u64::MAX));
        range.map(|(&(at, _), act)| (at, act))
    }

    /// The instant of the earliest action later than `now`.
    pub(crate) fn after(&self, now: u64) -> Option<u64> {
        let mut later = self.acts.range((now, u64::MAX)..);
        later.next().map(|(&(at, _), _)| at)
    }

    /// Takes the earliest action later than `now`.
    pub(crate) fn pop_after(&mut self, now: u64) -> Option<Act> {
        let key = *self.acts.range((now, u64::MAX)..).next()?.0;
        self.acts.remove(&key)
    }

    /// Takes the action with the index `place` among those that [`by`](Self::by) returns.
    pub(crate) fn take(&mut self, place: usize) -> Option<Act> {
        let key = *self.acts.keys().nth(place)?;
        self.acts.remove(&key)
    }
}

/// The hash ignores in which order the world added actions of one instant: a small world tries every order anyway.
impl Hash for Queue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let acts = self.acts.iter().map(|(&(at, _), act)| {
            // `Act` has no order, so sort by the start of its debug text: the kind of the action and, mostly, an id.
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
