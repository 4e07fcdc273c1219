//! What the reconciler counts. Plain numbers since the start; the driver makes metrics of them.

use crate::pending::ExpectedEvent;
use crate::scheduler::Cause;

/// Numbers since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Counters {
    /// Events taken in, by type: created, started, stopped, deleted, other.
    pub events: [u64; 5],
    /// Events without a sandbox status (containerd 1.7 sends a sandbox's DELETED so).
    pub events_without_sandbox: u64,
    /// Events that lacked something, so that their pod was read.
    pub events_incomplete: u64,
    /// Events whose stamp was no plausible news.
    pub events_implausible: u64,
    /// Events that never arrived about what reads showed, by [`ExpectedEvent`]. Some of them may
    /// have been withdrawn.
    pub missed: [u64; ExpectedEvent::ALL.len()],
    /// Missed events that arrived within a minute after they had been counted.
    pub missed_withdrawn: u64,
    /// Reads that contradicted what was recorded.
    pub contradictions: u64,
    /// Recorded states that reads have overruled.
    pub overruled: u64,
    /// Full lists asked for.
    pub lists: u64,
    /// Full lists that failed.
    pub lists_failed: u64,
    /// Inspections asked for.
    pub inspections: u64,
    /// Inspections asked for, by [`Cause`]; one may have several.
    pub inspections_by_cause: [u64; Cause::ALL.len()],
    /// Inspections that failed.
    pub inspections_failed: u64,
    /// Inspections that were cancelled because too many were overdue.
    pub inspections_cancelled: u64,
    /// Single statuses read again because the reason of an exit may arrive late.
    pub exit_reads: u64,
    /// Statuses read as probes of the runtime.
    pub probes: u64,
    /// Ids without a pod because no pod of theirs was known.
    pub orphans: u64,
    /// Ids without a pod that were dropped because there were too many.
    pub orphans_dropped: u64,
    /// Tombstones there are.
    pub tombstones: u64,
    /// Tombstones dropped before their time because there were too many.
    pub tombstones_dropped: u64,
    /// Standing streams that were lost.
    pub streams_lost: u64,
    /// Standing streams that were ended by us, because they reported nothing of what reads showed.
    pub streams_renewed: u64,
}
