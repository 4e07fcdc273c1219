//! The small worlds.

use std::fmt;

use super::scenario::{Object, ObjectIndex, Stage, Step, container, sandbox};
use Stage::{Created, Exited, Removed, Running};

/// Which faults may occur in one run, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// An event is lost.
    pub drops: u8,
    /// An event is delivered a second time, after all waiting ones.
    pub duplicates: u8,
    /// An event overtakes the one before it.
    pub reorderings: u8,
    /// An event has statuses that were read late, after later steps.
    pub stale: u8,
    /// The stream is disconnected and loses its waiting events.
    pub cuts: u8,
    /// A read fails, completely or partly.
    pub failures: u8,
    /// The status call of a listed object says NotFound.
    pub not_found: u8,
    /// An event reports an exit or removal that did not happen.
    pub false_events: u8,
    /// A list omits an existing object or shows a false stage.
    pub false_lists: u8,
    /// The total of all these.
    pub faults: u8,
    /// A consumer waits for a state newer than now.
    pub waits: u8,
    /// A pod worker runs periodically.
    pub resyncs: u8,
    /// A pod is deleted.
    pub deletions: u8,
    /// Time advances to the next timer although something is in flight.
    pub time_jumps: u8,
    /// How many events may wait on the stream.
    pub lag: u8,
    /// How many steps may happen during a read.
    pub span: u8,
}

/// The objects, and what happens to them.
#[derive(Debug)]
pub struct Scenario {
    pub about: &'static str,
    pub objects: &'static [Object],
    /// What exists at the start.
    pub first: &'static [(ObjectIndex, Stage)],
    /// What happens; the scripts run in parallel.
    pub scripts: &'static [&'static [Step]],
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            drops,
            duplicates,
            reorderings,
            stale,
            cuts,
            failures,
            not_found,
            false_events,
            false_lists,
            faults,
            waits,
            resyncs,
            deletions,
            time_jumps,
            lag,
            span,
        } = self;
        let kinds = [
            (drops, "drop"),
            (duplicates, "double"),
            (reorderings, "swap"),
            (stale, "late statuses"),
            (cuts, "disconnected"),
            (failures, "failed read"),
            (not_found, "NotFound"),
            (false_events, "false event"),
            (false_lists, "false list"),
        ];
        let kinds = kinds.iter().filter(|(n, _)| **n > 0);
        let kinds: Vec<String> = kinds.map(|(n, what)| format!("{n} {what}")).collect();
        write!(f, "{faults} of ({}); {waits} waiter, ", kinds.join(", "))?;
        if *resyncs > 0 || *deletions > 0 {
            write!(f, "{resyncs} resync, {deletions} deletion, ")?;
        }
        write!(f, "{time_jumps} jump, lag {lag}, span {span}")
    }
}

/// A small world: a scenario and a budget of faults.
#[derive(Debug)]
pub struct World {
    pub name: &'static str,
    pub scenario: &'static Scenario,
    /// It begins with a list in flight.
    pub listing: bool,
    /// Pod workers act on the answers.
    pub kubelet: bool,
    pub budget: Budget,
}

/// One fault of each kind.
const ONE_OF_EACH: Budget = Budget {
    drops: 1,
    duplicates: 1,
    reorderings: 1,
    stale: 1,
    cuts: 1,
    failures: 1,
    not_found: 0,
    false_events: 0,
    false_lists: 0,
    faults: 1,
    waits: 0,
    resyncs: 0,
    deletions: 0,
    time_jumps: 1,
    lag: 2,
    span: 2,
};

/// With a waiter and without time jumps.
const WITH_WAITER: Budget = Budget {
    waits: 1,
    time_jumps: 0,
    ..ONE_OF_EACH
};

/// With pod workers.
const WITH_WORKERS: Budget = Budget {
    not_found: 1,
    time_jumps: 0,
    span: 1,
    ..ONE_OF_EACH
};

/// With false reports instead of losses.
const FALSE_REPORTS: Budget = Budget {
    drops: 0,
    duplicates: 0,
    reorderings: 0,
    stale: 0,
    cuts: 0,
    failures: 0,
    false_events: 1,
    false_lists: 1,
    time_jumps: 2,
    ..ONE_OF_EACH
};

// --- scenarios ---

