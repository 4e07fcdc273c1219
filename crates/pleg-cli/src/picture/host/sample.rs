//! What `/proc` shows at one instant. Two samples, some seconds apart, show what lasts: a process that was
//! stopped or blocked all the time, a zombie that nobody reaps.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::time::Duration;

use super::bundles::{self, DeadInit};
use super::pressure::Counters;
use super::rounded;
use super::shims::{self, ShimProcess};
use crate::proc::{Blocked, Proc, Process};

/// One sample.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) processes: BTreeMap<u32, Process>,
    /// The processes in state D.
    pub(super) blocked: BTreeMap<u32, Blocked>,
    /// More about the daemon and the shims.
    pub(super) watched: BTreeMap<u32, Watched>,
    pub(super) shims: Vec<ShimProcess>,
    /// Root has programs in pods that have the name of a shim.
    pub(super) shims_in_pods: bool,
    pub(super) dead_inits: Vec<DeadInit>,
    pub(super) pressure: Counters,
    pub(super) load: Option<f64>,
    pub(super) files: Option<(u64, u64)>,
    pub(super) uptime: Option<f64>,
    pub(super) shows_host: bool,
}

#[derive(Debug)]
pub(super) struct Watched {
    /// The threads in state D.
    threads: BTreeMap<u32, Blocked>,
    pub(super) descriptors: Option<(u64, u64)>,
    /// How long its threads have waited for a CPU.
    waited: Option<Duration>,
}

impl Sample {
    /// Reads all processes, and more about the daemon and the shims of the socket.
    pub(super) fn take(
        root: &Path,
        socket: Option<&Path>,
        daemon: Option<u32>,
    ) -> std::io::Result<Self> {
        let proc = Proc::below(root);
        let processes = proc.processes()?;
        let (shims, shims_in_pods) = shims::find(&proc, &processes, socket);
        let dead_inits = bundles::dead_inits(&proc, &shims);
        let own = std::process::id();
        // The children that ask mounts are blocked on purpose.
        let blocked = processes
            .values()
            .filter(|process| process.state == 'D' && process.parent != own)
            .map(|process| (process.pid, proc.blocked(&process.pid.to_string())));
        let watched = daemon.into_iter().map(|pid| {
            let watched = Watched {
                threads: proc.blocked_threads(pid),
                descriptors: proc.descriptors(pid),
                waited: proc.waited(pid),
            };
            (pid, watched)
        });
        let shim_threads = shims.iter().map(|shim| {
            let watched = Watched {
                threads: proc.blocked_threads(shim.pid),
                descriptors: None,
                waited: None,
            };
            (shim.pid, watched)
        });
        let load = proc.read("loadavg").ok();
        Ok(Self {
            blocked: blocked.collect(),
            watched: shim_threads.chain(watched).collect(),
            pressure: Counters::read(&proc),
            load: load.and_then(|text| text.split_whitespace().next()?.parse().ok()),
            files: proc.files(),
            uptime: proc.uptime(),
            shows_host: proc.shows_host(),
            processes,
            shims,
            shims_in_pods,
            dead_inits,
        })
    }
}

/// Two samples.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) begin: Sample,
    pub(super) end: Sample,
    apart: Duration,
}

impl Samples {
    pub(super) const fn new(begin: Sample, end: Sample, apart: Duration) -> Self {
        Self { begin, end, apart }
    }

    /// How far apart they are; not 0.
    pub(super) fn seconds(&self) -> f64 {
        self.apart.as_secs_f64().max(0.001)
    }

    /// The processes that both samples show, as each of them shows them.
    pub(super) fn lasting(&self) -> impl Iterator<Item = (&Process, &Process)> {
        self.end.processes.values().filter_map(|after| {
            let before = self.begin.processes.get(&after.pid)?;
            before.is(after).then_some((before, after))
        })
    }

    /// Where the threads of a process wait that were blocked all the time.
    pub(super) fn blocked_threads(&self, pid: u32) -> Vec<String> {
        let threads = |sample: &Sample| sample.watched.get(&pid).map(|w| w.threads.clone());
        let Some((before, after)) = threads(&self.begin).zip(threads(&self.end)) else {
            return Vec::new();
        };
        let lasting = after
            .into_iter()
            .filter(|(thread, blocked)| before.get(thread).is_some_and(|b| blocked.since(b)));
        lasting.map(|(_, blocked)| place(&blocked)).collect()
    }

    /// How many threads of a process waited for a CPU, on average.
    pub(super) fn waiting_for_cpu(&self, pid: u32) -> Option<f64> {
        let waited = |sample: &Sample| sample.watched.get(&pid)?.waited;
        let waited = waited(&self.end)?.saturating_sub(waited(&self.begin)?);
        Some(rounded(waited.as_secs_f64() / self.seconds()))
    }

    /// The PIDs whose process was a zombie in both samples.
    pub(super) fn zombies(&self) -> HashSet<u32> {
        let zombie = |(before, after): &(&Process, &Process)| before.is_dead() && after.is_dead();
        self.lasting().filter(zombie).map(|(_, p)| p.pid).collect()
    }
}

/// The function of the kernel in which a thread waits.
pub(super) fn place(blocked: &Blocked) -> String {
    blocked.at.clone().unwrap_or_else(|| "unknown".to_owned())
}
