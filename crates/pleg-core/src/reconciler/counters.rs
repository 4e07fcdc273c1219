//! The reconciler's counters since the start, from which the driver makes metrics.

use crate::schedule::cause::Cause;
use crate::state::reports::ExpectedEvent;

/// Counts since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Counters {
    /// Events received, by type: created, started, stopped, deleted, other.
    pub events: [u64; 5],
    /// Events without a sandbox status (containerd 1.7 sends a sandbox's DELETED without one).
    pub events_without_sandbox: u64,
    /// Incomplete events, which caused an inspection of their pod.
    pub events_incomplete: u64,
    /// Events whose timestamp was not plausible.
    pub events_implausible: u64,
    /// Missed events: reads showed a state, and the event for it never arrived. By
    /// [`ExpectedEvent`]. Some of them may have been withdrawn.
    pub missed: [u64; ExpectedEvent::ALL.len()],
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
    /// Inspections requested, by [`Cause`]; one may have several causes.
    pub inspections_by_cause: [u64; Cause::ALL.len()],
    /// Inspections that failed.
    pub inspections_failed: u64,
    /// Inspections that were cancelled because too many were overdue.
    pub inspections_cancelled: u64,
    /// Status calls because the reason of an exit may arrive late.
    pub exit_reads: u64,
    /// Status calls that were probes of the runtime.
    pub probes: u64,
    /// Ids named by an event whose pod was not known.
    pub orphans: u64,
    /// Such ids that were dropped because there were too many.
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
