//! The small worlds.

use std::fmt;

use super::scenario::{Object, ObjectIndex, Stage, Step, container, sandbox};
use Stage::{Created, Exited, Removed, Running};

/// What may go wrong in one run, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// An event is lost.
    pub drops: u8,
    /// An event comes once more, after all that waits.
    pub duplicates: u8,
    /// An event overtakes the one before it.
    pub reorderings: u8,
    /// An event comes with statuses that were read late, when more had happened.
    pub stale: u8,
    /// The stream is disconnected; what waits on it is lost.
    pub cuts: u8,
    /// A read fails, whole or in part.
    pub failures: u8,
    /// An event tells of an end that was none.
    pub false_events: u8,
    /// A list leaves out what is there, or shows what is false.
    pub false_lists: u8,
    /// Of all these together.
    pub faults: u8,
    /// A consumer asks for what is newer than now.
    pub waits: u8,
    /// Nothing happens until the reconciler's next timer: whatever is in flight is slow.
    pub time_jumps: u8,
    /// So many events may wait on the stream.
    pub lag: u8,
    /// So many steps may happen while a read is in flight.
    pub span: u8,
}

/// Who there is, and what happens to them.
#[derive(Debug)]
pub struct Scenario {
    pub about: &'static str,
    pub objects: &'static [Object],
    /// What is there when it begins.
    pub first: &'static [(ObjectIndex, Stage)],
    /// What happens; the scripts run side by side.
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
            false_events,
            false_lists,
            faults,
            waits,
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
            (false_events, "lying event"),
            (false_lists, "lying list"),
        ];
        let kinds = kinds.iter().filter(|(n, _)| **n > 0);
        let kinds: Vec<String> = kinds.map(|(n, what)| format!("{n} {what}")).collect();
        write!(f, "{faults} of ({}); {waits} waiter, ", kinds.join(", "))?;
        write!(f, "{time_jumps} jump, lag {lag}, span {span}")
    }
}

/// A small world: a tale, and what may go wrong in it.
#[derive(Debug)]
pub struct World {
    pub name: &'static str,
    pub scenario: &'static Scenario,
    /// It begins with a list in flight.
    pub listing: bool,
    pub budget: Budget,
}

/// The budget of the issue, one of each.
const ONE_OF_EACH: Budget = Budget {
    drops: 1,
    duplicates: 1,
    reorderings: 1,
    stale: 1,
    cuts: 1,
    failures: 1,
    false_events: 0,
    false_lists: 0,
    faults: 1,
    waits: 0,
    time_jumps: 1,
    lag: 2,
    span: 2,
};

/// With a waiter, and no time that passes but what is in flight.
const WITH_WAITER: Budget = Budget {
    waits: 1,
    time_jumps: 0,
    ..ONE_OF_EACH
};

/// With lies instead of losses.
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

// --- who there is, and what happens ---

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
    about: "an event that lies, a list that lies",
    objects: &[
        sandbox("s1", "p1", 0),
        container("a0", "p1", 0, 0, 1),
        container("a1", "p1", 0, 1, 0),
    ],
    first: &[(0, Running), (1, Running)],
    scripts: &[&[Step(1, Exited), Step(2, Running), Step(1, Removed)]],
};

/// All of them: each tale by itself, and with a waiter.
pub const WORLDS: &[World] = &[
    World {
        name: "single+waiter",
        scenario: &SINGLE,
        listing: false,
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
        budget: Budget {
            span: 1,
            ..ONE_OF_EACH
        },
    },
    World {
        name: "restart+waiter",
        scenario: &RESTART,
        listing: false,
        budget: Budget {
            span: 1,
            ..WITH_WAITER
        },
    },
    World {
        name: "replaced",
        scenario: &REPLACED,
        listing: false,
        budget: ONE_OF_EACH,
    },
    World {
        name: "replaced+waiter",
        scenario: &REPLACED,
        listing: false,
        budget: WITH_WAITER,
    },
    World {
        name: "recreated",
        scenario: &RECREATED,
        listing: false,
        budget: ONE_OF_EACH,
    },
    World {
        name: "recreated+waiter",
        scenario: &RECREATED,
        listing: false,
        budget: WITH_WAITER,
    },
    World {
        name: "reconnect",
        scenario: &RECONNECT,
        listing: true,
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
        budget: WITH_WAITER,
    },
    World {
        name: "lies",
        scenario: &FALSE_REPORT_SCENARIO,
        listing: true,
        budget: Budget {
            faults: 2,
            time_jumps: 1,
            ..FALSE_REPORTS
        },
    },
    World {
        name: "lies+waiter",
        scenario: &FALSE_REPORT_SCENARIO,
        listing: true,
        budget: Budget {
            waits: 1,
            time_jumps: 1,
            ..FALSE_REPORTS
        },
    },
];

/// Worlds that take longer than CI has: `just exhaust` runs them as well.
pub const LARGE_WORLDS: &[World] = &[World {
    name: "lies+jumps",
    scenario: &FALSE_REPORT_SCENARIO,
    listing: true,
    budget: Budget {
        faults: 2,
        ..FALSE_REPORTS
    },
}];
