//! What the harness says to the processes that it starts, a line of JSON each way: orders in on
//! stdin, answers out on stdout. Moments are the wall clock's, in ns: all processes share it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _};

use anyhow::{Context as _, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::node::{Truth, Work};
use crate::usage::Usage;

/// Orders to the runtime.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "order")]
pub enum RuntimeOrder {
    /// Prepares a workload. Answered by `Planned`.
    Plan {
        /// Which.
        #[serde(flatten)]
        work: Work,
    },
    /// Lets it happen. Answered by `Played`, when the last event is on its way.
    Play {
        /// Events a second; 0 for as fast as they are taken.
        rate: f64,
        /// What is wrong with how it is told.
        #[serde(flatten)]
        faults: Faults,
        /// After how long every connection is cut, again and again, in ms; 0 for never.
        cut_every: u64,
    },
    /// What has happened in the last play, or in the last cut. Answered by `History`.
    History,
    /// From now on this is wrong with it. Answered by `Ready`.
    SetTrouble {
        /// What.
        #[serde(flatten)]
        trouble: Trouble,
    },
    /// Cuts every connection at that moment. Answered by `Cut`.
    Cut {
        /// When.
        at: i64,
        /// How long nobody listens then, in ms; 0 if the runtime lives on.
        down_ms: u64,
        /// Whether the plan happens in between, untold.
        untold: bool,
        /// Only the event streams are broken off; nothing else is cut.
        reset: bool,
    },
    /// Waits, and says what was used and asked meanwhile. Answered by `Counted`.
    Window {
        /// For how long.
        seconds: f64,
    },
    /// What was used and asked so far. Answered by `Counted`.
    Count,
    /// What a cache should show. Answered by `Truth`.
    Truth,
}

/// What is wrong with how events are told; of a million each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// How many are never told.
    pub dropped: u32,
    /// How many are told twice.
    pub doubled: u32,
    /// How many are told late, and so out of order, within a pod too.
    pub late: u32,
    /// How late at most, in ms.
    pub late_ms: u32,
}

/// What is wrong with a runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// Calls for the status of the first pod or its containers never answer.
    pub hung_pod: bool,
    /// How much longer each call takes, in ms.
    pub call_ms: u64,
    /// How much longer a full list of the containers takes, in ms.
    pub slow_list: u64,
}

/// What a pod was like from a moment on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Happened {
    /// When.
    pub at: i64,
    /// What a cache should show of it then.
    pub pod: Truth,
}

/// What the runtime says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "answer")]
pub enum RuntimeAnswer {
    /// It listens, or is as it was told to be.
    Ready,
    /// What has happened.
    History {
        /// What the pods were like before to which something has happened.
        before: Vec<Truth>,
        /// What has happened to them.
        changes: Vec<Happened>,
    },
    /// The workload is prepared.
    Planned {
        /// How many events it has.
        events: u64,
        /// What a cache should show afterwards.
        truth: Vec<Truth>,
    },
    /// The workload has happened.
    Played {
        /// How many events were told.
        sent: u64,
        /// The moment of the first one.
        first: i64,
        /// The moment of the last one.
        last: i64,
        /// How late the generator was at most by its own fault, in ns.
        late: i64,
        /// How long it was blocked at most by one subscriber, in ns.
        blocked: i64,
        /// How many of those that were told found no room, and were dropped.
        dropped: u64,
    },
    /// The connections are cut.
    Cut {
        /// When.
        at: i64,
        /// When it listened again.
        listening: i64,
    },
    /// What was used and asked.
    Counted(Counted),
    /// What a cache should show.
    Truth {
        /// Of every pod.
        truth: Vec<Truth>,
    },
}

/// What was used by the runtime, and asked of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// CPU time and the like.
    pub usage: Usage,
    /// Calls by method.
    pub calls: BTreeMap<String, u64>,
    /// When the event stream was last asked for; 0 if never.
    pub subscribed: i64,
}

