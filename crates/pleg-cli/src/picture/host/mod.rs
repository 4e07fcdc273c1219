//! Evidence of the host: the runtime's process, its limits and disks, shims, pressure, mounts, systemd, the kubelet.
//!
//! A [`Watch`] reads what is cheap and runs no command, for the agent. [`collect`] reads everything, for `pleg doctor`.
//! A read that hangs is abandoned at its deadline. The result is plain data: [`check`] finds the same in a recording.

mod cgroup;
mod daemon;
mod disks;
mod kubelet;
mod mounts;
mod pressure;
mod sample;
mod shims;
mod systemd;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsString;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use std::{env, fs, io};

use derive_more::Constructor;
use itertools::Itertools as _;
use pleg::runtime::clock::Clock;
use serde::{Deserialize, Serialize};
use tokio::process::Command;
use tokio::sync::Semaphore;

use self::cgroup::{Group, Limit, thaw};
use self::daemon::Daemon;
use self::disks::Disk;
use self::kubelet::Kubelet;
use self::mounts::Mounts;
pub(crate) use self::mounts::ask_mount;
use self::pressure::{BlockedProcess, Pressure};
use self::sample::{Lasting, Sample, Samples, Seen};
use self::shims::Shims;
use self::systemd::Systemd;
use super::finding::{Finding, Severity, contains};
use super::runtime::{Pod, Pods};
use crate::bounded;
use crate::kubelet::value;
use crate::proc::{Open, Proc, Process};
use crate::text::{bytes, short};

/// The hidden command that reads one mount.
pub(crate) const ASK_MOUNT: &str = "doctor-mount";

const SAMPLE_DEADLINE: Duration = Duration::from_secs(10);
const DISKS_DEADLINE: Duration = Duration::from_secs(2);

/// The evidence of the host. Fields that could not be read are empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Host {
    pub(crate) cpus: usize,
    pub(crate) load: Option<f64>,
    pub(crate) files: Option<Open>,
    pub(crate) threads: Option<Open>,
    pub(crate) pressure: Pressure,
    pub(crate) blocked: Vec<BlockedProcess>,
    pub(crate) daemon: Option<Daemon>,
    pub(crate) limits: Vec<Limit>,
    pub(crate) disks: Vec<Disk>,
    pub(crate) shims: Shims,
    pub(crate) mounts: Mounts,
    #[serde(rename = "bus")]
    pub(crate) systemd: Option<Systemd>,
    pub(crate) kubelet: Option<Kubelet>,
    pub(crate) unreadable: Vec<String>,
}

/// The results of calls to the runtime, on which the findings about the host depend.
#[derive(Clone, Copy, Debug, Constructor)]
pub(crate) struct Calls<'a> {
    pods: &'a Pods,
    /// A list or a status call was slow or hung.
    pub(crate) slow: bool,
    /// True if the runtime answered the last lists. If false, only names of pods are used: their states may be old.
    is_listed: bool,
}

impl<'a> Calls<'a> {
    fn pod_of(self, id: &str) -> String {
        let has = |p: &&Pod| p.running.contains_key(id) || p.sandboxes.iter().any(|s| s == id);
        let pod = self.pods.pods.iter().find(has);
        pod.map_or_else(|| short(id), |pod| pod.name.clone())
    }

    fn listed(self) -> Option<&'a Pods> {
        self.is_listed.then_some(self.pods)
    }
}

/// The host to examine, and the programs that are run to examine it, each with its leading arguments.
#[derive(Clone, Debug)]
pub(crate) struct HostTarget {
    pub(crate) socket: Option<PathBuf>,
    /// The root of the host's files: `/` except in tests.
    pub(crate) root: PathBuf,
    ask_mount: Vec<OsString>,
    journalctl: Vec<OsString>,
    busctl: Vec<OsString>,
    read_only: SocketAddr,
}

impl HostTarget {
    pub(crate) fn new(socket: Option<PathBuf>) -> Self {
        let own = env::current_exe().unwrap_or_else(|_| "pleg".into());
        Self {
            socket,
            root: "/".into(),
            ask_mount: vec![own.into(), ASK_MOUNT.into()],
            journalctl: vec!["journalctl".into()],
            busctl: vec!["busctl".into()],
            read_only: SocketAddr::from(([127, 0, 0, 1], 10255)),
        }
    }
}

