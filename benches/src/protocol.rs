//! The protocol between the harness and a subject: commands on stdin, answers on stdout, one JSON value per
//! line. Times are wall-clock times in ns.

use std::collections::BTreeMap;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde::{Deserialize, Serialize};

use crate::LiveBytes;

/// A command to a subject, which replies with an [`Answer`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "order")]
pub(crate) enum Order {
    /// Returns the resource usage.
    Use,
    /// Starts to record the times at which the subject sees changes.
    Record,
    /// Returns the changes that the subject saw since `Record`, or since the last `Seen`.
    Seen,
    /// Waits until the cache shows the expected pods. The subject answers at once, and again when the wait ends.
    Await {
        expected: Vec<ExpectedPod>,
        /// The number of CRI events for which `runtime-alone`, which has no cache, waits instead of pods.
        events: usize,
        seconds: f64,
    },
    /// Runs pod workers that restart their pods, and read the pod after every call. Returns how long the reads took.
    Restart { workers: u32, times: u32 },
    /// Starts pod workers that create, stop and remove pods.
    Churn { pods_per_second: f64, seconds: f64 },
    /// Returns the durations of all reads that the pod workers of `Churn` made since the last `Reads`.
    Reads,
    /// Reads a pod like a worker that has just changed the pod. Returns how long the read took.
    ReadOwn { uid: String },
}

/// The answer to a command. A field stays empty if the answer to this command does not need it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// The resource usage since the start.
    pub(crate) usage: Usage,
    /// The number of bytes in use, if the executable counts them.
    pub(crate) live_bytes: Option<u64>,
    /// The time at which the cache showed the expected pods; `None` if it did not show them in time.
    pub(crate) at: Option<i64>,
    pub(crate) seen: Vec<ContainerChange>,
    /// The duration of each read of a pod worker, in ns.
    pub(crate) reads: Vec<u64>,
    /// The number of reads in which a pod worker did not see its own change.
    pub(crate) wrong_reads: u64,
}

impl Answer {
    pub(crate) fn now(live_bytes: LiveBytes) -> Self {
        Self {
            usage: Usage::of(UsageWho::RUSAGE_SELF),
            live_bytes: live_bytes(),
            ..Self::default()
        }
    }
}

/// A pod that the subject's cache must show.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ExpectedPod {
    pub(crate) uid: String,
    /// For each container id: true if the cache must show the container as running, false if as exited.
    pub(crate) running: BTreeMap<String, bool>,
}

/// The death or the start of a container.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ContainerChange {
    pub(crate) id: String,
    pub(crate) died: bool,
    /// In changes by the runtime: when the container died or started. In answers: when the subject saw this.
    pub(crate) at: i64,
}

/// The resource usage of a process or thread.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// The CPU time, user and system, in ns.
    pub(crate) cpu: i64,
    /// The number of voluntary context switches, that is, of wake-ups.
    pub(crate) woken: i64,
    /// The peak of resident memory, in KiB; 0 if the system does not report it.
    pub(crate) peak_kib: i64,
    /// The current resident memory, in KiB; 0 if the system does not report it.
    pub(crate) resident_kib: i64,
}

impl Usage {
    /// The resource usage of this process or of this thread, since its start.
    pub(crate) fn of(who: UsageWho) -> Self {
        let kib = |line| {
            let kib = pleg_tests::usage::status(std::process::id(), line);
            kib.map_or(0, u64::cast_signed)
        };
        // getrusage cannot fail for the calling process or thread.
        getrusage(who).map_or_else(
            |_| Self::default(),
            |of| Self {
                cpu: of.user_time().num_nanoseconds() + of.system_time().num_nanoseconds(),
                woken: of.voluntary_context_switches(),
                // Not `max_rss`, which a process inherits from its parent.
                peak_kib: kib("VmHWM:"),
                resident_kib: kib("VmRSS:"),
            },
        )
    }

    pub(crate) const fn since(&self, before: &Self) -> Self {
        Self {
            cpu: self.cpu - before.cpu,
            woken: self.woken - before.woken,
            ..*self
        }
    }
}
