//! Starts the processes of a measurement, sends them orders, and records the results.

mod child;
mod faults;
mod groups;
mod measure;
mod real;
mod run;
mod schedule;
mod signals;
mod workers;

use serde::{Deserialize, Serialize};

use crate::subject::Kind;

pub use real::{RealSample, Settings as Real, real};
pub use run::Run;
pub use schedule::{Mode, run};

/// A workload for a node and its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "workload")]
pub enum Workload {
    /// Full lists one after the other on an idle node.
    Relists {
        /// The number of lists.
        relists: u32,
    },
    /// An idle node. All subjects of a repetition run in parallel.
    Idle {
        /// The duration.
        seconds: u32,
    },
    /// Containers are restarted.
    Restarts {
        /// Events per second.
        rate: u32,
        /// The duration.
        seconds: u32,
    },
    /// Pods are created and removed.
    Lifecycles {
        /// New pods in ten seconds.
        per_ten_seconds: u32,
        /// The duration.
        seconds: u32,
    },
    /// Every container of every pod exits at once.
    Storm,
    /// Events as fast as they are received.
    Flood {
        /// The number of events.
        events: u32,
    },
    /// Every connection is cut, and a container exits before a client reconnects.
    Cut {
        /// How long the runtime does not listen, in ms; 0 for no downtime.
        down_ms: u32,
    },
    /// Only the event stream is reset (RST_STREAM), and a container exits before a client subscribes
    /// again.
    Reset,
    /// Every container of every pod exits at once, and the runtime drops events that do not fit into a
    /// subscriber's queue (CRI-O).
    Dropping,
    /// Restarts. Some events are not sent, and some are sent twice.
    Lossy {
        /// Lost events, and duplicated events, per million.
        per_million: u32,
    },
    /// Restarts. Some events are sent late, and therefore out of order.
    Late {
        /// Late events per million.
        per_million: u32,
        /// The maximum delay, in ms.
        by_ms: u32,
    },
    /// The memory of each additional pod, and the allocations of each relist.
    Memory,
    /// Restarts, while the consumer does not read announcements.
    #[serde(rename = "stalled")]
    StalledConsumer {
        /// Events per second.
        rate: u32,
        /// The duration.
        seconds: u32,
    },
    /// Reads of the cache, on an idle node and on a busy node.
    Reads,
    /// One pod stops without events, and its status calls never return; 100 events/s of the other
    /// pods.
    HungPod {
        /// The duration.
        seconds: u32,
    },
    /// 100 events/s, with slow lists of containers.
    SlowList {
        /// The additional duration of a list, in ms.
        list_ms: u32,
        /// The duration.
        seconds: u32,
    },
    /// The event stream stays open and delivers nothing, and a pod ends.
    #[serde(rename = "stall")]
    SilentStream {
        /// How long the node is idle before, in seconds, so that lists are rare.
        settled: u32,
    },
    /// The runtime's process is stopped; its socket and connections stay open (half-open).
    Frozen {
        /// How long the node is idle before, in seconds.
        settled: u32,
    },
    /// As `Frozen`, with a subject that probes the runtime once a second.
    Probed {
        /// How long the node is idle before, in seconds.
        settled: u32,
    },
    /// 100 events/s, while every connection is cut once a second.
    Flapping {
        /// The duration.
        seconds: u32,
    },
    /// Pod workers restart their pods, and read them after every call.
    OwnWrites {
        /// The number of pods.
        parallel: u32,
        /// The number of restarts of each pod, with four calls each.
        times: u32,
    },
    /// Pod workers create, stop and remove pods.
    Churn {
        /// New pods in 100 seconds.
        per_hundred_seconds: u32,
        /// The duration.
        seconds: u32,
    },
    /// Full lists one after the other, with many exited containers.
    #[serde(rename = "bloat")]
    ExitedContainers {
        /// The number of lists.
        relists: u32,
        /// The number of exited containers.
        #[serde(rename = "ended")]
        exited: u32,
    },
}

impl Workload {
    /// Returns the duration in seconds, if the workload has one.
    #[must_use]
    pub const fn seconds(&self) -> Option<u32> {
        match *self {
            Self::Idle { seconds }
            | Self::Restarts { seconds, .. }
            | Self::Lifecycles { seconds, .. }
            | Self::StalledConsumer { seconds, .. }
            | Self::HungPod { seconds }
            | Self::SlowList { seconds, .. }
            | Self::Churn { seconds, .. }
            | Self::Flapping { seconds } => Some(seconds),
            _ => None,
        }
    }

    /// Whether announcements cause runs of pod workers. They do not if only a cache or a list is measured,
    /// or at rates that are too high for a kubelet.
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

/// A point of measurement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Point {
    /// The workload.
    #[serde(flatten)]
    pub workload: Workload,
    /// The subject.
    pub subject: Kind,
    /// The number of pods.
    pub pods: u32,
    /// The number of containers per pod.
    pub containers: u32,
    /// The duration of each call, in ms.
    pub latency: u64,
    /// The number of rows per page, if the runtime offers streaming lists.
    pub page: Option<usize>,
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            workload,
            subject,
            pods,
            containers,
            latency,
            ..
        } = self;
        write!(f, "{} · {pods} pods × {containers}", subject.name())?;
        if *latency > 0 {
            write!(f, ", {latency} ms per call")?;
        }
        write!(f, " · {workload:?}")
    }
}