/// Examines the host for `duration`, and some seconds longer if reads hang.
pub(crate) async fn collect(target: &HostTarget, duration: Duration) -> Host {
    let mut watch = Watch::new(target.clone());
    let clock = Clock::start();
    let until = clock.now().after(duration);
    watch.look(true).await;
    let first = Arc::clone(&watch.last);
    let ((mounts, no_mounts), systemd, (kubelet, no_kubelet), ()) = tokio::join!(
        mounts::collect(target, clock),
        systemd::collect(target),
        kubelet::ask(target, &first, clock, until),
        clock.sleep_until(until),
    );
    let mut host = watch.look(true).await;
    let unread = [no_mounts, systemd.as_ref().err().cloned()];
    let unread = unread.into_iter().flatten().chain(no_kubelet);
    host.unreadable.extend(unread);
    host.mounts = mounts;
    host.systemd = systemd.ok().flatten();
    if let Some(looked) = &mut host.kubelet {
        (looked.healthz, looked.relists) = (kubelet.healthz, kubelet.relists);
        looked.journal = kubelet.journal;
    }
    host
}

/// Looks at the host, without starting a process. Some facts follow only from two looks, so the first look lacks them.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) target: HostTarget,
    last: Arc<Sample>,
    /// True if the last look saw a thread of a shim newly blocked. An early next look shows whether it stays blocked.
    pub(crate) is_due_soon: bool,
    /// The process that listened on the socket at the last look.
    daemon: Option<u32>,
    /// The permit for a read of processes. A read that exceeds its deadline goes on; until it ends, no new read starts.
    processes: Arc<Semaphore>,
    disks: Arc<Semaphore>,
}

impl Watch {
    pub(crate) fn new(target: HostTarget) -> Self {
        Self {
            target,
            last: Arc::default(),
            is_due_soon: false,
            daemon: None,
            processes: Arc::new(Semaphore::new(1)),
            disks: Arc::new(Semaphore::new(1)),
        }
    }

    /// Reads the host now, within 15 s. A look that is not thorough reads threads of shims only if the load is high.
    pub(crate) async fn look(&mut self, thorough: bool) -> Host {
        let (daemon, first, mut unreadable) = match self.listener().await {
            Ok(pid) => (pid, std::mem::replace(&mut self.daemon, pid), Vec::new()),
            Err(why) => (None, None, vec![why]),
        };
        let samples = match self.sample(daemon, thorough).await {
            Ok(samples) => samples,
            Err(why) => {
                unreadable.push(format!("processes: {why}"));
                return Host {
                    unreadable,
                    ..Host::default()
                };
            }
        };
        let end = &samples.end;
        if !end.shows_host {
            unreadable.push("all processes of the host: not visible from here".to_owned());
        }
        let (root, directories) = (self.target.root.clone(), Arc::clone(&end.directories));
        let read = move || disks::read(&root, daemon, &directories);
        let (disks, unread) = match self.target.socket {
            None => Ok(Default::default()),
            // Without a daemon, `disks::read` uses process 1's mounts: this pod's may be read-only, unlike the host's.
            Some(_) if daemon.is_none() && !end.shows_host => {
                Err("not visible from here".to_owned())
            }
            Some(_) => alone(&self.disks, DISKS_DEADLINE, read).await,
        }
        .unwrap_or_else(|why| (Vec::new(), vec![format!("the runtime's disks: {why}")]));
        unreadable.extend(unread);
        let limit = |name| format!("the {name} limit of the runtime: not visible");
        unreadable.extend(end.unread.iter().map(limit));
        Host {
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            load: end.load,
            files: end.files,
            threads: end.threads,
            pressure: pressure::assess(&samples),
            blocked: pressure::blocked(&samples),
            daemon: daemon.and_then(|pid| daemon::assess(&samples, first, pid)),
            limits: cgroup::assess(&samples.begin.limits, &end.limits),
            disks,
            shims: Shims::of(&samples),
            kubelet: kubelet::assess(&samples),
            unreadable,
            ..Host::default()
        }
    }

    async fn sample(&mut self, daemon: Option<u32>, thorough: bool) -> Result<Samples, String> {
        let (target, last) = (self.target.clone(), Arc::clone(&self.last));
        let take = move || Sample::take(&target, daemon, thorough, &last);
        let end = alone(&self.processes, SAMPLE_DEADLINE, take).await?;
        let end = Arc::new(end.map_err(|error| error.to_string())?);
        let begin = std::mem::replace(&mut self.last, Arc::clone(&end));
        self.is_due_soon = !self.is_due_soon && end.suspects(&begin);
        Ok(Samples { begin, end })
    }

