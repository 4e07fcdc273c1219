//! Counts each kind of fault, transition and recovery. A large run in which one of them never
//! occurs has not tested it, and fails.

use std::fmt;

use pleg_core::{Cause, Degraded, ExpectedEvent, LifecycleType, StreamEnd};

use crate::fault_profile::RuntimeKind;
use crate::faults::{Fault, named};

named! {
    /// A transition or a kind of recovery.
    CoverPoint {
        QuietHours = "hours without an event",
        AnnouncedStarted = "announced ContainerStarted",
        AnnouncedDied = "announced ContainerDied",
        AnnouncedRemoved = "announced ContainerRemoved",
        AnnouncedChanged = "announced ContainerChanged",
        AnnouncedSync = "announced PodSync",
        Published = "published",
        PodRemoved = "pod removed",
        PodForgotten = "pod forgotten",
        PodRefreshed = "pod refreshed by a list",
        StreamRenewed = "silent stream ended by the reconciler",
        KnownIds = "lists with known ids",
        ShownUnknown = "published as unknown",
        UnknownCleared = "unknown state cleared",
        Overruled = "overruled",
        ReincarnatedStarted = "new incarnation announced as Started",
        ReincarnatedChanged = "new incarnation announced as ContainerChanged",
        Contradicted = "contradicted",
        StreamUp = "stream subscribed",
        StreamConfirmed = "stream confirmed",
        StreamProven = "stream proven",
        StreamRefused = "stream refused",
        StreamCut = "stream cut before its first event",
        StreamEnded = "stream ended after its first event",
        StreamNotOffered = "stream not offered",
        StreamDisabled = "stream disabled",
        PeriodLongest = "relist period reached its maximum",
        PeriodShort = "relist period back to a second",
        OutageOver = "list at once after an outage",
        MissedContainerStarted = "missed container STARTED",
        MissedContainerStopped = "missed container STOPPED",
        MissedSandboxStarted = "missed sandbox STARTED",
        MissedSandboxStopped = "missed sandbox STOPPED",
        Implausible = "event implausible",
        Incomplete = "event incomplete",
        OrphanEvent = "event without a known pod",
        TombstoneDropped = "tombstone dropped at the limit",
        ForChanged = "inspected: changed",
        ForIncomplete = "inspected: incomplete",
        ForHint = "inspected: hint",
        ForProvisional = "inspected: provisional",
        ForUnknown = "inspected: unknown",
        ForWaiter = "inspected: waiter",
        ForRelist = "inspected: relist",
        ForReinspect = "inspected: reinspect",
        ForContradiction = "inspected: contradiction",
        ForEnded = "inspected: ended",
        ForRetry = "inspected: retry",
        Overdue = "inspection overdue",
        InspectionCancelled = "inspection cancelled",
        ExitRead = "exit reason read again",
        ReasonCorrected = "reason of an exit corrected",
        AnsweredAtOnce = "waiter answered from the cache",
        AnsweredByInspection = "waiter answered by an inspection",
        AnsweredWithError = "waiter answered with an error",
        AnsweredNothing = "waiter answered with an empty status",
        AnsweredFuture = "waiter of a future instant answered",
        ListedOk = "relist_now answered",
        ListedFailed = "relist_now answered with an error",
        Acknowledged = "terminal record acknowledged",
        JoinedInBacklog = "joined between reader and writer",
        BacklogOverflowed = "backlog overflowed",
        ChangeWaits = "stream change waited for the writer",
        Coalesced = "coalesced for a lagging subscriber",
        LaggedReported = "subscriber got Lagged",
        Unready = "not ready",
        ReadyAgain = "ready again",
        DegradedStream = "degraded: stream down",
        DegradedBacklog = "degraded: backlog",
        DegradedListSlow = "degraded: list slow",
        DegradedListFailed = "degraded: list failed",
        DegradedPodsHung = "degraded: pods hung",
        DegradedPodsFailing = "degraded: pods failing",
        NoLongerDegraded = "no longer degraded",
        InheritedPods = "worker: inherited pods",
        SpecNew = "worker: new pod",
        SpecDeleted = "worker: pod deleted",
        WorkerEnded = "worker: pod ended",
        WorkerWaits = "worker: waits",
        WorkerWaitFailed = "worker: waits failed",
        WorkerCancelled = "worker: waits cancelled",
        OperationIssued = "worker: operations",
        OperationFailed = "worker: operations failed",
        OperationRefused = "worker: operations refused by the runtime",
        SandboxRun = "worker: sandboxes created",
        SandboxStopped = "worker: sandboxes stopped",
        SandboxRemoved = "worker: sandboxes removed",
        ContainerCreated = "worker: containers created",
        ContainerRestarted = "worker: containers created again",
        ContainerStarted = "worker: containers started",
        ContainerStopped = "worker: containers stopped",
        ContainerRemoved = "worker: containers removed",
    }
}

/// The counts of one or more worlds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Discrete steps: node operations, messages sent and delivered, completed calls, requests,
    /// stream changes and reconciler timers.
    pub steps: u64,
    /// CRI events that reached the reader.
    pub events: u64,
    /// Completed calls to the runtime.
    pub lists: u64,
    pub inspections: u64,
    pub status_reads: u64,
    /// Simulated nanoseconds, and those in which the workload ran.
    pub nanos: u64,
    pub busy_nanos: u64,
    /// Checked views, announcements and answers.
    pub checked: u64,
    pub faults: [u64; Fault::COUNT],
    pub points: [u64; CoverPoint::COUNT],
    pub worlds: [u64; RuntimeKind::COUNT],
}

