//! The points of each mode.

use super::{Point, Workload};
use crate::subject::Kind;

/// Points that are compared with each other, and their number of repetitions.
pub(super) struct Group {
    pub(super) reps: u32,
    pub(super) points: Vec<Point>,
    pub(super) parallelism: Parallelism,
}

/// Which points are measured in parallel. Only workloads that mostly wait may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parallelism {
    None,
    Repetition,
    Group,
}

/// Returns a group with one point for each subject.
fn group(reps: u32, workload: Workload, pods: u32, subjects: &[Kind]) -> Group {
    let point = |&subject| Point {
        workload,
        subject,
        pods,
        containers: 1,
        latency: 0,
        page: None,
    };
    Group {
        reps,
        points: subjects.iter().map(point).collect(),
        parallelism: Parallelism::None,
    }
}

impl Group {
    /// Adds points for these subjects on nodes with `pods` pods.
    fn and(mut self, pods: u32, subjects: &[Kind]) -> Self {
        let mut others = self.points.clone();
        others.retain(|point| subjects.contains(&point.subject));
        others.iter_mut().for_each(|point| point.pods = pods);
        self.points.extend(others);
        self
    }

    fn parallelism(mut self, parallelism: Parallelism) -> Self {
        self.parallelism = parallelism;
        self
    }

    fn with(mut self, change: impl Fn(&mut Point)) -> Self {
        self.points.iter_mut().for_each(change);
        self
    }
}

const GENERATORS: [Kind; 5] = [
    Kind::Generic,
    Kind::Polling,
    Kind::Evented,
    Kind::Hint,
    Kind::Ours,
];

/// Points on a small node.
pub(super) fn smoke() -> Vec<Group> {
    use Kind::{Drain, Generic, Ours};
    const PODS: u32 = 40;
    let parallel = Workload::OwnWrites {
        parallel: 2,
        times: 1,
    };
    vec![
        group(2, Workload::Storm, PODS, &[Drain, Generic, Ours]),
        group(1, Workload::HungPod { seconds: 2 }, PODS, &[Generic, Ours])
            .parallelism(Parallelism::Group),
        group(1, parallel, PODS, &[Generic, Ours]),
        churn(1, 200, 2, &[PODS]),
    ]
}

pub(super) fn quick() -> Vec<Group> {
    use Kind::{Decode, Drain, Evented, Generic, Ours};
    use Workload::{Cut, Flood, Frozen, HungPod, Memory, Reads, Relists, Restarts, Storm};
    let mut small_and_large = churn(1, 100, 6, &[110]);
    let large = churn(1, 800, 6, &[1000]);
    small_and_large.points.extend(large.points);
    vec![
        group(2, Relists { relists: 50 }, 1000, &[Decode, Generic, Ours]),
        group(
            2,
            Restarts {
                rate: 100,
                seconds: 5,
            },
            1000,
            &[Drain, Generic, Ours],
        ),
        group(2, Storm, 1000, &[Drain, Generic, Ours]),
        group(1, Flood { events: 20_000 }, 1000, &[Drain, Ours]),
        group(1, Cut { down_ms: 0 }, 1000, &[Generic, Evented, Ours]),
        group(1, Cut { down_ms: 400 }, 1000, &[Ours]),
        group(1, Memory, 1000, &[Kind::Statuses, Generic, Ours]),
        group(1, stalled_consumer(5), 1000, &[Ours]),
        group(1, Reads, 1000, &[Ours]),
        group(1, HungPod { seconds: 5 }, 1000, &[Generic, Ours]),
        group(1, Frozen { settled: 1 }, 1000, &[Ours]),
        own_writes(1, 10, 2, 0),
        own_writes(1, 10, 2, 5),
        small_and_large,
    ]
}

/// Returns a group of pod workers that read after their own changes.
fn own_writes(reps: u32, parallel: u32, times: u32, latency: u64) -> Group {
    let workload = Workload::OwnWrites { parallel, times };
    let subjects: &[Kind] = match latency {
        // Without events: what the event of each change costs the thread that reads.
        0 => &[Kind::Generic, Kind::Polling, Kind::Ours],
        _ => &[Kind::Generic, Kind::Ours],
    };
    group(reps, workload, 1000, subjects).with(|p| p.latency = latency)
}

/// Returns a group of pod workers that create and remove pods on nodes of several sizes.
fn churn(reps: u32, per_hundred_seconds: u32, seconds: u32, sizes: &[u32]) -> Group {
    const SUBJECTS: [Kind; 3] = [Kind::Generic, Kind::Hint, Kind::Ours];
    let workload = Workload::Churn {
        per_hundred_seconds,
        seconds,
    };
    let points = sizes
        .iter()
        .flat_map(|&pods| group(1, workload, pods, &SUBJECTS).points);
    Group {
        reps,
        points: points.collect(),
        parallelism: Parallelism::Repetition,
    }
}

/// Returns the groups of pod workers that change the node.
fn with_workers() -> Vec<Group> {
    let mut groups = Vec::new();
    for (parallel, times) in [(1, 10), (10, 4), (100, 1)] {
        for (reps, latency) in [(3, 0), (3, 5), (1, 50)] {
            groups.push(own_writes(reps, parallel, times, latency));
        }
    }
    for per_hundred_seconds in [25, 100, 300, 800] {
        groups.push(churn(3, per_hundred_seconds, 20, &[110, 500, 1000]));
    }
    groups
}

