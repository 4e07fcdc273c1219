//! The operations of a sequence and their weights. The first of each kind is the simplest, and failing
//! sequences shrink to it.

use pleg_core::PodUid;
use proptest::prelude::*;
use proptest::strategy::Union;

use super::node::{Node, RuntimeKind, State, World, unknown_pod};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pod {
    A,
    B,
    /// A pod that never exists; consumers may still ask for it.
    Unknown,
}

impl Pod {
    pub const REAL: [Self; 2] = [Self::A, Self::B];

    pub fn uid(self) -> PodUid {
        match self {
            Self::A => "pod-a".into(),
            Self::B => "pod-b".into(),
            Self::Unknown => unknown_pod(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    App,
    Log,
}

impl Name {
    pub fn named(name: &str) -> Option<Self> {
        [Self::App, Self::Log]
            .into_iter()
            .find(|n| n.as_str() == name)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::App => "app",
            Self::Log => "log",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum FalseEventType {
    Stopped,
    Deleted,
}

/// How an event arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventForm {
    Whole,
    NoSandbox,
    NoContainers,
    Bare,
    /// Every status without metadata and labels.
    MissingMetadata,
    /// Every status UNKNOWN.
    Unknown,
    /// An invalid timestamp: zero, negative, an hour ago, or in an hour.
    Stamped(Stamp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    Zero,
    Negative,
    HourAgo,
    NextHour,
}

/// How a read ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Whole,
    Failed,
    TimedOut,
    /// An inspection: only every second status was read, then a call failed.
    Partial,
    /// The first id is UNKNOWN.
    Unknown,
}

/// When a requested read began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Began {
    WhenAsked,
    Halfway,
    Now,
}

/// The instant that a read shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    ItsEnd,
    ItsBegin,
    /// Sandboxes at its start, containers at its end.
    Torn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    Now,
    Ago(u64),
    In(u64),
}

/// One step.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    // The node.
    Run(Pod),
    Create(Pod, Name),
    Start(Pod, Name),
    FailToStart(Pod, Name),
    Exit(Pod, Name, i32),
    Remove(Pod, Name),
    KillSandbox(Pod),
    StopSandbox(Pod),
    RemoveSandbox(Pod),
    /// A false event; no name means the sandbox.
    FalseEvent(Pod, Option<Name>, FalseEventType),
    // The stream.
    /// Delivers the n-th event on the wire: late if others came before it, and again if it stays.
    Deliver {
        n: usize,
        how: EventForm,
        /// Its statuses were read only now.
        late: bool,
        again: bool,
    },
    DeliverAll,
    Drop(usize),
    Cut {
        /// The runtime holds its events.
        held: bool,
    },
    Subscribe,
    /// The writer is busy until `Drain`.
    Busy,
    Drain,
    // The requested reads. One that does not finish hangs until its deadline.
    FinishList {
        outcome: Outcome,
        began: Began,
        sees: Sees,
    },
    FinishInspection {
        n: usize,
        outcome: Outcome,
        began: Began,
        sees: Sees,
    },
    FinishRead {
        outcome: Outcome,
    },
    // The consumers.
    Wait(Pod, After),
    Relist(Pod),
    Reinspect(Pod),
    RelistNow,
    CancelLast,
    Acknowledge(Pod, Name),
    /// The lagging subscriber takes so many events.
    Take(usize),
    // The pod workers.
    /// The worker waits if it was woken or runs periodically.
    RunWorker {
        pod: Pod,
        periodic: bool,
    },
    /// The worker performs its next operation.
    Operate(Pod),
    DeletePod(Pod),
    /// Status calls of the newest container of that name say NotFound, though lists show it.
    HideStatus(Pod, Name),
    ShowStatuses,
    // Time.
    Advance(u64),
    ClockStep(i64),
}

pub fn world(false_events: bool) -> impl Strategy<Value = World> {
    let runtime = prop_oneof![
        Just(RuntimeKind::Containerd2),
        Just(RuntimeKind::Containerd17),
        Just(RuntimeKind::Crio)
    ];
    let (tight, kubelet) = (prop::bool::weighted(0.3), prop::bool::weighted(0.5));
    (runtime, tight, kubelet).prop_map(move |(runtime, tight, kubelet)| World {
        runtime,
        tight,
        false_events,
        // A worker acts on a false exit, which the reconciler must believe.
        kubelet: kubelet && !false_events,
    })
}

/// The possible next operations.
pub fn next(node: &Node) -> BoxedStrategy<Op> {
    let mut ops: Vec<(u32, BoxedStrategy<Op>)> = Vec::new();
    for pod in Pod::REAL {
        if node.world.kubelet {
            of_worker(pod, &mut ops);
        } else {
            of_pod(node, pod, &mut ops);
        }
    }
    of_stream(node, &mut ops);
    ops.extend([
        (10, finish_list().boxed()),
        (16, finish_inspection().boxed()),
        (
            2,
            outcome()
                .prop_map(|outcome| Op::FinishRead { outcome })
                .boxed(),
        ),
        (
            6,
            (pod(), after())
                .prop_map(|(pod, after)| Op::Wait(pod, after))
                .boxed(),
        ),
        (1, pod().prop_map(Op::Relist).boxed()),
        (1, pod().prop_map(Op::Reinspect).boxed()),
        (2, Just(Op::RelistNow).boxed()),
        (1, Just(Op::CancelLast).boxed()),
        (1, (1usize..4).prop_map(Op::Take).boxed()),
        (12, advance().prop_map(Op::Advance).boxed()),
        (
            1,
            prop_oneof![Just(-5i64), Just(2), Just(90)]
                .prop_map(Op::ClockStep)
                .boxed(),
        ),
    ]);
    Union::new_weighted(ops).boxed()
}

fn of_pod(node: &Node, pod: Pod, ops: &mut Vec<(u32, BoxedStrategy<Op>)>) {
    let mut can = |weight, op: Op| {
        if node.allows(&op) {
            ops.push((weight, Just(op).boxed()));
        }
    };
    can(6, Op::Run(pod));
    can(1, Op::KillSandbox(pod));
    can(2, Op::StopSandbox(pod));
    can(4, Op::RemoveSandbox(pod));
    for false_event in [FalseEventType::Stopped, FalseEventType::Deleted] {
        can(1, Op::FalseEvent(pod, None, false_event));
    }
    for name in [Name::App, Name::Log] {
        can(4, Op::Create(pod, name));
        can(5, Op::Start(pod, name));
        can(1, Op::FailToStart(pod, name));
        can(3, Op::Exit(pod, name, 0));
        can(2, Op::Exit(pod, name, 7));
        can(3, Op::Remove(pod, name));
        for false_event in [FalseEventType::Stopped, FalseEventType::Deleted] {
            can(1, Op::FalseEvent(pod, Some(name), false_event));
        }
        if node.container(pod, name, State::Exited).is_some() {
            can(1, Op::Acknowledge(pod, name));
        }
    }
}

/// What happens to the pod of a worker, and what the worker does.
fn of_worker(pod: Pod, ops: &mut Vec<(u32, BoxedStrategy<Op>)>) {
    let run = |periodic| Just(Op::RunWorker { pod, periodic }).boxed();
    ops.extend([
        (12, Just(Op::Operate(pod)).boxed()),
        (10, run(false)),
        (2, run(true)),
        (1, Just(Op::KillSandbox(pod)).boxed()),
        (1, Just(Op::DeletePod(pod)).boxed()),
        (1, Just(Op::ShowStatuses).boxed()),
    ]);
    for name in [Name::App, Name::Log] {
        ops.push((3, Just(Op::Exit(pod, name, 0)).boxed()));
        ops.push((2, Just(Op::Exit(pod, name, 7)).boxed()));
        ops.push((1, Just(Op::HideStatus(pod, name)).boxed()));
    }
}

fn of_stream(node: &Node, ops: &mut Vec<(u32, BoxedStrategy<Op>)>) {
    if node.stream.is_none() {
        ops.push((20, Just(Op::Subscribe).boxed()));
        return;
    }
    ops.push((1, any::<bool>().prop_map(|held| Op::Cut { held }).boxed()));
    ops.push((1, Just(Op::Busy).boxed()));
    ops.push((2, Just(Op::Drain).boxed()));
    let waiting = if node.world.kubelet {
        4
    } else {
        node.wire.len()
    };
    if waiting > 0 {
        ops.push((14, deliver(waiting).boxed()));
        ops.push((10, Just(Op::DeliverAll).boxed()));
        ops.push((3, (0..waiting).prop_map(Op::Drop).boxed()));
    }
}

fn deliver(waiting: usize) -> impl Strategy<Value = Op> {
    let how = prop_oneof![
        10 => Just(EventForm::Whole),
        1 => Just(EventForm::NoSandbox),
        1 => Just(EventForm::NoContainers),
        1 => Just(EventForm::Bare),
        1 => Just(EventForm::MissingMetadata),
        1 => Just(EventForm::Unknown),
        1 => Just(EventForm::Stamped(Stamp::Zero)),
        1 => Just(EventForm::Stamped(Stamp::Negative)),
        1 => Just(EventForm::Stamped(Stamp::HourAgo)),
        1 => Just(EventForm::Stamped(Stamp::NextHour)),
    ];
    (0..waiting, how, any::<bool>(), prop::bool::weighted(0.2)).prop_map(|(n, how, late, again)| {
        Op::Deliver {
            n,
            how,
            late,
            again,
        }
    })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        10 => Just(Outcome::Whole),
        2 => Just(Outcome::Failed),
        1 => Just(Outcome::TimedOut),
        1 => Just(Outcome::Partial),
        1 => Just(Outcome::Unknown),
    ]
}

