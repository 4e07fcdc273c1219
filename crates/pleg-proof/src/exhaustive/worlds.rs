//! The small worlds.

use std::fmt;

use super::script::{Being, Stage, Step, Who, container, sandbox};
use Stage::{Created, Exited, Removed, Running};

/// What may go wrong in one run, and how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// An event is lost.
    pub drops: u8,
    /// An event comes once more, after all that waits.
    pub doubles: u8,
    /// An event overtakes the one before it.
    pub swaps: u8,
    /// An event comes with statuses that were read late, when more had happened.
    pub stale: u8,
    /// The stream is cut; what waits on it is lost.
    pub cuts: u8,
    /// A read fails, whole or in part.
    pub failures: u8,
    /// An event tells of an end that was none.
    pub lying_events: u8,
    /// A list leaves out what is there, or shows what is not so.
    pub lying_lists: u8,
    /// Of all these together.
    pub faults: u8,
    /// Somebody asks for what is newer than now.
    pub waits: u8,
    /// Nothing happens until the machine's next timer: whatever is under way is slow.
    pub jumps: u8,
    /// So many events may wait on the stream.
    pub lag: u8,
    /// So many steps may happen while a read is under way.
    pub span: u8,
}

/// Who there is, and what happens to them.
#[derive(Debug)]
pub struct Tale {
    pub about: &'static str,
    pub beings: &'static [Being],
    /// What is there when it begins.
    pub first: &'static [(Who, Stage)],
    /// What happens; the scripts run side by side.
    pub scripts: &'static [&'static [Step]],
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            drops,
            doubles,
            swaps,
            stale,
            cuts,
            failures,
            lying_events,
            lying_lists,
            faults,
            waits,
            jumps,
            lag,
            span,
        } = self;
        let kinds = [
            (drops, "drop"),
            (doubles, "double"),
            (swaps, "swap"),
            (stale, "late statuses"),
            (cuts, "cut"),
            (failures, "failed read"),
            (lying_events, "lying event"),
            (lying_lists, "lying list"),
        ];
        let kinds = kinds.iter().filter(|(n, _)| **n > 0);
        let kinds: Vec<String> = kinds.map(|(n, what)| format!("{n} {what}")).collect();
        write!(f, "{faults} of ({}); {waits} waiter, ", kinds.join(", "))?;
        write!(f, "{jumps} jump, lag {lag}, span {span}")
    }
}

/// A small world: a tale, and what may go wrong in it.
#[derive(Debug)]
pub struct World {
    pub name: &'static str,
    pub tale: &'static Tale,
    /// It begins with a list under way.
    pub listing: bool,
    pub budget: Budget,
}

/// The budget of the issue, one of each.
const FAIR: Budget = Budget {
    drops: 1,
    doubles: 1,
    swaps: 1,
    stale: 1,
    cuts: 1,
    failures: 1,
    lying_events: 0,
    lying_lists: 0,
    faults: 1,
    waits: 0,
    jumps: 1,
    lag: 2,
    span: 2,
};

/// With one who waits, and no time that passes but what is under way.
const WAITED: Budget = Budget {
    waits: 1,
    jumps: 0,
    ..FAIR
};

/// With lies instead of losses.
const LYING: Budget = Budget {
    drops: 0,
    doubles: 0,
    swaps: 0,
    stale: 0,
    cuts: 0,
    failures: 0,
    lying_events: 1,
    lying_lists: 1,
    jumps: 2,
    ..FAIR
};

// --- who there is, and what happens ---

const SINGLE: Tale = Tale {
    about: "1 pod, 1 container, one restart",
    beings: &[
        sandbox("s1", "p1", 0),
        container("a0", "p1", 0, 0, 1),
        container("a1", "p1", 0, 1, 0),
    ],
    first: &[(0, Running), (1, Running)],
    scripts: &[&[Step(1, Exited), Step(2, Running)]],
};

const RESTART: Tale = Tale {
    about: "2 pods, 2 containers, one restart",
    beings: &[
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

const REPLACED: Tale = Tale {
    about: "1 pod, its sandbox replaced under the same uid",
    beings: &[
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

const RECREATED: Tale = Tale {
    about: "a pod deleted and made anew under the same name",
    beings: &[
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

const RECONNECT: Tale = Tale {
    about: "a stream cut and made anew during a list",
    beings: &[
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

const LIES: Tale = Tale {
    about: "an event that lies, a list that lies",
    beings: &[
        sandbox("s1", "p1", 0),
        container("a0", "p1", 0, 0, 1),
        container("a1", "p1", 0, 1, 0),
    ],
    first: &[(0, Running), (1, Running)],
    scripts: &[&[Step(1, Exited), Step(2, Running), Step(1, Removed)]],
};

/// All of them: each tale by itself, and with one who waits.
pub const WORLDS: &[World] = &[
    World {
        name: "single+waiter",
        tale: &SINGLE,
        listing: false,
        budget: Budget {
            faults: 2,
            waits: 1,
            ..FAIR
        },
    },
    World {
        name: "restart",
        tale: &RESTART,
        listing: false,
        budget: Budget { span: 1, ..FAIR },
    },
    World {
        name: "restart+waiter",
        tale: &RESTART,
        listing: false,
        budget: Budget { span: 1, ..WAITED },
    },
    World {
        name: "replaced",
        tale: &REPLACED,
        listing: false,
        budget: FAIR,
    },
    World {
        name: "replaced+waiter",
        tale: &REPLACED,
        listing: false,
        budget: WAITED,
    },
    World {
        name: "recreated",
        tale: &RECREATED,
        listing: false,
        budget: FAIR,
    },
    World {
        name: "recreated+waiter",
        tale: &RECREATED,
        listing: false,
        budget: WAITED,
    },
    World {
        name: "reconnect",
        tale: &RECONNECT,
        listing: true,
        budget: Budget {
            faults: 2,
            jumps: 0,
            ..FAIR
        },
    },
    World {
        name: "reconnect+waiter",
        tale: &RECONNECT,
        listing: true,
        budget: WAITED,
    },
    World {
        name: "lies",
        tale: &LIES,
        listing: true,
        budget: Budget {
            faults: 2,
            jumps: 1,
            ..LYING
        },
    },
    World {
        name: "lies+waiter",
        tale: &LIES,
        listing: true,
        budget: Budget {
            waits: 1,
            jumps: 1,
            ..LYING
        },
    },
];

/// Worlds that take longer than CI has: `just exhaust` runs them as well.
pub const LARGE_WORLDS: &[World] = &[World {
    name: "lies+jumps",
    tale: &LIES,
    listing: true,
    budget: Budget { faults: 2, ..LYING },
}];