impl Default for Coverage {
    fn default() -> Self {
        Self {
            steps: 0,
            events: 0,
            lists: 0,
            inspections: 0,
            status_reads: 0,
            nanos: 0,
            busy_nanos: 0,
            checked: 0,
            faults: [0; Fault::COUNT],
            points: [0; CoverPoint::COUNT],
            worlds: [0; RuntimeKind::COUNT],
        }
    }
}

impl Coverage {
    pub const fn fault(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    pub const fn hit(&mut self, point: CoverPoint) {
        self.points[point as usize] += 1;
    }

    pub const fn hit_times(&mut self, point: CoverPoint, times: u64) {
        self.points[point as usize] += times;
    }

    /// Adds the counts of other worlds.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.events += other.events;
        self.lists += other.lists;
        self.inspections += other.inspections;
        self.status_reads += other.status_reads;
        self.nanos += other.nanos;
        self.busy_nanos += other.busy_nanos;
        self.checked += other.checked;
        add(&mut self.faults, &other.faults);
        add(&mut self.points, &other.points);
        add(&mut self.worlds, &other.worlds);
    }

    /// What never occurred.
    pub fn uncovered(&self) -> Vec<&'static str> {
        let faults = Fault::ALL.iter().zip(self.faults);
        let faults = faults.map(|(fault, n)| (fault.name(), n));
        let points = CoverPoint::ALL.iter().map(|p| p.name()).zip(self.points);
        let worlds = RuntimeKind::ALL.iter().map(|w| w.name()).zip(self.worlds);
        let all = faults.chain(points).chain(worlds);
        all.filter(|(_, n)| *n == 0).map(|(name, _)| name).collect()
    }

    /// The number of worlds.
    pub fn seeds(&self) -> u64 {
        self.worlds.iter().sum()
    }
}

fn add(sum: &mut [u64], other: &[u64]) {
    for (sum, other) in sum.iter_mut().zip(other) {
        *sum += other;
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = |f: &mut fmt::Formatter<'_>, title, rows: &mut dyn Iterator<Item = _>| {
            writeln!(f, "{title}:")?;
            for (name, n) in rows {
                writeln!(f, "  {n:>14}  {name}")?;
            }
            Ok(())
        };
        let counts = |counts: &[u64]| counts.to_vec();
        let names: Vec<&str> = RuntimeKind::ALL.iter().map(|w| w.name()).collect();
        table(
            f,
            "worlds by runtime",
            &mut names.into_iter().zip(counts(&self.worlds)),
        )?;
        let names: Vec<&str> = Fault::ALL.iter().map(|w| w.name()).collect();
        table(
            f,
            "faults",
            &mut names.into_iter().zip(counts(&self.faults)),
        )?;
        let names: Vec<&str> = CoverPoint::ALL.iter().map(|w| w.name()).collect();
        table(
            f,
            "transitions and recoveries",
            &mut names.into_iter().zip(counts(&self.points)),
        )
    }
}

impl CoverPoint {
    /// An inspection with that cause.
    pub const fn inspected_for(cause: Cause) -> Option<Self> {
        Some(match cause {
            Cause::Changed => Self::ForChanged,
            Cause::Incomplete => Self::ForIncomplete,
            Cause::Hint => Self::ForHint,
            Cause::Provisional => Self::ForProvisional,
            Cause::Unknown => Self::ForUnknown,
            Cause::Waiter => Self::ForWaiter,
            Cause::Relist => Self::ForRelist,
            Cause::Reinspect => Self::ForReinspect,
            Cause::Contradiction => Self::ForContradiction,
            Cause::Ended => Self::ForEnded,
            Cause::Retry => Self::ForRetry,
            _ => return None,
        })
    }

    /// An announcement of that type.
    pub const fn announced(what: LifecycleType) -> Option<Self> {
        Some(match what {
            LifecycleType::ContainerStarted => Self::AnnouncedStarted,
            LifecycleType::ContainerDied => Self::AnnouncedDied,
            LifecycleType::ContainerRemoved => Self::AnnouncedRemoved,
            LifecycleType::ContainerChanged => Self::AnnouncedChanged,
            LifecycleType::PodSync => Self::AnnouncedSync,
            _ => return None,
        })
    }

    /// The end of a stream with that reason.
    pub const fn ended(why: &StreamEnd) -> Option<Self> {
        Some(match why {
            StreamEnd::NeverOffered | StreamEnd::Declined => Self::StreamNotOffered,
            StreamEnd::Disabled => Self::StreamDisabled,
            StreamEnd::Refused(_) => Self::StreamRefused,
            StreamEnd::Cut(_) => Self::StreamCut,
            StreamEnd::Ended(_) => Self::StreamEnded,
            _ => return None,
        })
    }

    /// A degraded reason.
    pub const fn degraded(what: &Degraded) -> Option<Self> {
        Some(match what {
            Degraded::StreamDown { .. } => Self::DegradedStream,
            Degraded::Backlog { .. } => Self::DegradedBacklog,
            Degraded::ListSlow { .. } => Self::DegradedListSlow,
            Degraded::ListFailed { .. } => Self::DegradedListFailed,
            Degraded::PodsHung { .. } => Self::DegradedPodsHung,
            Degraded::PodsFailing { .. } => Self::DegradedPodsFailing,
            _ => return None,
        })
    }

    /// A missed event of that kind.
    pub const fn missed(kind: ExpectedEvent) -> Option<Self> {
        Some(match kind {
            ExpectedEvent::ContainerStarted => Self::MissedContainerStarted,
            ExpectedEvent::ContainerStopped => Self::MissedContainerStopped,
            ExpectedEvent::SandboxStarted => Self::MissedSandboxStarted,
            ExpectedEvent::SandboxStopped => Self::MissedSandboxStopped,
            _ => return None,
        })
    }
}
