//! The constants of the core, each with the reason for its value.
//!
//! What users may change is in [`Settings`](crate::Settings).

use std::time::Duration;

const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

// ------------------------------------------------------------------------------- ends, and reads that lag

/// For this time after an end was recorded, no read undoes it. containerd 2.4 listed a container as running
/// after `StopContainer` had returned, by milliseconds.
pub(crate) const END_IS_FINAL_FOR: Duration = seconds(10);

/// Pauses between reads of a pod that showed less than an event had reported. After the last one only relists
/// look. Their sum exceeds [`END_IS_FINAL_FOR`], so the last read may undo an end that was wrong.
pub(crate) const LOOK_AGAIN: &[Duration] = &[
    millis(100),
    millis(300),
    seconds(1),
    seconds(3),
    seconds(10),
];

// ---------------------------------------------------------------------------------------------- pod reads

/// Pause between an event other than STOPPED and the read that it causes. On a node with a kubelet nearly all
/// beginnings and removals are the kubelet's own doing: its worker reads within this time, and that read serves.
pub(crate) const READ_AFTER: Duration = millis(250);

/// If more pods than this wait for a read that no caller needs, one relist serves them all: it costs two calls,
/// and each pod read costs at least two.
pub(crate) const CROWD: usize = 16;

/// Retries of a failed call start after this pause, which doubles with each failure...
pub(crate) const BACKOFF_FIRST: Duration = seconds(1);
/// ... up to this one.
pub(crate) const BACKOFF_MOST: Duration = seconds(60);

/// The pause before the retry of a call that failed while the runtime as a whole fails: the pod is not at fault.
pub(crate) const OUTAGE_RETRY: Duration = seconds(1);

// ------------------------------------------------------------------------------------------------ relists

/// The shortest pause between relists that events cause.
pub(crate) const HINT_RELIST_PERIOD: Duration = seconds(1);

/// A relist that took less than this shows that the runtime is not slow any more.
pub(crate) const QUICK_RELIST: Duration = seconds(10);

// ------------------------------------------------------------------------------------------ announcements

/// The time for which a new code or reason of a removed id is still announced. On containerd 1.7, STOPPED arrives
/// up to 180 ms after the removal; a consumer that waits longer has decided without the code.
pub(crate) const LATE_CODE: Duration = seconds(60);

/// The longest time for which Died waits for its exit code.
pub(crate) const WAIT_FOR_CODE: Duration = seconds(60);

/// The pause before the status of a container that exited with an error is read once more: containerd before 2.3
/// reports OOMKilled after the exit.
pub(crate) const LATE_REASON: Duration = seconds(2);

// ----------------------------------------------------------------------------------------------- the stream

/// A call counts as an open stream after this time: runtimes that refuse the call do so at once.
pub(crate) const STREAM_STANDS: Duration = seconds(1);

/// The time for which an event may arrive after a read has shown the change that it reports. CRI-O sends
/// STOPPED up to 4 s late, because it waits for its plugins.
pub(crate) const EVENT_GRACE: Duration = seconds(10);

/// A stream that lost an event and has delivered nothing for this time since then is subscribed again.
pub(crate) const MUTE_FOR: Duration = seconds(600);

/// The number of whole minutes, in addition to the present one, over which losses are counted.
pub(crate) const LOSS_MINUTES: u64 = 10;

// -------------------------------------------------------------------------------------------------- outages

/// A call that is unanswered for this time causes a `Version` call, which shows whether the runtime as a whole
/// hangs or only what was asked for.
pub(crate) const CALL_IS_SLOW: Duration = seconds(1);

/// The deadline of `Version`, which does no work in any runtime.
pub(crate) const VERSION_DEADLINE: Duration = seconds(5);

// --------------------------------------------------------------------------------------------------- health

/// The node is not ready if the writer's work, or the end of a call, is overdue by more than this.
pub(crate) const OVERDUE: Duration = seconds(5);

/// A relist that takes longer than this is a degraded reason.
pub(crate) const RELIST_SLOW: Duration = seconds(3);

/// Events that wait, or a pod read that takes, longer than this are degraded reasons.
pub(crate) const POD_SLOW: Duration = seconds(2);

// --------------------------------------------------------------------------------------------------- bounds

/// The most ids of which anything is stored that is not published: hints, arrived events, and ids that have left
/// the cache. Nodes with 20,000 containers exist, and a runtime replays a thousand events.
pub(crate) const SUBJECTS: usize = 100_000;
