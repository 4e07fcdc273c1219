//! Counts how often each fault and each situation (see [`REQUIRED`]) has occurred in the worlds of a soak.

use std::collections::BTreeMap;

use crate::faults::Fault;

/// The situations that must occur in a long soak, in addition to every [`Fault`].
pub const REQUIRED: &[&str] = &[
    "announced ContainerChanged",
    "announced ContainerDied",
    "announced ContainerRemoved",
    "announced ContainerStarted",
    "announced PodSync",
    "announced initial",
    "announcement about an id that no read showed",
    "answer",
    "answer with an error",
    "event CREATED",
    "event DELETED",
    "event STARTED",
    "event STOPPED",
    "event suppressed",
    "event stored for a subscriber",
    "event without a subscriber",
    "missed event",
    "output List",
    "output ListApplied",
    "output ListPod",
    "output ReadStatuses",
    "output Refresh",
    "output Resubscribe",
    "output Synced",
    "output Version",
    "relist during a pod read",
    "removal undone",
    "stream disabled",
    "transition Created",
    "transition Exited",
    "transition Removed",
    "transition Running",
    "worker removes",
    "worker runs a container",
    "worker runs a sandbox",
    "worker starts a created container",
    "worker stops",
    "world in polling mode",
    "world of one hour",
    "a crowd is read while relists fail",
    "world with a crowd of pods",
    "world with a hundred workers and a slow runtime",
];

/// Counts of the faults and situations that have occurred in one or more worlds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    faults: BTreeMap<Fault, u64>,
    points: BTreeMap<&'static str, u64>,
    /// The number of steps of the worlds: actions of the node, runtime, driver and consumers, and timers of the core.
    pub events: u64,
    /// The number of lists and status calls that the core has made (`Version` is not counted).
    pub calls: u64,
    /// The highest number of calls of the core in one world, in thousandths of the number that the checker allowed.
    pub budget_used: u64,
    /// The simulated time, in nanoseconds.
    pub nanos: u64,
}

impl Coverage {
    pub(crate) fn fault(&mut self, fault: Fault) {
        *self.faults.entry(fault).or_default() += 1;
    }

    pub(crate) fn point(&mut self, point: &'static str) {
        *self.points.entry(point).or_default() += 1;
    }

    /// The number of times that the situation `point` has occurred.
    pub fn count(&self, point: &str) -> u64 {
        self.points.get(point).copied().unwrap_or(0)
    }

    /// Adds the counts of another world.
    pub fn add(&mut self, other: &Self) {
        for (fault, n) in &other.faults {
            *self.faults.entry(*fault).or_default() += n;
        }
        for (point, n) in &other.points {
            *self.points.entry(point).or_default() += n;
        }
        self.events += other.events;
        self.calls += other.calls;
        self.budget_used = self.budget_used.max(other.budget_used);
        self.nanos += other.nanos;
    }

    /// The faults, and the situations of [`REQUIRED`], that have not occurred.
    pub fn missing(&self) -> Vec<String> {
        let faults = Fault::ALL.iter().map(|(fault, ..)| fault);
        let faults = faults.filter(|fault| !self.faults.contains_key(fault));
        let points = REQUIRED.iter().filter(|point| self.count(point) == 0);
        let faults = faults.map(|fault| format!("fault {fault:?}"));
        faults.chain(points.map(ToString::to_string)).collect()
    }

    /// One line for each fault and situation that has occurred, with its count.
    pub fn text(&self) -> String {
        let faults = self.faults.iter().map(|(f, n)| (format!("fault {f:?}"), n));
        let points = self.points.iter().map(|(p, n)| ((*p).to_owned(), n));
        let lines = faults
            .chain(points)
            .map(|(what, n)| format!("{n:>12} {what}\n"));
        lines.collect()
    }
}