fn moments() -> impl Strategy<Value = (Began, Sees)> {
    let began = prop_oneof![
        3 => Just(Began::WhenAsked),
        1 => Just(Began::Halfway),
        2 => Just(Began::Now)
    ];
    let sees = prop_oneof![
        3 => Just(Sees::ItsEnd),
        2 => Just(Sees::ItsBegin),
        1 => Just(Sees::Torn)
    ];
    (began, sees)
}

fn finish_list() -> impl Strategy<Value = Op> {
    (outcome(), moments()).prop_map(|(outcome, (began, sees))| Op::FinishList {
        outcome,
        began,
        sees,
    })
}

fn finish_inspection() -> impl Strategy<Value = Op> {
    (0usize..3, outcome(), moments()).prop_map(|(n, outcome, (began, sees))| Op::FinishInspection {
        n,
        outcome,
        began,
        sees,
    })
}

fn pod() -> impl Strategy<Value = Pod> {
    prop_oneof![4 => Just(Pod::A), 3 => Just(Pod::B), 1 => Just(Pod::Unknown)]
}

fn after() -> impl Strategy<Value = After> {
    prop_oneof![
        3 => Just(After::Now),
        2 => (1u64..3_000).prop_map(After::Ago),
        1 => (1u64..2_000).prop_map(After::In),
    ]
}

/// Mostly short, often long enough for a timer, sometimes for every deadline.
fn advance() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1u64..20,
        4 => 20u64..1_200,
        2 => 1_200u64..6_000,
        1 => 6_000u64..20_000,
        1 => 20_000u64..70_000,
    ]
}
