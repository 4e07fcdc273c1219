//! Starts what is measured, tells it what to do, and writes down what came of it.

mod child;
mod groups;
mod measure;
mod real;
mod run;
mod schedule;
mod signals;
mod trouble;
mod workers;

use serde::{Deserialize, Serialize};

use crate::payload::Profile;
use crate::subject::Kind;

pub use real::{RealSample, Settings as Real, real};
pub use run::Run;
pub use schedule::{Mode, run};

/// What is done to a node and its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "workload")]
pub enum Workload {
    /// W1: full lists back to back on a node where nothing happens.
    Relists {
        /// How many.
        relists: u32,
    },
    /// W1: a node where nothing happens, as long as that. All subjects of a repetition at once.
    Idle {
        /// For how long.
        seconds: u32,
    },
    /// W2: containers are restarted.
    Restarts {
        /// Events a second.
        rate: u32,
        /// For how long.
        seconds: u32,
    },
    /// W2: pods come and go.
    Lifecycles {
        /// Pods in ten seconds.
        per_ten_seconds: u32,
        /// For how long.
        seconds: u32,
    },
    /// W3: every container of every pod ends at once.
    Storm,
    /// As many events as are taken, as fast as they are.
    Flood {
        /// How many.
        events: u32,
    },
    /// W5: every connection is cut, and a container ends before anybody is back.
    Cut {
        /// How long nobody listens, in ms; 0 if the runtime lives on.
        down_ms: u32,
    },
    /// W5: the event stream alone breaks off (RST_STREAM), and a container ends before anybody is
    /// back.
    Reset,
    /// W3 under a runtime that drops the events that a subscriber does not take in time (CRI-O):
    /// every container of every pod ends at once.
    Dropping,
    /// W6: restarts of which some events are never told, and some twice.
    Lossy {
        /// Of a million, each.
        per_million: u32,
    },
    /// W6: restarts of which some events are told late, and so out of order.
    Late {
        /// Of a million.
        per_million: u32,
        /// How late at most, in ms.
        by_ms: u32,
    },
    /// What is held for each pod more, and allocated for each relist.
    Memory,
    /// W8: restarts, while nobody takes what the subject announces.
    Stalled {
        /// Events a second.
        rate: u32,
        /// For how long.
        seconds: u32,
    },
    /// Reads of the cache, on a quiet node and on a busy one.
    Reads,
    /// W4: one pod ends untold and its status calls never answer; 100 events/s of the others.
    HungPod {
        /// For how long.
        seconds: u32,
    },
    /// W4: 100 events/s, and a list of the containers takes so much longer.
    SlowList {
        /// In ms.
        list_ms: u32,
        /// For how long.
        seconds: u32,
    },
    /// W5: the event stream stands, and tells nothing any more, while a pod ends.
    Stall {
        /// How long nothing has happened before, so that lists are rare.
        settled: u32,
    },
    /// W5: the runtime's process stops, and its socket and connections stay (half-open).
    Frozen {
        /// How long nothing has happened before.
        settled: u32,
    },
    /// The same, of a subject that asks for a sign of life once a second.
    Probed {
        /// How long nothing has happened before.
        settled: u32,
    },
    /// W9: 100 events/s, while every connection is cut once a second.
    Flapping {
        /// For how long.
        seconds: u32,
    },
    /// Pod workers restart pods of their own and read each after every call.
    OwnWrites {
        /// How many pods at once.
        parallel: u32,
        /// How often each is restarted, with four calls.
        times: u32,
    },
    /// Pod workers create, stop and remove pods.
    Churn {
        /// How many pods come in 100 seconds.
        per_hundred_seconds: u32,
        /// For how long.
        seconds: u32,
    },
    /// W7: full lists back to back, with containers that have ended long ago.
    Bloat {
        /// How many lists.
        relists: u32,
        /// How many containers.
        ended: u32,
    },
}

impl Workload {
    /// For how many seconds it goes on, if that is given.
    #[must_use]
    pub const fn seconds(&self) -> Option<u32> {
        match *self {
            Self::Idle { seconds }
            | Self::Restarts { seconds, .. }
            | Self::Lifecycles { seconds, .. }
            | Self::Stalled { seconds, .. }
            | Self::HungPod { seconds }
            | Self::SlowList { seconds, .. }
            | Self::Churn { seconds, .. }
            | Self::Flapping { seconds } => Some(seconds),
            _ => None,
        }
    }

    /// Whether announcements cause runs of pod workers. They do not where a cache or a list alone is
    /// measured, nor at rates that no kubelet could follow.
    #[must_use]
    pub const fn has_workers(&self) -> bool {
        match *self {
            Self::Restarts { rate, .. } => rate <= 1000,
            Self::Lifecycles { .. }
            | Self::Idle { .. }
            | Self::Storm
            | Self::Lossy { .. }
            | Self::Late { .. }
            | Self::HungPod { .. }
            | Self::SlowList { .. }
            | Self::Flapping { .. } => true,
            _ => false,
        }
    }
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Point {
    /// What is done.
    #[serde(flatten)]
    pub workload: Workload,
    /// To whom.
    pub subject: Kind,
    /// How many pods there are.
    pub pods: u32,
    /// How many containers each has.
    pub containers: u32,
    /// How much text they carry.
    pub profile: Profile,
    /// How long each call takes, in ms.
    pub latency: u64,
    /// How many rows a page of a list has, if the runtime offers streaming lists.
    pub page: Option<usize>,
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            workload,
            subject,
            pods,
            containers,
            profile,
            latency,
            ..
        } = self;
        write!(
            f,
            "{} · {pods} pods × {containers}, {profile}",
            subject.name()
        )?;
        if *latency > 0 {
            write!(f, ", {latency} ms a call")?;
        }
        write!(f, " · {workload:?}")
    }
}
