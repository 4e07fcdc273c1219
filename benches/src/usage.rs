//! What a process has used of the machine.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde::{Deserialize, Serialize};

/// What a process has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of all its threads, user and system, in ns.
    pub cpu: i64,
    /// Context switches because it waited: how often it was woken up.
    pub woken: i64,
    /// Context switches because another one's turn had come.
    pub preempted: i64,
    /// The most resident memory that it ever had, in KiB.
    pub peak_kib: i64,
    /// Its resident memory now, in KiB; 0 where the system does not tell.
    pub resident_kib: i64,
}

impl Usage {
    /// What this process has used so far.
    #[must_use]
    pub fn of_self() -> Self {
        // It cannot fail for the process itself.
        getrusage(UsageWho::RUSAGE_SELF).map_or_else(
            |_| Self::default(),
            |of| Self {
                cpu: of.user_time().num_nanoseconds() + of.system_time().num_nanoseconds(),
                woken: of.voluntary_context_switches(),
                preempted: of.involuntary_context_switches(),
                peak_kib: of.max_rss(),
                resident_kib: resident_kib(),
            },
        )
    }

    /// What was used since.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            cpu: self.cpu - before.cpu,
            woken: self.woken - before.woken,
            preempted: self.preempted - before.preempted,
            peak_kib: self.peak_kib,
            resident_kib: self.resident_kib,
        }
    }
}

fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().split(' ').next()?.parse().ok());
    kib.unwrap_or(0)
}
