//! Which runtime is simulated, and how often each fault occurs.

use std::ops::RangeInclusive;

use pleg_core::EventProfile;

use crate::faults::{Fault, named};
use crate::rng::Rng;

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;

named! {
    /// The simulated runtime.
    RuntimeKind {
        /// A sandbox's DELETED has no sandbox status; events carry the statuses of one sandbox; all
        /// subscribers share one queue.
        Containerd17 = "containerd-1.7",
        /// A sandbox's DELETED has its status, not ready; every subscriber gets all events; events
        /// without a subscriber are held for 5 minutes.
        Containerd2 = "containerd-2",
        /// Sends no CREATED or DELETED of sandboxes and no events during a sandbox's removal; events
        /// carry the statuses of the pod; a container that fails to start is removed.
        Crio = "crio",
        /// CRI-O with events disabled: the stream ends at once without an error.
        CrioDisabled = "crio-disabled",
        /// containerd 1.6: the call is unimplemented.
        Unimplemented = "unimplemented",
        /// Any runtime, with the reconciler in polling mode.
        Polled = "polled",
    }
}

impl RuntimeKind {
    /// Whether it is CRI-O.
    pub const fn is_crio(self) -> bool {
        matches!(self, Self::Crio | Self::CrioDisabled)
    }

    /// The quirk profile of the stream.
    pub const fn profile(self) -> EventProfile {
        let mut profile = EventProfile::UNKNOWN;
        if matches!(self, Self::Containerd17 | Self::Containerd2) {
            profile.promises_started = true;
            profile.promises_stopped = true;
            profile.removal_suppresses_stopped = false;
            profile.splits_events_between_subscribers = matches!(self, Self::Containerd17);
        }
        profile
    }

    /// Whether it sends events.
    pub const fn streams(self) -> bool {
        matches!(self, Self::Containerd17 | Self::Containerd2 | Self::Crio)
    }
}

/// How often each fault of a world occurs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultProfile {
    pub name: &'static str,
    /// The delivery delay of events in milliseconds.
    pub delay: RangeInclusive<u64>,
    /// The probability of each fault in percent.
    percent: [u8; Fault::COUNT],
}

impl FaultProfile {
    /// Every event arrives once, complete and soon; every call succeeds.
    pub const NONE: Self = Self {
        name: "no faults",
        delay: 0..=3,
        percent: [0; Fault::COUNT],
    };

    /// The probability of a fault in percent.
    pub const fn percent(&self, fault: Fault) -> u64 {
        self.percent[fault as usize] as u64
    }

    /// Sets the probability of some faults.
    #[must_use]
    pub fn with(mut self, percent: u8, faults: &[Fault]) -> Self {
        for &fault in faults {
            self.percent[fault as usize] = percent;
        }
        self
    }

    /// The faults that can occur.
    pub fn faults(&self) -> impl Iterator<Item = Fault> + '_ {
        let can_occur = |f: &Fault| self.percent(*f) > 0;
        Fault::ALL.iter().copied().filter(can_occur)
    }

    fn named(name: &'static str, slowest: u64) -> Self {
        Self {
            name,
            delay: 0..=slowest,
            ..Self::NONE
        }
    }

    /// A random profile for that runtime.
    pub fn random(rng: &mut Rng, runtime: RuntimeKind) -> Self {
        use Fault::*;
        let fault_profile = match rng.below(12) {
            0 => Self::NONE.with(3, &[WaiterCancels]),
            // No event is lost, so none can be missed.
            1 => Self::named("delays", 50)
                .with(30, &[Late, Reordered, Stale])
                .with(20, &[Duplicated, SlowRead])
                .with(10, &[BusyWriter, ListedAfterRemoval, Resize]),
            2 => Self::named("lossy", 20)
                .with(30, &[Dropped])
                .with(10, &[Late, Reordered, SlowRead, NilSandbox, NilStatuses])
                .with(3, &[Disconnect, ReaderPanics])
                .with(5, &[EmptyElement, SecondSubscriber, WrongLabel]),
            3 => Self::named("failing calls", 20)
                .with(40, &[SlowRead])
                .with(25, &[ListFails])
                .with(15, &[InspectionFails, InspectionPartial])
                .with(
                    10,
                    &[UnknownInRead, Dropped, StatusReadFails, ListLost, Resize],
                )
                .with(5, &[InspectionHangs, ListHangs])
                .with(2, &[Disconnect]),
            // Most lists and inspections fail at once while events continue.
            4 => Self::named("failing lists", 3)
                .with(90, &[ListFails])
                .with(70, &[InspectionFails]),
            5 => Self::named("restarts", 10)
                .with(6, &[Restart])
                .with(10, &[WrongLabel])
                .with(5, &[Disconnect])
                .with(20, &[SlowRead]),
            6 => Self::named("silent streams", 3)
                .with(6, &[SilentStream])
                .with(4, &[SecondSubscriber, Disconnect])
                .with(1, &[ReaderPanics]),
            7 => Self::named("hanging calls", 3)
                .with(8, &[HungPod])
                .with(3, &[AllPodsHung, ListOutage]),
            8 => Self::named("bursts", 3)
                .with(12, &[Burst])
                .with(8, &[BusyWriter])
                .with(10, &[Reordered]),
            _ => Self::named("mixed", rng.pick(&[3, 50, 200]))
                .with(20, &[Late, Stale, SlowRead, Resize])
                .with(15, &[Dropped, Duplicated])
                .with(
                    10,
                    &[Reordered, InvalidTimestamp, ListFails, InspectionFails],
                )
                .with(8, &[NilSandbox, NilStatuses, InspectionPartial])
                .with(
                    5,
                    &[MissingMetadata, UnknownInEvent, UnknownInRead, BusyWriter],
                )
                .with(
                    5,
                    &[StatusReadFails, ListedAfterRemoval, WaiterCancels, ListLost],
                )
                .with(3, &[Disconnect, UnknownEventType, EmptyElement])
                .with(2, &[ClockStep, InspectionHangs, Burst, Restart])
                .with(
                    1,
                    &[
                        SilentStream,
                        SecondSubscriber,
                        HungPod,
                        AllPodsHung,
                        ListOutage,
                        ReaderPanics,
                    ],
                )
                .with(1, &[ListHangs])
                .with(if rng.percent(40) { 4 } else { 0 }, &[FalseEvent]),
        };
        let without: &[Fault] = match runtime {
            RuntimeKind::Containerd17 => &[ListedAfterRemoval, EmptyElement],
            RuntimeKind::Containerd2 => &[SecondSubscriber, EmptyElement],
            RuntimeKind::Crio | RuntimeKind::CrioDisabled => {
                &[ListedAfterRemoval, SecondSubscriber]
            }
            RuntimeKind::Unimplemented | RuntimeKind::Polled => &[SecondSubscriber, EmptyElement],
        };
        fault_profile.with(0, without)
    }

    /// Whether every event arrives complete and in time.
    pub fn loses_nothing(&self) -> bool {
        use Fault::*;
        let harmless = [
            Late,
            Reordered,
            Duplicated,
            Stale,
            SlowRead,
            BusyWriter,
            ListedAfterRemoval,
            Resize,
        ];
        let harmless = |f| harmless.contains(&f) || matches!(f, WaiterCancels | Burst);
        self.faults().all(harmless)
    }

    /// Whether events may report something that did not happen.
    pub const fn false_events(&self) -> bool {
        self.percent(Fault::FalseEvent) > 0
    }
}
