//! The protocol between the harness and its child processes: orders on stdin and answers on stdout, one
//! JSON value per line. Times are wall-clock times in ns.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _};

use anyhow::{Context as _, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::node::{Changes, ExpectedPod};
use crate::usage::Usage;

/// Orders to the runtime.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "order")]
pub enum RuntimeOrder {
    /// Plans changes. Answered by `Planned`.
    Plan {
        /// The changes to plan.
        #[serde(flatten)]
        changes: Changes,
    },
    /// Applies the plan and sends its events. Answered by `Played` after the last event was sent.
    Play(Play),
    /// Returns the changes of the last play or cut. Answered by `History`.
    History,
    /// Sets the faults of calls. Answered by `Ready`.
    SetCallFaults {
        /// The faults.
        #[serde(flatten)]
        faults: CallFaults,
    },
    /// Cuts every connection, and then applies the plan without events. Answered by `Cut`.
    Cut {
        /// The time of the cut.
        at: i64,
        /// How long the runtime does not listen after the cut, in ms; 0 for no downtime.
        down_ms: u64,
        /// Whether only the event streams are reset, and connections are kept.
        reset: bool,
    },
    /// Waits, and returns the usage and calls of that time. Answered by `Counted`.
    Window {
        /// The duration.
        seconds: f64,
    },
    /// Returns the usage and calls since the start. Answered by `Counted`.
    Count,
    /// Returns what the cache must show. Answered by `Expected`.
    Expected,
}

/// How a plan is applied.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Play {
    /// Events per second; 0 for as fast as they are received.
    pub rate: f64,
    /// The faults of event delivery.
    #[serde(flatten)]
    pub faults: EventFaults,
    /// The interval at which every connection is cut, in ms; 0 for never.
    pub cut_every: u64,
}

/// Faults of event delivery, each in events per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventFaults {
    /// Events that are not sent.
    pub dropped: u32,
    /// Events that are sent twice.
    pub duplicated: u32,
    /// Events that are sent late, and therefore out of order, also within a pod.
    pub late: u32,
    /// The maximum delay of a late event, in ms.
    pub late_ms: u32,
}

/// Faults of the runtime's calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFaults {
    /// Status calls for the first pod and its containers never return.
    pub hung_pod: bool,
    /// The additional duration of each call, in ms.
    pub call_ms: u64,
    /// The additional duration of a full list of containers, in ms.
    pub slow_list: u64,
}

/// A change of one pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodChange {
    /// The time of the change.
    pub at: i64,
    /// What the cache must show of the pod after the change.
    pub pod: ExpectedPod,
}

/// Answers of the runtime.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "answer")]
pub enum RuntimeAnswer {
    /// The runtime listens, or the order is done.
    Ready,
    /// The changes of the last play or cut.
    History {
        /// The changed pods, before the first change.
        before: Vec<ExpectedPod>,
        /// The changes.
        changes: Vec<PodChange>,
    },
    /// The plan is ready.
    Planned {
        /// The number of events.
        events: u64,
        /// What the cache must show after the plan.
        expected: Vec<ExpectedPod>,
    },
    /// The plan was applied.
    Played(Played),
    /// The connections were cut.
    Cut {
        /// The time of the cut.
        at: i64,
    },
    /// The usage and calls.
    Counted(Counted),
    /// What the cache must show.
    Expected {
        /// Every pod.
        expected: Vec<ExpectedPod>,
    },
}

/// The usage of the runtime, and the calls that it received.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// The resource usage.
    pub usage: Usage,
    /// The number of calls by method.
    pub calls: BTreeMap<String, u64>,
}

impl Counted {
    /// Returns the usage and calls since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let calls = self.calls.iter().map(|(method, now)| {
            (
                method.clone(),
                now - before.calls.get(method).copied().unwrap_or(0),
            )
        });
        Self {
            usage: self.usage.since(&before.usage),
            calls: calls.collect(),
        }
    }

    /// Returns the number of calls of these methods.
    #[must_use]
    pub fn of(&self, methods: &[&str]) -> u64 {
        methods.iter().filter_map(|m| self.calls.get(*m)).sum()
    }

    /// Returns the number of full lists, unary and streaming.
    #[must_use]
    pub fn lists(&self) -> u64 {
        self.of(&[
            "ListPodSandbox",
            "ListContainers",
            "StreamPodSandboxes",
            "StreamContainers",
        ])
    }

    /// Returns the number of list and status calls.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.lists() + self.of(&["PodSandboxStatus", "ContainerStatus"])
    }

    /// Returns the number of all calls except GetContainerEvents.
    #[must_use]
    pub fn unary(&self) -> u64 {
        self.calls
            .iter()
            .filter(|(m, _)| *m != "GetContainerEvents")
            .map(|(_, n)| n)
            .sum()
    }
}

