//! A sample of `/proc`. Two samples show what lasts: a process that is stopped or blocked, a zombie that nobody reaps.

use super::pressure::Counters;
use super::shims::Role;
use super::*;
use crate::kubelet::Kubelet;
use crate::proc::Blocked;

/// The threads of all shims are read if the load of the last minute is at least this. A thread that has been blocked in
/// the kernel for 22 s adds this much to the load, so at a lower load no thread has blocked for long. This saves reads.
const LOAD: f64 = 0.3;

#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) processes: BTreeMap<u32, Seen>,
    /// The PIDs of init processes, by container.
    pub(super) inits: BTreeMap<String, u32>,
    pub(super) pressure: Counters,
    pub(super) limits: Vec<Limit>,
    /// The controllers whose limits cannot be read.
    pub(super) unread: Vec<&'static str>,
    pub(super) directories: Arc<Vec<Result<String, String>>>,
    pub(super) descriptors: Option<Open>,
    /// The time for which the daemon's threads have waited for a CPU.
    waited: Option<Duration>,
    pub(super) load: Option<f64>,
    pub(super) files: Option<Open>,
    pub(super) threads: Option<Open>,
    pub(super) uptime: Option<f64>,
    pub(super) shows_host: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) process: Process,
    /// What the process is: a shim, a container's process, a helper, a kubelet. While `None`, each sample looks again.
    pub(super) role: Option<Arc<Role>>,
    /// Threads in state D: all of the daemon and shims, else the main thread (of a `Role::Helper` in any state).
    pub(super) blocked: BTreeMap<u32, Blocked>,
    pub(super) frozen: Option<String>,
}

impl Seen {
    pub(super) fn shim(&self) -> Option<&str> {
        match self.role.as_deref()? {
            Role::Shim(id) if !self.process.is_dead() => Some(id),
            _ => None,
        }
    }
}

impl Sample {
    /// Reads the processes, and more about those of pods and about the daemon, which listens on the runtime's socket.
    /// Facts that never change are copied from the previous sample. A thorough sample reads the threads of all shims.
    pub(super) fn take(
        target: &HostTarget,
        daemon: Option<u32>,
        thorough: bool,
        before: &Self,
    ) -> io::Result<Self> {
        let proc = Proc::below(&target.root);
        let files = host_files(&target.root);
        let mut sample = Self {
            pressure: pressure::counters(&proc),
            files: proc.files(),
            uptime: proc.word("uptime", 0),
            shows_host: proc.shows_host(),
            load: proc.word("loadavg", 0),
            threads: threads(&proc),
            ..Self::default()
        };
        let may_block = thorough || sample.load.is_none_or(|load: f64| load >= LOAD);
        let processes = proc.pids()?.filter_map(|pid| {
            let known = before.processes.get(&pid);
            // Compare the start time: the process may have ended, and another one may have its PID.
            let process = proc.process(pid)?;
            let known = known.filter(|seen| seen.process.is(&process) && !process.is_dead());
            let seen = Seen {
                role: known.and_then(|seen| seen.role.clone()),
                process,
                blocked: BTreeMap::new(),
                frozen: None,
            };
            Some((pid, seen))
        });
        let mut processes: BTreeMap<u32, Seen> = processes.collect();
        shims::find(target, daemon, &mut processes);
        let own = std::process::id();
        for (pid, seen) in &mut processes {
            let Process { state, parent, .. } = seen.process;
            let helper = seen.role.as_deref() == Some(&Role::Helper);
            // Leaves out children of this process, which read mounts: if one hangs, the finding is about its mount.
            if state == 'D' && parent != own || helper {
                seen.blocked.insert(*pid, proc.blocked(pid));
            }
            if let Some(Role::Container(_, freezer)) = seen.role.as_deref() {
                seen.frozen = freezer.as_ref().and_then(|group| group.frozen(state));
            }
            let known = before.processes.get(pid);
            let was_blocked = || known.is_some_and(|seen| !seen.blocked.is_empty());
            if seen.shim().is_some() && (may_block || was_blocked()) {
                seen.blocked.extend(proc.blocked_threads(*pid));
            }
        }
        sample.processes = processes;
        sample.inits = shims::inits(&proc, &sample, before);
        sample.read_daemon(&proc, daemon.unwrap_or_default(), &files, before);
        Ok(sample)
    }

