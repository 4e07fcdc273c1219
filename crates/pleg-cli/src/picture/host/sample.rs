//! What `/proc` shows at one instant. Two samples, some seconds apart, show what lasts: a process that was
//! stopped or blocked all the time, a zombie that nobody reaps.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::bundles::{self, DeadInit};
use super::pressure::Counters;
use super::shims::{self, Role};
use super::{cgroup, disks, helpers, host_files, rounded};
use crate::kubelet::{KubeletProcess, find_process};
use crate::proc::{Blocked, Proc, Process};

/// Each thread in state D counts in the load average. Below this load, none has been there for half a minute.
const IDLE: f64 = 0.3;
/// On an idle host only processes of pods and of the runtime are read, and all of them each so many times: a PID may have been
/// used again.
const FULL: u32 = 10;

/// What a sample is of.
#[derive(Clone, Debug, Default)]
pub(super) struct Subject {
    pub(super) root: PathBuf,
    /// The runtime's socket, and the process that listens on it.
    pub(super) socket: Option<PathBuf>,
    pub(super) daemon: Option<u32>,
    /// Read the threads of shims even if the load shows that none is blocked.
    pub(super) thorough: bool,
}

/// One sample.
#[derive(Debug, Default)]
pub(super) struct Sample {
    number: u32,
    pub(super) processes: BTreeMap<u32, Process>,
    /// The processes in state D.
    pub(super) blocked: BTreeMap<u32, Blocked>,
    /// More about the daemon and the shims.
    pub(super) watched: BTreeMap<u32, Watched>,
    /// The processes that belong to pods, and those that only look like it.
    pub(super) roles: BTreeMap<u32, Role>,
    /// The PIDs of first processes of containers.
    pub(super) inits: BTreeMap<String, u32>,
    pub(super) dead_inits: Vec<DeadInit>,
    /// The frozen control groups of the daemon and of processes of containers.
    pub(super) frozen: BTreeMap<u32, String>,
    pub(super) helpers: Vec<helpers::Helper>,
    pub(super) pressure: Counters,
    pub(super) limits: cgroup::Counters,
    /// The daemon's directories.
    pub(super) directories: Arc<Vec<String>>,
    pub(super) kubelet: Option<KubeletProcess>,
    pub(super) load: Option<f64>,
    pub(super) files: Option<(u64, u64)>,
    pub(super) threads: Option<(u64, u64)>,
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
    /// Reads all processes, and more about the daemon and the shims. What never changes is taken from the sample before.
    pub(super) fn take(subject: &Subject, before: Option<&Self>) -> std::io::Result<Self> {
        let proc = Proc::below(&subject.root);
        let none = Self::default();
        let before = before.unwrap_or(&none);
        let mut sample = Self {
            pressure: Counters::read(&proc),
            files: proc.files(),
            uptime: proc.uptime(),
            shows_host: proc.shows_host(),
            number: before.number.wrapping_add(1),
            ..Self::default()
        };
        sample.read_load(&proc);
        let idle = !subject.thorough && sample.load.is_some_and(|load| load < IDLE);
        let partial = idle && !sample.number.is_multiple_of(FULL);
        let known = |pid: u32| before.processes.get(&pid).filter(|_| partial);
        let aside = |process: &&Process| before.is_aside(process, subject.daemon);
        sample.processes = proc.processes_but(|pid| known(pid).filter(aside).cloned())?;
        let files = host_files(&subject.root);
        sample.roles = shims::roles(&proc, &files, &sample, before, subject.socket.as_deref());
        sample.inits = bundles::inits(&proc, &sample, before);
        sample.dead_inits = bundles::dead(&sample);
        sample.helpers = helpers::find(&proc, &sample, subject.daemon);
        let own = std::process::id();
        // The children that ask mounts are blocked on purpose.
        let blocked = sample.processes.values();
        let blocked = blocked.filter(|process| process.state == 'D' && process.parent != own);
        sample.blocked = blocked
            .map(|process| (process.pid, proc.blocked(&process.pid.to_string())))
            .collect();
        let known = before.kubelet.clone().filter(|kubelet| {
            let process = sample.processes.get(&kubelet.pid);
            process.is_some_and(|process| before.same(process).is_some())
        });
        let find = || find_process(&proc, &sample.processes, subject.socket.as_deref());
        sample.kubelet = known.or_else(find);
        sample.watch(&proc, subject, &files, before, idle);
        Ok(sample)
    }

