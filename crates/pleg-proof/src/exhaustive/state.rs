//! The state of a small world, and its possible actions.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use pleg_core::{HeldId, KnownIds, Reconciler, Ticket};

use super::checks::Checks;
use super::kubelet::Worker;
use super::scenario::{ObjectIndex, Snapshot, Stage, Step};
use super::time_shift::TimeShiftedHasher;
use super::worlds::Budget;

/// A possible next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The next step of a script.
    Step {
        script: usize,
    },
    /// Delivers the first or second waiting event, with the statuses of when it happened or, `late`,
    /// of now; `again` also keeps a copy at the end of the queue.
    Deliver {
        second: bool,
        late: bool,
        again: bool,
    },
    /// Loses the first waiting event.
    Drop,
    /// Delivers a false event.
    FalseEvent {
        object: ObjectIndex,
        to: Stage,
    },
    /// The stream is disconnected.
    Cut,
    /// It is subscribed to again.
    Subscribe,
    /// A read ends. `first` and `then` are the instants at which it saw the sandboxes (or the lists of
    /// an inspection) and the containers (or the statuses).
    Complete {
        read: usize,
        first: usize,
        then: usize,
    },
    /// A list ends and shows a false stage of an object.
    CompleteFalsely {
        read: usize,
        object: ObjectIndex,
        stage: Stage,
    },
    /// An inspection ends whose status call of a listed object says NotFound.
    CompleteWithout {
        read: usize,
        object: ObjectIndex,
    },
    /// A read fails; an inspection may have read every status before it did.
    Fail {
        read: usize,
        partial: bool,
    },
    /// A consumer waits for a state newer than now.
    Wait {
        pod: usize,
    },
    /// A pod worker that was woken waits.
    RunWorker {
        pod: usize,
    },
    /// A pod worker performs its next operation.
    Operate {
        pod: usize,
    },
    /// A pod worker runs periodically.
    Resync {
        pod: usize,
    },
    DeletePod {
        pod: usize,
    },
    /// Time advances to the reconciler's next timer.
    AdvanceTime,
    /// The workload, the faults and the requests stop.
    StopFaults,
    /// Runs without faults until nothing is owed, then checks the final state.
    Quiesce,
}

/// A message on the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    pub step: Step,
    /// The true state when it happened, and the time.
    pub seen: Snapshot,
    pub at: u64,
}

/// A read that is in flight.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Read {
    pub ticket: Ticket,
    pub what: What,
    pub began: u64,
    /// It ends or fails by then.
    pub deadline: u64,
    /// The relevant true states since it began.
    pub seen: Vec<Snapshot>,
}

/// What a read reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    Node { known: KnownIds },
    Pod { pod: usize, held: Vec<HeldId> },
    One { object: ObjectIndex },
}

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    Running,
    Stopped,
    Quiescent,
}

/// The state of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub reconciler: Reconciler,
    /// The current time.
    pub now: u64,
    /// The number of completed steps per script.
    pub done: [u8; 2],
    pub oracle: Snapshot,
    pub streaming: bool,
    pub queue: Vec<Message>,
    pub reads: Vec<Read>,
    pub left: Budget,
    pub checks: Checks,
    /// The pod workers, one per pod, if there is a kubelet.
    pub workers: Vec<Worker>,
    pub phase: Phase,
    pub waiters: u64,
    /// A delay was so long that a miss may be counted without a loss.
    pub late: bool,
    /// The first violation.
    pub violation: Option<Arc<str>>,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, inner: &mut H) {
        let mut h = TimeShiftedHasher {
            inner,
            now: self.now,
        };
        let Self {
            reconciler,
            now: _,
            done,
            oracle,
            streaming,
            queue,
            reads,
            left,
            checks,
            workers,
            phase,
            waiters,
            late,
            violation,
        } = self;
        if *phase == Phase::Quiescent {
            // How it became quiescent no longer matters.
            return violation.hash(&mut h);
        }
        (reconciler, done, oracle, streaming, queue).hash(&mut h);
        (reads, left, checks, workers).hash(&mut h);
        (phase, waiters, late, violation).hash(&mut h);
    }
}