const SINGLE: Scenario = Scenario {
    about: "1 pod, 1 container, one restart",
    objects: &[
        sandbox("s1", "p1", 0),
        container("a0", "p1", 0, 0, 1),
        container("a1", "p1", 0, 1, 0),
    ],
    first: &[(0, Running), (1, Running)],
    scripts: &[&[Step(1, Exited), Step(2, Running)]],
};

const RESTART: Scenario = Scenario {
    about: "2 pods, 2 containers, one restart",
    objects: &[
        sandbox("s1", "p1", 0),
        container("a0", "p1", 0, 0, 1),
        container("a1", "p1", 0, 1, 0),
        sandbox("s2", "p2", 0),
        container("b0", "p2", 3, 0, 0),
    ],
    first: &[(0, Running), (1, Running), (3, Running)],
    scripts: &[
        &[Step(1, Exited), Step(2, Created), Step(2, Running)],
        &[Step(4, Created), Step(4, Running)],
    ],
};

const REPLACED: Scenario = Scenario {
    about: "1 pod, its sandbox replaced under the same uid",
    objects: &[
        sandbox("s1", "p1", 0),
        container("a0", "p1", 0, 0, 1),
        sandbox("s2", "p1", 1),
        container("a1", "p1", 2, 1, 0),
    ],
    first: &[(0, Running), (1, Running)],
    scripts: &[&[
        Step(1, Exited),
        Step(0, Exited),
        Step(2, Running),
        Step(3, Running),
        Step(1, Removed),
        Step(0, Removed),
    ]],
};

const RECREATED: Scenario = Scenario {
    about: "a pod deleted and made anew under the same name",
    objects: &[
        sandbox("s1", "p1", 0),
        container("a0", "p1", 0, 0, 1),
        sandbox("s2", "p2", 0),
        container("b0", "p2", 2, 0, 0),
    ],
    first: &[(0, Running), (1, Running)],
    scripts: &[&[
        Step(1, Exited),
        Step(0, Exited),
        Step(1, Removed),
        Step(0, Removed),
        Step(2, Running),
        Step(3, Running),
    ]],
};

const RECONNECT: Scenario = Scenario {
    about: "a stream disconnected and made anew during a list",
    objects: &[
        sandbox("s1", "p1", 0),
        container("a0", "p1", 0, 0, 1),
        container("a1", "p1", 0, 1, 0),
    ],
    first: &[(0, Running), (1, Running)],
    scripts: &[&[
        Step(1, Exited),
        Step(2, Created),
        Step(2, Running),
        Step(2, Exited),
        Step(2, Removed),
    ]],
};

const FALSE_REPORT_SCENARIO: Scenario = Scenario {
    about: "a false event and a false list",
    objects: &[
        sandbox("s1", "p1", 0),
        container("a0", "p1", 0, 0, 1),
        container("a1", "p1", 0, 1, 0),
    ],
    first: &[(0, Running), (1, Running)],
    scripts: &[&[Step(1, Exited), Step(2, Running), Step(1, Removed)]],
};

const EXITS: Scenario = Scenario {
    about: "1 pod whose container exits twice, a worker that restarts it",
    objects: &[
        sandbox("s1", "p1", 0),
        container("a0", "p1", 0, 0, 1),
        container("a1", "p1", 0, 1, 1),
        container("a2", "p1", 0, 2, 0),
    ],
    first: &[(0, Running), (1, Running)],
    scripts: &[&[Step(1, Exited), Step(2, Exited)]],
};

const EXIT: Scenario = Scenario {
    about: "1 pod whose container exits, a worker that restarts it",
    objects: &[
        sandbox("s1", "p1", 0),
        container("a0", "p1", 0, 0, 1),
        container("a1", "p1", 0, 1, 1),
    ],
    first: &[(0, Running), (1, Running)],
    scripts: &[&[Step(1, Exited)]],
};

const SANDBOX_KILLED: Scenario = Scenario {
    about: "1 pod whose sandbox is killed, a worker that replaces it",
    objects: &[
        sandbox("s1", "p1", 0),
        container("a0", "p1", 0, 0, 1),
        sandbox("s2", "p1", 1),
        container("a1", "p1", 2, 1, 0),
    ],
    first: &[(0, Running), (1, Running)],
    scripts: &[&[Step(0, Exited)]],
};

