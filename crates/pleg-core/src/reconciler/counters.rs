//! The reconciler's counters since the start, from which the driver makes metrics.

use std::fmt;
use std::ops::{Index, IndexMut};

use crate::schedule::cause::Cause;
use crate::state::reports::ExpectedEvent;
use crate::types::event::EventType;

/// Counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Counters {
    /// Events received.
    pub events: EventCounts,
    /// Events without a sandbox status (containerd 1.7 sends a sandbox's DELETED without one).
    pub events_without_sandbox: u64,
    /// Incomplete events, which caused an inspection of their pod.
    pub events_incomplete: u64,
    /// Events whose timestamp was not plausible.
    pub events_implausible: u64,
    /// Missed events: reads showed a state, and the event for it never arrived. Some of them may have
    /// been withdrawn.
    pub missed: MissedCounts,
    /// Missed events that were withdrawn, because they arrived within a minute after they were
    /// counted.
    pub missed_withdrawn: u64,
    /// Reads that contradicted a recorded state.
    pub contradictions: u64,
    /// Recorded states that reads have overruled.
    pub overruled: u64,
    /// Full lists requested.
    pub lists: u64,
    /// Full lists that failed.
    pub lists_failed: u64,
    /// Inspections requested.
    pub inspections: u64,
    /// Inspections requested, by cause; one may have several causes.
    pub inspections_by_cause: CauseCounts,
    /// Inspections that failed.
    pub inspections_failed: u64,
    /// Inspections that were cancelled because too many were overdue.
    pub inspections_cancelled: u64,
    /// Status calls because the reason of an exit may arrive late.
    pub exit_reads: u64,
    /// Status calls that were probes of the runtime.
    pub probes: u64,
    /// Events about an unknown id whose pod was not known either.
    pub orphans: u64,
    /// Ids of such events that were dropped because there were too many.
    pub orphans_dropped: u64,
    /// Tombstones that exist now.
    pub tombstones: u64,
    /// Tombstones dropped early because there were too many.
    pub tombstones_dropped: u64,
    /// Streams that were lost.
    pub streams_lost: u64,
    /// Streams that the generator ended because they reported no event while reads showed changes.
    pub streams_renewed: u64,
}

/// Counts of received events, by type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct EventCounts {
    /// Of type created.
    pub created: u64,
    /// Of type started.
    pub started: u64,
    /// Of type stopped.
    pub stopped: u64,
    /// Of type deleted.
    pub deleted: u64,
    /// Of an unknown type.
    pub other: u64,
}

impl EventCounts {
    /// The sum of all types.
    pub const fn total(&self) -> u64 {
        self.created + self.started + self.stopped + self.deleted + self.other
    }

    pub(crate) const fn add(&mut self, event: EventType) {
        let count = match event {
            EventType::Created => &mut self.created,
            EventType::Started => &mut self.started,
            EventType::Stopped => &mut self.stopped,
            EventType::Deleted => &mut self.deleted,
            EventType::Other(_) => &mut self.other,
        };
        *count += 1;
    }
}

/// Counts of missed events. Indexed by [`ExpectedEvent`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MissedCounts {
    /// STARTED of containers.
    pub container_started: u64,
    /// STOPPED of containers.
    pub container_stopped: u64,
    /// CREATED or STARTED of sandboxes.
    pub sandbox_started: u64,
    /// STOPPED of sandboxes.
    pub sandbox_stopped: u64,
}

impl MissedCounts {
    /// The sum of all kinds.
    pub const fn total(&self) -> u64 {
        self.container_started
            + self.container_stopped
            + self.sandbox_started
            + self.sandbox_stopped
    }
}

impl Index<ExpectedEvent> for MissedCounts {
    type Output = u64;

    fn index(&self, event: ExpectedEvent) -> &u64 {
        match event {
            ExpectedEvent::ContainerStarted => &self.container_started,
            ExpectedEvent::ContainerStopped => &self.container_stopped,
            ExpectedEvent::SandboxStarted => &self.sandbox_started,
            ExpectedEvent::SandboxStopped => &self.sandbox_stopped,
        }
    }
}

impl IndexMut<ExpectedEvent> for MissedCounts {
    fn index_mut(&mut self, event: ExpectedEvent) -> &mut u64 {
        match event {
            ExpectedEvent::ContainerStarted => &mut self.container_started,
            ExpectedEvent::ContainerStopped => &mut self.container_stopped,
            ExpectedEvent::SandboxStarted => &mut self.sandbox_started,
            ExpectedEvent::SandboxStopped => &mut self.sandbox_stopped,
        }
    }
}

/// Counts of inspections. Indexed by [`Cause`].
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct CauseCounts([u64; Cause::ALL.len()]);

impl Index<Cause> for CauseCounts {
    type Output = u64;

    fn index(&self, cause: Cause) -> &u64 {
        &self.0[cause as usize]
    }
}

impl IndexMut<Cause> for CauseCounts {
    fn index_mut(&mut self, cause: Cause) -> &mut u64 {
        &mut self.0[cause as usize]
    }
}

impl fmt::Debug for CauseCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = Cause::ALL.map(|cause| (cause.as_str(), self[cause]));
        f.debug_map()
            .entries(counts.into_iter().filter(|(_, n)| *n > 0))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_of_events_is_the_sum_of_all_types() {
        let mut counts = EventCounts::default();
        let types = [
            EventType::Created,
            EventType::Started,
            EventType::Stopped,
            EventType::Deleted,
            EventType::Other(9),
        ];
        for (n, event) in types.into_iter().enumerate() {
            (0..1 << n).for_each(|_| counts.add(event));
        }
        assert_eq!(counts.total(), 0b1_1111);
    }

    #[test]
    fn missed_events_are_counted_by_kind() {
        let mut counts = MissedCounts::default();
        let kinds = [
            ExpectedEvent::ContainerStarted,
            ExpectedEvent::ContainerStopped,
            ExpectedEvent::SandboxStarted,
            ExpectedEvent::SandboxStopped,
        ];
        for (n, event) in kinds.into_iter().enumerate() {
            counts[event] += 1 << n;
        }
        assert_eq!(kinds.map(|event| counts[event]), [1, 2, 4, 8]);
        assert_eq!(counts.container_stopped, 2);
        assert_eq!(counts.total(), 15);
    }
}