const fn restarts(rate: u32, seconds: u32) -> Workload {
    Workload::Restarts { rate, seconds }
}

const fn stalled_consumer(seconds: u32) -> Workload {
    Workload::StalledConsumer {
        rate: 1000,
        seconds,
    }
}

const fn lifecycles(per_ten_seconds: u32, seconds: u32) -> Workload {
    Workload::Lifecycles {
        per_ten_seconds,
        seconds,
    }
}

/// 1 % of the events are lost, and 1 % are duplicated.
const LOSSY: Workload = Workload::Lossy {
    per_million: 10_000,
};

/// 10 % of the events are up to two seconds late.
const LATE: Workload = Workload::Late {
    per_million: 100_000,
    by_ms: 2000,
};

pub(super) fn standard() -> Vec<Group> {
    use Kind::{Calls, Decode, Drain, Evented, Generic, Hint, Ours, Polling, Statuses};
    use Workload::{
        Cut, Dropping, ExitedContainers, Flapping, Flood, HungPod, Idle, Memory, Reads, Relists,
        Reset, SlowList, Storm,
    };
    const EXITED: Workload = ExitedContainers {
        relists: 20,
        exited: 18_500,
    };
    const SLOW: Workload = SlowList {
        list_ms: 5000,
        seconds: 4,
    };
    const MANY: Workload = Relists { relists: 200 };
    const FEW: Workload = Relists { relists: 20 };
    let large = |p: &mut Point| {
        p.containers = 2;
        p.page = Some(5000);
    };
    let subjects = [Calls, Generic, Polling, Evented, Hint, Ours];
    let idle = group(1, Idle { seconds: 180 }, 1000, &subjects).and(110, &[Calls, Generic, Ours]);
    let tens = |p: &mut Point| p.containers = 10;
    let mut groups = with_workers();
    groups.extend([
        group(5, MANY, 110, &[Decode, Generic, Ours]),
        group(9, MANY, 1000, &[Decode, Generic, Ours]),
        group(3, FEW, 10_000, &[Decode, Generic, Ours]).with(large),
        group(3, FEW, 500, &[Decode, Generic, Ours]).with(tens),
        group(2, Memory, 500, &[Generic, Ours]).with(tens),
        group(5, restarts(100, 5), 1000, &[Drain, Generic, Ours]),
        group(1, restarts(100, 5), 1000, &[Evented, Hint]),
        group(2, restarts(1000, 3), 1000, &[Drain, Generic, Hint, Ours]),
        group(5, restarts(10_000, 3), 1000, &[Drain, Ours]),
        group(1, restarts(10_000, 3), 1000, &[Generic]),
        group(1, lifecycles(10, 6), 1000, &GENERATORS),
        group(1, lifecycles(160, 4), 1000, &GENERATORS),
        // Short, and therefore dominated by the scheduler: it needs many repetitions.
        group(25, Storm, 1000, &[Drain, Ours]),
        // The result of subjects that list once a second depends on the offset in that second.
        group(7, Storm, 1000, &[Generic, Polling, Evented, Hint]),
        group(5, Storm, 1000, &[Generic, Ours]).with(|p| p.latency = 1),
        group(7, Flood { events: 40_000 }, 1000, &[Drain, Ours]),
        group(5, Cut { down_ms: 0 }, 1000, &[Generic, Ours]),
        group(1, Cut { down_ms: 0 }, 1000, &[Evented, Hint]),
        group(3, Cut { down_ms: 400 }, 1000, &[Ours]),
        group(1, Cut { down_ms: 400 }, 1000, &[Generic]),
        group(2, Reset, 1000, &[Ours]),
        group(1, Reset, 1000, &[Hint]),
        group(3, Dropping, 1000, &[Generic, Evented, Hint, Ours]),
        group(1, LOSSY, 1000, &[Generic, Hint, Ours]),
        group(1, LATE, 1000, &[Hint, Ours]),
        group(1, HungPod { seconds: 5 }, 1000, &[Generic, Hint, Ours]),
        group(1, SLOW, 1000, &[Generic, Hint, Ours]),
        settled(5),
        group(1, Flapping { seconds: 6 }, 1000, &[Generic, Ours]),
        group(1, EXITED, 1000, &[Generic, Ours]).with(|p| p.page = Some(5000)),
        group(2, Memory, 1000, &[Statuses, Generic, Ours]),
        group(1, stalled_consumer(60), 1000, &[Evented, Ours]),
        group(5, Reads, 1000, &[Ours]),
        group(1, Reads, 1000, &[Generic]),
        idle.parallelism(Parallelism::Repetition),
    ]);
    groups
}

/// Returns faults on a node that is idle for so long that this project lists once a minute. The fault of
/// each repetition has another offset in that minute.
fn settled(reps: u32) -> Group {
    use Workload::{Frozen, Probed, SilentStream};
    let settled = 130;
    let mut all = group(
        reps,
        SilentStream { settled },
        1000,
        &[Kind::Generic, Kind::Ours],
    );
    for workload in [Frozen { settled }, Probed { settled }] {
        all.points
            .extend(group(1, workload, 1000, &[Kind::Ours]).points);
    }
    all.parallelism(Parallelism::Group)
}
