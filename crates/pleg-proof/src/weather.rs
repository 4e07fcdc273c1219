//! What goes wrong in one world, and how often (percent).

use std::ops::RangeInclusive;

use crate::dice::Dice;

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;

/// Which runtime is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// A sandbox's DELETED comes without its status; statuses are the sandbox's.
    Containerd17,
    /// A sandbox's DELETED comes with its status, not ready.
    Containerd2,
    /// Tells no sandbox's CREATED or DELETED; statuses are the pod's.
    Crio,
}

/// The faults of a world.
#[derive(Clone, Debug)]
pub struct Weather {
    pub name: &'static str,
    /// Until an event arrives, in milliseconds.
    pub delay: RangeInclusive<u64>,
    pub late: u64,
    pub dropped: u64,
    pub doubled: u64,
    /// The statuses were read long before the event was stamped.
    pub stale: u64,
    /// No sandbox status; no container statuses; both.
    pub truncated: u64,
    /// A stamp that is none.
    pub absurd: u64,
    /// A status without metadata or labels.
    pub nameless: u64,
    /// An event of something that did not happen.
    pub lies: u64,
    /// Per operation of the node.
    pub cut: u64,
    /// Whether what is told while nobody listens comes later.
    pub held: bool,
    pub clock_steps: u64,
    pub list_fails: u64,
    pub inspection_fails: u64,
    pub partial: u64,
    pub slow: u64,
    pub unknown: u64,
    /// Per event: the writer has something else to do for a while.
    pub lag: u64,
    /// containerd 2 lists sandboxes for a while after their DELETED.
    pub lingers: bool,
}

impl Weather {
    /// Every event arrives once, whole, and soon.
    pub const FAIR: Self = Self {
        name: "fair",
        delay: 0..=3,
        late: 0,
        dropped: 0,
        doubled: 0,
        stale: 0,
        truncated: 0,
        absurd: 0,
        nameless: 0,
        lies: 0,
        cut: 0,
        held: false,
        clock_steps: 0,
        list_fails: 0,
        inspection_fails: 0,
        partial: 0,
        slow: 0,
        unknown: 0,
        lag: 0,
        lingers: false,
    };

    /// One kind of weather or another.
    pub fn of(dice: &mut Dice) -> Self {
        match dice.below(7) {
            0 => Self::FAIR,
            // Nothing is lost: there can be no miss.
            1 => Self {
                name: "late",
                delay: 0..=50,
                late: 30,
                doubled: 20,
                stale: 30,
                slow: 20,
                lag: 10,
                lingers: dice.percent(50),
                ..Self::FAIR
            },
            2 => Self {
                name: "lossy",
                delay: 0..=20,
                late: 10,
                dropped: 30,
                truncated: 20,
                cut: 3,
                held: dice.percent(50),
                slow: 10,
                ..Self::FAIR
            },
            3 => Self {
                name: "broken calls",
                delay: 0..=20,
                dropped: 10,
                list_fails: 30,
                inspection_fails: 20,
                partial: 20,
                slow: 40,
                unknown: 10,
                cut: 2,
                ..Self::FAIR
            },
            // Every second pod cannot be read, lists fail at once, and events go on.
            4 => Self {
                name: "deaf",
                list_fails: 90,
                inspection_fails: 70,
                ..Self::FAIR
            },
            _ => Self {
                name: "wild",
                delay: 0..=200,
                late: 20,
                dropped: 15,
                doubled: 15,
                stale: 20,
                truncated: 15,
                absurd: 10,
                nameless: 5,
                lies: if dice.percent(40) { 4 } else { 0 },
                cut: 3,
                held: dice.percent(50),
                clock_steps: 2,
                list_fails: 10,
                inspection_fails: 10,
                partial: 10,
                slow: 20,
                unknown: 5,
                lag: 5,
                lingers: dice.percent(50),
            },
        }
    }

    /// Whether every event is sure to arrive, whole and in time.
    pub const fn loses_nothing(&self) -> bool {
        self.dropped + self.truncated + self.cut + self.lies + self.absurd + self.clock_steps == 0
            && self.list_fails + self.inspection_fails + self.partial + self.unknown == 0
    }
}