    /// The process that listens on the socket. Connects only if the known one has ended: a hung runtime may not accept.
    async fn listener(&self) -> Result<Option<u32>, String> {
        let Some(socket) = &self.target.socket else {
            return Ok(None);
        };
        let proc = Proc::below(&self.target.root);
        let now = self.daemon.and_then(|pid| proc.process(pid));
        match now.filter(|now| !now.is_dead() && self.last.same(now).is_some()) {
            Some(known) => Ok(Some(known.pid)),
            None => daemon::listener(socket).await.map(Some),
        }
    }
}

/// Runs blocking work. Fails if it does not end in time (its thread goes on), or if earlier work has not ended yet.
async fn alone<T: Send + 'static>(
    one: &Arc<Semaphore>,
    deadline: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let Ok(permit) = Arc::clone(one).try_acquire_owned() else {
        return Err("an earlier read still hangs".to_owned());
    };
    let work = move || {
        let _until_it_ends = permit;
        work()
    };
    match tokio::time::timeout(deadline, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(_)) => Err("the read failed".to_owned()),
        Err(_) => Err(format!("no answer within {} s", deadline.as_secs())),
    }
}

/// The root of the host's files. A container with the PID namespace of the host finds it as the root of process 1.
fn host_files(root: &Path) -> PathBuf {
    let namespace = |pid: &str| fs::read_link(root.join(format!("proc/{pid}/ns/mnt"))).ok();
    match (namespace("self"), namespace("1")) {
        (Some(own), Some(host)) if own != host => root.join("proc/1/root"),
        _ => root.to_owned(),
    }
}

fn on_host(root: &Path, path: &str) -> PathBuf {
    host_files(root).join(path.trim_start_matches('/'))
}

pub(crate) fn check(host: &Host, calls: Calls<'_>) -> Vec<Finding> {
    let daemon = host.daemon.as_ref();
    let limits = cgroup::check(&host.limits, daemon);
    let limited = limits.iter().any(|f| f.code == "daemon_memory_limit");
    let mut findings = mounts::check(&host.mounts, calls);
    findings.extend(disks::check(&host.disks));
    findings.extend(limits);
    findings.extend(daemon::check(host, limited));
    findings.extend(shims::check(&host.shims, daemon, calls));
    findings.extend(host.systemd.as_ref().and_then(systemd::check));
    // If no other finding explains slow calls, pressure does. Pressure may also cause findings with destructive advice.
    let explains = |finding: &Finding| !finding.explains.is_empty() && !finding.destroys();
    let explained = findings.iter().any(explains);
    findings.extend(pressure::check(host, calls, explained));
    findings.extend(host.kubelet.iter().flat_map(kubelet::check));
    findings
}

fn quoted(text: &str) -> Cow<'_, str> {
    shlex::try_quote(text).unwrap_or_default()
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}

fn command(words: &[OsString]) -> Command {
    let mut words = words.iter();
    let mut command = Command::new(words.next().map(OsString::as_os_str).unwrap_or_default());
    command.args(words).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// The next step about a stopped process.
fn stopped(pid: impl Display) -> String {
    format!("Find out who stopped it (a debugger, SIGSTOP); then continue it: `kill -CONT {pid}`")
}
const STOPPED: &str = "its state is T at the start and at the end";

/// The next step about a process blocked in the kernel functions `places`. `disk`: the step if it waits for a disk.
fn what_blocks(places: &[String], disk: String) -> String {
    let all = |words: &[&str]| {
        let is_one = |place: &String| words.iter().any(|word| place.contains(word));
        !places.is_empty() && places.iter().all(is_one)
    };
    let frozen = "It is frozen. Find out what froze its control group (freezer.state, cgroup.freeze), and thaw it.";
    let memory = "It waits for memory: its control group is at its limit. Find what uses the memory (memory.stat), or raise \
                  the limit.";
    match disk {
        _ if all(&["refrigerator", "freezer"]) => frozen.to_owned(),
        _ if all(&["mem_cgroup", "try_charge"]) => memory.to_owned(),
        disk => disk,
    }
}

fn blocked_evidence(places: &[String]) -> String {
    let places = places.iter().sorted().dedup().join(", ");
    format!("state D all the time, in {places}")
}

#[cfg(test)]
pub(crate) mod tests;