impl Counted {
    /// What has come since.
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
            subscribed: self.subscribed,
        }
    }

    /// Calls of those methods.
    #[must_use]
    pub fn of(&self, methods: &[&str]) -> u64 {
        methods.iter().filter_map(|m| self.calls.get(*m)).sum()
    }

    /// Full lists, by either call.
    #[must_use]
    pub fn lists(&self) -> u64 {
        self.of(&[
            "ListPodSandbox",
            "ListContainers",
            "StreamPodSandboxes",
            "StreamContainers",
        ])
    }

    /// Lists and statuses, of the node or of a pod.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.lists() + self.of(&["PodSandboxStatus", "ContainerStatus"])
    }

    /// All calls but the event stream.
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
    /// Waits until it knows what exists. Answered by `Synced`.
    Sync {
        /// What that is.
        truth: Vec<Truth>,
    },
    /// Answered by `Used`.
    Use,
    /// So many full lists back to back, each with all that is done with it. Answered by `Spent`.
    Relist {
        /// How many.
        count: u32,
    },
    /// From now on latencies are recorded. Answered by `Used`.
    Record,
    /// From now on it is counted what the subject does, and nothing else: recording takes its time,
    /// too. Answered by `Used`.
    Count,
    /// What was recorded or counted since. Answered by `Recorded`.
    Recorded,
    /// Waits until its cache shows this. Answered by `Used` at once, and then by `Reached`.
    Await {
        /// What.
        truth: Vec<Truth>,
        /// How many events that takes, for a subject that has no cache.
        events: u64,
        /// How long it may take, in ms.
        within: u64,
    },
    /// Waits until evidence begun after that moment stands for each of those pods. Answered by
    /// `Used` at once, and then by `Reached`.
    Verify {
        /// When; it may be to come.
        after: i64,
        /// The pods' uids.
        uids: Vec<String>,
        /// How long it may take after that, in ms.
        within: u64,
    },
    /// Reads its cache from another thread, of any of those pods. Answered by `Recorded`.
    Read {
        /// The pods' uids.
        pods: Vec<String>,
        /// For how long, in ms.
        millis: u64,
    },
    /// Pod workers restart pods of their own and read each after every call. Answered by `Recorded`.
    Restart {
        /// How many pods at once.
        parallel: u32,
        /// How often each.
        times: u32,
    },
    /// From now on pod workers create, stop and remove pods. Answered by `Used`. `TakeReads` returns the
    /// reads after their changes.
    Churn {
        /// How many pods come each second.
        pods_per_second: f64,
        /// For how long, in ms.
        millis: u64,
    },
    /// The reads of pod workers since the last such order. Answered by `Recorded`.
    TakeReads,
    /// How stale the cache was since recording began. Answered by `Stale`.
    Stale {
        /// What the pods were like before to which something has happened.
        before: Vec<Truth>,
        /// What has happened to them since.
        changes: Vec<Happened>,
    },
    /// Looks at its health for as long as that. Answered by `Watched`.
    Watch {
        /// For how long, in ms.
        millis: u64,
        /// Only until it is not well.
        first: bool,
    },
    /// Compares its cache with this. Answered by `Compared`.
    Compare {
        /// What it should show.
        truth: Vec<Truth>,
    },
}

/// What a subject says.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "answer")]
pub enum SubjectAnswer {
    /// It runs.
    Ready,
    /// It knows what exists; or says after how long it gave up.
    Synced {
        /// Whether it does.
        synced: bool,
    },
    /// What it has used so far.
    Used {
        /// CPU time and the like.
        usage: Usage,
        /// The bytes that it has allocated and not given back, where that is counted.
        held: Option<u64>,
    },
    /// The relists are over.
    Spent {
        /// What was used for them.
        usage: Usage,
        /// How long they took, in ns, each.
        took: Vec<u64>,
        /// How often memory was allocated, where that is counted.
        allocations: Option<u64>,
        /// How many bytes were allocated in all, where that is counted; from the raw decoder, how
        /// many bytes the lists have on the wire.
        bytes: Option<u64>,
    },
    /// Recorded latencies.
    Recorded(Recorded),
    /// What was waited for has come, or not.
    Reached {
        /// When it had come; `None` if it did not in time.
        at: Option<i64>,
        /// What was used until then.
        usage: Usage,
    },
    /// How stale it was.
    Stale(Stale),
    /// What it said of its health.
    Watched(Watched),
    /// The cache against the truth.
    Compared {
        /// How many containers it does not show, or in another state.
        lost: u64,
        /// How many it shows that there are not.
        ghosts: u64,
    },
}

/// How stale a cache was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stale {
    /// For how long it showed of a pod what was not so, in ns, of all pods together.
    pub wrong: i64,
    /// How many changes it has not shown, nor what came after them.
    pub unseen: u64,
    /// How long each change was not shown; one that never was, until now.
    pub lag: Histogram,
    /// The same of the earlier and of the later half of the changes.
    pub halves: [Histogram; 2],
}

/// What a subject said of its health.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// When it first said that something was wrong.
    pub unwell: Option<i64>,
    /// For how long it was not ready, in ns.
    pub unready: u64,
    /// How often it lists everything at present, in ns, where it says so.
    pub period: Option<u64>,
}

/// Latencies in ns: (value, how often).
pub type Histogram = Vec<(u64, u64)>;

/// The name under which it is counted of how many ends a consumer was told that had not taken
/// anything for a while.
pub const ENDS_TAKEN: &str = "ends_taken";

/// The name of the number of reads that lacked the reader's own change.
pub const WRONG_READS: &str = "wrong_reads";

/// What a subject records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// From the change in the runtime until the cache showed it.
    pub end_to_end: Histogram,
    /// From the reader's receipt of the event until the cache showed it; or how long a read took.
    pub in_process: Histogram,
    /// What it has counted itself, by name.
    pub counts: BTreeMap<String, u64>,
}

/// Says something.
///
/// # Errors
/// If nobody listens.
pub fn reply(answer: &impl Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, answer)?;
    out.write_all(b"\n")?;
    out.flush().context("the harness is gone")
}

/// The orders, until the harness closes its end.
#[must_use]
pub fn orders<O: DeserializeOwned + Send + 'static>() -> mpsc::Receiver<Result<O>> {
    let (send, orders) = mpsc::channel(16);
    // A thread of its own: nothing runs on it while no order comes.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let order = line.map_err(Into::into).and_then(|line| {
                serde_json::from_str(&line).with_context(|| format!("no order: {line}"))
            });
            if send.blocking_send(order).is_err() {
                return;
            }
        }
    });
    orders
}