/// Each scenario without and with a waiter, and those with pod workers.
pub const WORLDS: &[World] = &[
    World {
        name: "single+waiter",
        scenario: &SINGLE,
        listing: false,
        kubelet: false,
        budget: Budget {
            faults: 2,
            waits: 1,
            ..ONE_OF_EACH
        },
    },
    World {
        name: "restart",
        scenario: &RESTART,
        listing: false,
        kubelet: false,
        budget: Budget {
            span: 1,
            ..ONE_OF_EACH
        },
    },
    World {
        name: "restart+waiter",
        scenario: &RESTART,
        listing: false,
        kubelet: false,
        budget: Budget {
            span: 1,
            ..WITH_WAITER
        },
    },
    World {
        name: "replaced",
        scenario: &REPLACED,
        listing: false,
        kubelet: false,
        budget: Budget {
            span: 1,
            ..ONE_OF_EACH
        },
    },
    World {
        name: "replaced+waiter",
        scenario: &REPLACED,
        listing: false,
        kubelet: false,
        budget: WITH_WAITER,
    },
    World {
        name: "recreated",
        scenario: &RECREATED,
        listing: false,
        kubelet: false,
        budget: ONE_OF_EACH,
    },
    World {
        name: "recreated+waiter",
        scenario: &RECREATED,
        listing: false,
        kubelet: false,
        budget: WITH_WAITER,
    },
    World {
        name: "reconnect",
        scenario: &RECONNECT,
        listing: true,
        kubelet: false,
        budget: Budget {
            faults: 2,
            time_jumps: 0,
            ..ONE_OF_EACH
        },
    },
    World {
        name: "reconnect+waiter",
        scenario: &RECONNECT,
        listing: true,
        kubelet: false,
        budget: Budget {
            span: 1,
            ..WITH_WAITER
        },
    },
    World {
        name: "false-reports",
        scenario: &FALSE_REPORT_SCENARIO,
        listing: true,
        kubelet: false,
        budget: Budget {
            faults: 2,
            time_jumps: 1,
            ..FALSE_REPORTS
        },
    },
    World {
        name: "false-reports+waiter",
        scenario: &FALSE_REPORT_SCENARIO,
        listing: true,
        kubelet: false,
        budget: Budget {
            waits: 1,
            time_jumps: 1,
            span: 1,
            ..FALSE_REPORTS
        },
    },
    World {
        name: "kubelet-exits",
        scenario: &EXITS,
        listing: false,
        kubelet: true,
        budget: WITH_WORKERS,
    },
    World {
        name: "kubelet-sandbox",
        scenario: &SANDBOX_KILLED,
        listing: false,
        kubelet: true,
        budget: Budget {
            time_jumps: 1,
            ..WITH_WORKERS
        },
    },
    World {
        name: "kubelet-not-found",
        scenario: &EXIT,
        listing: false,
        kubelet: true,
        budget: Budget {
            drops: 0,
            duplicates: 0,
            reorderings: 0,
            stale: 0,
            cuts: 0,
            not_found: 2,
            faults: 2,
            resyncs: 1,
            time_jumps: 1,
            ..WITH_WORKERS
        },
    },
    World {
        name: "kubelet-deleted",
        scenario: &EXIT,
        listing: false,
        kubelet: true,
        budget: Budget {
            deletions: 1,
            ..WITH_WORKERS
        },
    },
];

/// Worlds that take too long for CI; `just exhaust` runs them as well.
pub const LARGE_WORLDS: &[World] = &[
    World {
        name: "replaced+span",
        scenario: &REPLACED,
        listing: false,
        kubelet: false,
        budget: ONE_OF_EACH,
    },
    World {
        name: "reconnect+waiter+span",
        scenario: &RECONNECT,
        listing: true,
        kubelet: false,
        budget: WITH_WAITER,
    },
    World {
        name: "false-reports+waiter+span",
        scenario: &FALSE_REPORT_SCENARIO,
        listing: true,
        kubelet: false,
        budget: Budget {
            waits: 1,
            time_jumps: 1,
            ..FALSE_REPORTS
        },
    },
    World {
        name: "false-reports+jumps",
        scenario: &FALSE_REPORT_SCENARIO,
        listing: true,
        kubelet: false,
        budget: Budget {
            faults: 2,
            ..FALSE_REPORTS
        },
    },
];