    fn read_daemon(&mut self, proc: &Proc, pid: u32, files: &Path, before: &Self) {
        let Some(seen) = self.processes.get_mut(&pid) else {
            return;
        };
        let groups = proc.read(&format!("{pid}/cgroup")).unwrap_or_default();
        let freezer = Group::find(files, &groups, "freezer");
        seen.frozen = freezer.and_then(|group| group.frozen(seen.process.state));
        seen.blocked.extend(proc.blocked_threads(pid));
        self.directories = match before.same(&seen.process) {
            Some(_) => Arc::clone(&before.directories),
            None => Arc::new(disks::directories(proc, &seen.process)),
        };
        (self.limits, self.unread) = cgroup::limits(files, &groups);
        self.descriptors = proc.descriptors(pid);
        self.waited = proc.waited(pid);
    }

    /// A kubelet that uses the socket. If there is none, another kubelet, and the endpoint of its runtime.
    pub(super) fn kubelet(&self) -> Option<(&Seen, &Kubelet, &Option<String>)> {
        let kubelets = self.all().filter_map(|seen| match seen.role.as_deref()? {
            Role::Kubelet(kubelet, other) => Some((seen, kubelet, other)),
            _ => None,
        });
        kubelets.min_by_key(|(_, _, other)| other.is_some())
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Seen> {
        self.processes.values()
    }

    /// Returns true if a shim has a blocked thread that was not blocked in `before`. The next sample shows if it lasts.
    pub(super) fn suspects(&self, before: &Self) -> bool {
        let all = self.processes.iter();
        let mut shims = all.filter(|(_, seen)| seen.shim().is_some());
        shims.any(|(pid, seen)| {
            let known = before.processes.get(pid).map(|seen| &seen.blocked);
            let is_new = |thread| known.is_none_or(|known| !known.contains_key(thread));
            seen.blocked.keys().any(is_new)
        })
    }

    pub(super) fn same(&self, process: &Process) -> Option<&Seen> {
        let seen = self.processes.get(&process.pid);
        seen.filter(|seen| seen.process.is(process))
    }
}

/// The host's number of threads (800 in `0.50 0.40 0.30 2/800 12345`), and the lower of `pid_max` and `threads-max`.
fn threads(proc: &Proc) -> Option<Open> {
    let running: String = proc.word("loadavg", 3)?;
    let limits = ["sys/kernel/pid_max", "sys/kernel/threads-max"].map(|file| proc.word(file, 0));
    let open = running.split_once('/')?.1.parse().ok()?;
    let limit = limits.into_iter().flatten().min()?;
    Some(Open { open, limit })
}

#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) begin: Arc<Sample>,
    pub(super) end: Arc<Sample>,
}

impl Samples {
    /// The time between the samples; not 0.
    pub(super) fn seconds(&self) -> f64 {
        let uptimes = self.end.uptime.zip(self.begin.uptime);
        uptimes.map_or(0.0, |(now, before)| now - before).max(0.001)
    }

    pub(super) fn waiting_for_cpu(&self) -> Option<f64> {
        let waited = self.end.waited?.saturating_sub(self.begin.waited?);
        Some(rounded(waited.as_secs_f64() / self.seconds()))
    }

    pub(super) fn lasts(&self, after: &Seen) -> Lasting {
        let Some(before) = self.begin.same(&after.process) else {
            return Lasting::default();
        };
        let threads = after.blocked.iter();
        let both = threads.filter_map(|(id, blocked)| Some((blocked, before.blocked.get(id)?)));
        let both = both.filter(|(after, before)| after.since(before));
        let frozen = after.frozen.clone();
        let place = |at: &Option<String>| at.clone().unwrap_or_else(|| "unknown".to_owned());
        Lasting {
            stopped: before.process.is_stopped() && after.process.is_stopped(),
            frozen: frozen.filter(|_| after.frozen == before.frozen),
            blocked: both.map(|(blocked, _)| place(&blocked.at)).collect(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Lasting {
    pub(crate) stopped: bool,
    /// The frozen control group of the process.
    pub(crate) frozen: Option<String>,
    /// The functions of the kernel in which the process and its threads are blocked.
    pub(crate) blocked: Vec<String>,
}
