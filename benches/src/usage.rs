//! The resource usage of a process.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde::{Deserialize, Serialize};

/// The resource usage of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The CPU time of all threads, user and system, in ns.
    pub cpu: i64,
    /// Voluntary context switches, which is the number of wake-ups.
    pub woken: i64,
    /// The peak of resident memory, in KiB.
    pub peak_kib: i64,
    /// The current resident memory, in KiB; 0 if the system does not report it.
    pub resident_kib: i64,
}

impl Usage {
    /// Returns the usage of this process since its start.
    #[must_use]
    pub fn of_self() -> Self {
        let resident = pleg_tests::usage::status(std::process::id(), "VmRSS:");
        // This cannot fail for the calling process.
        getrusage(UsageWho::RUSAGE_SELF).map_or_else(
            |_| Self::default(),
            |of| Self {
                cpu: of.user_time().num_nanoseconds() + of.system_time().num_nanoseconds(),
                woken: of.voluntary_context_switches(),
                peak_kib: of.max_rss(),
                resident_kib: resident.map_or(0, u64::cast_signed),
            },
        )
    }

    /// Returns the usage since `before`.
    #[must_use]
    pub const fn since(&self, before: &Self) -> Self {
        Self {
            cpu: self.cpu - before.cpu,
            woken: self.woken - before.woken,
            peak_kib: self.peak_kib,
            resident_kib: self.resident_kib,
        }
    }
}