    /// `0.50 0.40 0.30 2/800 12345`: the load, and how many threads exist.
    fn read_load(&mut self, proc: &Proc) {
        let text = proc.read("loadavg").unwrap_or_default();
        let mut fields = text.split_whitespace();
        self.load = fields.next().and_then(|load| load.parse().ok());
        let existing = fields
            .nth(2)
            .and_then(|field| field.split_once('/')?.1.parse().ok());
        let limit = |file: &str| proc.read(file).ok()?.trim().parse().ok();
        let limits = [limit("sys/kernel/pid_max"), limit("sys/kernel/threads-max")];
        self.threads = existing.zip(limits.into_iter().flatten().min());
    }

    /// Reads more about the daemon, the shims and the processes of containers.
    fn watch(&mut self, proc: &Proc, subject: &Subject, files: &Path, before: &Self, idle: bool) {
        if !idle {
            let shims = self.shims().map(|(pid, _)| pid);
            let watched = shims.map(|pid| {
                let threads = proc.blocked_threads(pid);
                (
                    pid,
                    Watched {
                        threads,
                        descriptors: None,
                        waited: None,
                    },
                )
            });
            self.watched = watched.collect();
        }
        self.frozen = shims::frozen_groups(self);
        let Some(pid) = subject.daemon else { return };
        let Some(daemon) = self.processes.get(&pid) else {
            return;
        };
        self.directories = match before.processes.get(&pid).is_some_and(|b| b.is(daemon)) {
            true => Arc::clone(&before.directories),
            false => Arc::new(disks::directories(proc, daemon)),
        };
        let groups = proc.read(&format!("{pid}/cgroup")).unwrap_or_default();
        self.limits = cgroup::Counters::read(files, &groups);
        let freezer = cgroup::Group::find(files, &groups, "freezer");
        self.frozen
            .extend(freezer.and_then(|group| Some((pid, group.frozen(daemon.state)?))));
        let watched = Watched {
            threads: proc.blocked_threads(pid),
            descriptors: proc.descriptors(pid),
            waited: proc.waited(pid),
        };
        self.watched.insert(pid, watched);
    }

    /// Whether nothing follows from the process while the host is idle: it is not the daemon, nor a process of a pod or of
    /// the runtime, nor the kubelet.
    fn is_aside(&self, process: &Process, daemon: Option<u32>) -> bool {
        let of_pod = |pid: u32| self.roles.contains_key(&pid);
        let kubelet = self.kubelet.as_ref().map(|kubelet| kubelet.pid);
        let is = |pid: u32| of_pod(pid) || Some(pid) == daemon || Some(pid) == kubelet;
        !is(process.pid) && !is(process.parent)
    }

    /// The PIDs and ids of shims.
    pub(super) fn shims(&self) -> impl Iterator<Item = (u32, &str)> {
        self.roles.iter().filter_map(|(pid, role)| match role {
            Role::Shim { id } => Some((*pid, id.as_str())),
            _ => None,
        })
    }

    /// The same process at the time of another sample.
    pub(super) fn same(&self, process: &Process) -> Option<&Process> {
        self.processes.get(&process.pid).filter(|p| p.is(process))
    }
}

/// Two samples.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) begin: Arc<Sample>,
    pub(super) end: Arc<Sample>,
    apart: Duration,
}

impl Samples {
    pub(super) const fn new(begin: Arc<Sample>, end: Arc<Sample>, apart: Duration) -> Self {
        Self { begin, end, apart }
    }

    /// How far apart they are; not 0.
    pub(super) fn seconds(&self) -> f64 {
        self.apart.as_secs_f64().max(0.001)
    }

    /// The processes that both samples show, as each of them shows them.
    pub(super) fn lasting(&self) -> impl Iterator<Item = (&Process, &Process)> {
        self.end
            .processes
            .values()
            .filter_map(|after| Some((self.begin.same(after)?, after)))
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