/// Orders to a subject.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "order")]
pub enum SubjectOrder {
    /// Waits until the cache shows the node. Answered by `Synced`.
    Sync {
        /// What the cache must show.
        expected: Vec<ExpectedPod>,
    },
    /// Returns the usage. Answered by `Used`.
    Use,
    /// Makes full lists one after the other, and processes each of them. Answered by `Spent`.
    Relist {
        /// The number of lists.
        count: u32,
    },
    /// Starts to record latencies. Answered by `Used`.
    Record,
    /// Discards the events and announcements that were received so far. Answered by `Used`.
    Discard,
    /// Returns what was recorded since `Record`, or received since `Discard`. Answered by `Recorded`.
    Recorded,
    /// Waits until the cache shows the expected pods. Answered by `Used` at once, and then by
    /// `Reached`.
    Await {
        /// What the cache must show.
        expected: Vec<ExpectedPod>,
        /// The number of events to wait for, if the subject has no cache.
        events: u64,
        /// The time limit, in ms.
        within: u64,
    },
    /// Waits until each pod has evidence that was read after a time. Answered by `Used` at once, and
    /// then by `Reached`.
    Verify {
        /// The time. It may be in the future.
        after: i64,
        /// The uids of the pods.
        uids: Vec<String>,
        /// The time limit after `after`, in ms.
        within: u64,
    },
    /// Reads pods from the cache in another thread. Answered by `Recorded`.
    Read {
        /// The uids of the pods.
        pods: Vec<String>,
        /// The duration, in ms.
        millis: u64,
    },
    /// Runs pod workers that restart their pods and read them after every call. Answered by `Recorded`.
    Restart {
        /// The number of pods.
        parallel: u32,
        /// The number of restarts of each pod.
        times: u32,
    },
    /// Starts pod workers that create, stop and remove pods. Answered by `Used`. `TakeReads` returns the
    /// reads after their changes.
    Churn {
        /// The number of new pods per second.
        pods_per_second: f64,
        /// The duration, in ms.
        millis: u64,
    },
    /// Returns the reads of pod workers since the last such order. Answered by `Recorded`.
    TakeReads,
    /// Returns how stale the cache was since recording began. Answered by `Stale`.
    Stale {
        /// The changed pods, before the first change.
        before: Vec<ExpectedPod>,
        /// The changes.
        changes: Vec<PodChange>,
    },
    /// Watches the health of the subject. Answered by `Watched`.
    Watch {
        /// The duration, in ms.
        millis: u64,
        /// Whether to return at the first problem.
        first: bool,
    },
    /// Compares the cache with the expected pods. Answered by `Compared`.
    Compare {
        /// What the cache must show.
        expected: Vec<ExpectedPod>,
    },
}

/// Answers of a subject.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "answer")]
pub enum SubjectAnswer {
    /// The subject runs.
    Ready,
    /// The result of `Sync`.
    Synced {
        /// Whether the cache shows the node. False after a time-out.
        synced: bool,
    },
    /// The usage since the start.
    Used {
        /// The resource usage.
        usage: Usage,
        /// The number of bytes that are not freed, if allocations are counted.
        live_bytes: Option<u64>,
    },
    /// The relists are done.
    Spent(Spent),
    /// The recorded latencies and counts.
    Recorded(Recorded),
    /// The result of a wait.
    Reached(Reached),
    /// How stale the cache was.
    Stale(Stale),
    /// The reported health.
    Watched(Watched),
    /// The differences between the cache and the expected pods.
    Compared {
        /// Containers that the cache lacks or shows in a wrong state.
        lost: u64,
        /// Containers in the cache that do not exist.
        ghosts: u64,
    },
}

/// The result of a play.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Played {
    /// The number of events that were sent.
    pub sent: u64,
    /// The time of the first change.
    pub first: i64,
    /// The time of the last change.
    pub last: i64,
    /// The longest time that sending one event took, in ns.
    pub blocked: i64,
    /// The number of events that were dropped because a queue was full.
    pub dropped: u64,
}

/// The cost of relists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// The resource usage of the relists.
    pub usage: Usage,
    /// The duration of each relist, in ns.
    pub took: Vec<u64>,
    /// The number of allocations, if they are counted.
    pub allocations: Option<u64>,
    /// The number of allocated bytes, if they are counted.
    pub bytes: Option<u64>,
}

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// The time at which the condition held; `None` after a time-out.
    pub at: Option<i64>,
    /// The resource usage until then.
    pub usage: Usage,
}

/// How stale a cache was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stale {
    /// How long the cache differed from the runtime, in ns, summed over all pods.
    pub wrong: i64,
    /// The number of changes that were not visible, and that no later visible change replaced.
    pub unseen: u64,
    /// The delay until each change was visible, or until now for a change that was not visible.
    pub lag: Histogram,
}

/// The health that a subject reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// The time of the first reported problem.
    pub first_problem: Option<i64>,
    /// How long the subject was not ready, in ns.
    pub unready: u64,
    /// The current relist period, in ns, if the subject reports it.
    pub period: Option<u64>,
}

/// A histogram of latencies in ns: pairs of value and count.
pub type Histogram = Vec<(u64, u64)>;

/// What a subject recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Latencies from the change in the runtime until the cache showed it.
    pub end_to_end: Histogram,
    /// Latencies from the receipt of the event until the cache showed it, or the durations of reads.
    pub in_process: Histogram,
    /// The number of exits that a stalled consumer received when it read all announcements at last.
    pub exits: u64,
    /// The number of reads that did not show the reader's own change.
    pub wrong_reads: u64,
}

/// Writes an answer to stdout.
///
/// # Errors
/// If the harness does not read it.
pub fn reply(answer: &impl Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, answer)?;
    out.write_all(b"\n")?;
    out.flush().context("cannot write to the harness")
}

/// Returns the orders until the harness closes stdin.
#[must_use]
pub fn orders<O: DeserializeOwned + Send + 'static>() -> mpsc::Receiver<Result<O>> {
    let (send, orders) = mpsc::channel(16);
    // A separate thread, because reads of stdin block.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let order = line.map_err(Into::into).and_then(|line| {
                serde_json::from_str(&line).with_context(|| format!("invalid order: {line}"))
            });
            if send.blocking_send(order).is_err() {
                return;
            }
        }
    });
    orders
}
