//! What the host shows: the runtime's process, shims, pressure, mounts, systemd, the kubelet.
//!
//! [`collect`] reads it, with a deadline for each part: whatever hangs is abandoned. What it returns is plain
//! data, so [`check`] finds the same in a recording.

mod bundles;
mod daemon;
#[cfg(test)]
mod fake;
mod kubelet;
mod mounts;
mod pressure;
mod sample;
mod shims;
mod systemd;

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pleg::core::Instant;
use pleg::runtime::clock::Clock;
use serde::{Deserialize, Serialize};

use self::daemon::{Daemon, Descriptors};
use self::kubelet::Kubelet;
use self::mounts::Mounts;
pub(crate) use self::mounts::answers as mount_answers;
use self::pressure::{BlockedProcess, Pressure};
use self::sample::{Sample, Samples};
use self::shims::Shims;
use self::systemd::Systemd;
use super::finding::Finding;

/// The hidden command that asks one mount.
pub(crate) const ASK_MOUNT: &str = "doctor-mount";

/// How long the processes may take to be read.
const SAMPLE_DEADLINE: Duration = Duration::from_secs(10);

/// The findings about calls that a cause on the host may explain.
const CALLS: &[&str] = &[
    "runtime_silent",
    "list_slow",
    "list_failed",
    "status_slow",
    "pods_hung",
    "pods_failing",
];

/// What the host shows. What could not be read is empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Host {
    pub(crate) cpus: usize,
    /// The load average of the last minute.
    pub(crate) load: Option<f64>,
    pub(crate) files: Option<Descriptors>,
    pub(crate) pressure: Pressure,
    /// Processes that were in state D all the time.
    pub(crate) blocked: Vec<BlockedProcess>,
    pub(crate) daemon: Option<Daemon>,
    pub(crate) shims: Shims,
    pub(crate) mounts: Mounts,
    pub(crate) systemd: Option<Systemd>,
    pub(crate) kubelet: Option<Kubelet>,
    /// What could not be read, and why.
    pub(crate) unreadable: Vec<String>,
}

impl Host {
    /// Changes the path of each mount.
    pub(crate) fn for_each_mount(&mut self, mut change: impl FnMut(&mut String)) {
        let mounts = &mut self.mounts;
        let all = mounts.hanging.iter_mut().chain(&mut mounts.slow);
        all.for_each(|mount| change(&mut mount.path));
    }
}

/// What the runtime's calls showed, as far as it decides what the host's evidence means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    /// A list or a status call was slow or hung.
    pub(crate) slow: bool,
    /// The namespace and name of each pod, by its uid.
    pub(crate) pods: BTreeMap<String, String>,
    /// The same by the id of a sandbox or container.
    pub(crate) sandboxes: BTreeMap<String, String>,
    /// The sandboxes that were listed as Ready before and after the host was examined, and their pods.
    pub(crate) ready: BTreeMap<String, String>,
    /// The containers that were listed as Running before and after the host was examined, and how to
    /// name them.
    pub(crate) running: BTreeMap<String, String>,
}

impl Calls {
    fn pod_of(&self, id: &str) -> String {
        let pod = self.sandboxes.get(id).or_else(|| self.ready.get(id));
        pod.cloned().unwrap_or_else(|| crate::text::short(id))
    }
}

/// What to examine, and by what.
#[derive(Clone, Debug)]
pub(crate) struct HostTarget {
    /// The runtime's socket.
    pub(crate) socket: Option<PathBuf>,
    /// `/` except in tests.
    pub(crate) root: PathBuf,
    /// The program and arguments that ask the mount whose path follows.
    ask_mount: Vec<OsString>,
    journalctl: OsString,
    /// The program that asks systemd.
    busctl: PathBuf,
    /// The kubelet's read-only port.
    read_only: SocketAddr,
}

impl HostTarget {
    /// This host and the runtime that serves the socket.
    pub(crate) fn new(socket: Option<PathBuf>) -> Self {
        let own = env::current_exe().unwrap_or_else(|_| "pleg".into());
        Self {
            socket,
            root: "/".into(),
            ask_mount: vec![own.into(), ASK_MOUNT.into()],
            journalctl: "journalctl".into(),
            busctl: "busctl".into(),
            read_only: SocketAddr::from(([127, 0, 0, 1], 10255)),
        }
    }
}

/// Examines the host for this time, and some seconds longer if parts of it hang.
pub(crate) async fn collect(target: &HostTarget, duration: Duration) -> Host {
    let clock = Clock::start();
    let until = clock.now().after(duration);
    let (processes, mounts, systemd, kubelet) = tokio::join!(
        processes(target, clock, until),
        mounts::collect(target, clock),
        systemd::collect(target),
        kubelet::collect(target, clock, until),
    );
    let mut host = Host {
        cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        ..Host::default()
    };
    let unreadable = &mut host.unreadable;
    let mut note = |why: Option<String>| unreadable.extend(why);
    let (mounts, why) = mounts;
    note(why);
    let (systemd, why) = systemd;
    note(why);
    let (kubelet, why) = kubelet;
    note(why);
    match processes {
        Ok((samples, listeners)) => {
            let pid = match listeners {
                Some((first, Ok(pid))) => Some((first.ok(), pid)),
                Some((_, Err(why))) => {
                    note(Some(why));
                    None
                }
                None => None,
            };
            if !samples.end.shows_host {
                note(Some(
                    "all processes of the host: not visible from here".to_owned(),
                ));
            }
            host.load = samples.end.load;
            host.files = samples.end.files.map(Descriptors::new);
            host.pressure = pressure::assess(&samples);
            host.blocked = pressure::blocked(&samples);
            host.shims = shims::assess(&samples);
            host.daemon = pid.and_then(|(first, pid)| daemon::assess(&samples, first, pid));
        }
        Err(why) => note(Some(format!("processes: {why}"))),
    }
    host.mounts = mounts;
    host.systemd = systemd;
    host.kubelet = kubelet;
    host
}

/// Two samples, and which process listened on the socket when they were taken.
type Processes = (Samples, Option<(Result<u32, String>, Result<u32, String>)>);

async fn processes(target: &HostTarget, clock: Clock, until: Instant) -> Result<Processes, String> {
    let socket = target.socket.as_deref();
    let listener = async || match socket {
        Some(socket) => Some(daemon::listener(socket).await),
        None => None,
    };
    let first = listener().await;
    let (begin, began) = (sample(target, first.as_ref()).await?, clock.now());
    clock.sleep_until(until).await;
    let last = listener().await;
    let (end, ended) = (sample(target, last.as_ref()).await?, clock.now());
    let samples = Samples::new(begin, end, ended.since(began));
    Ok((samples, first.zip(last)))
}

async fn sample(
    target: &HostTarget,
    listener: Option<&Result<u32, String>>,
) -> Result<Sample, String> {
    let (root, socket) = (target.root.clone(), target.socket.clone());
    let daemon = listener.and_then(|pid| pid.as_ref().ok()).copied();
    let read = move || Sample::take(&root, socket.as_deref(), daemon);
    within(SAMPLE_DEADLINE, read)
        .await?
        .map_err(|error| error.to_string())
}

/// What blocking work returns, if it does in time. It is abandoned otherwise.
async fn within<T: Send + 'static>(
    deadline: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    match tokio::time::timeout(deadline, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(result)) => Ok(result),
        Ok(Err(_)) => Err("the read failed".to_owned()),
        Err(_) => Err(format!("no answer within {} s", deadline.as_secs())),
    }
}

/// A path of the host, from here: in a container with the PID namespace of the host, its files are below
/// the root of process 1.
fn on_host(root: &Path, path: &str) -> PathBuf {
    let namespace = |pid: &str| std::fs::read_link(root.join(format!("proc/{pid}/ns/mnt"))).ok();
    let relative = path.trim_start_matches('/');
    match (namespace("self"), namespace("1")) {
        (Some(own), Some(host)) if own != host => root.join("proc/1/root").join(relative),
        _ => root.join(relative),
    }
}

/// The findings about the host.
pub(crate) fn check(host: &Host, calls: &Calls) -> Vec<Finding> {
    let daemon = host.daemon.as_ref();
    let mut findings = mounts::check(&host.mounts, calls);
    findings.extend(daemon::check(daemon, host.files));
    findings.extend(shims::check(&host.shims, daemon, calls));
    findings.extend(systemd::check(host.systemd.as_ref()));
    // What names one process or mount is the more likely cause of slow calls.
    let explained = findings.iter().any(|finding| !finding.explains.is_empty());
    findings.extend(pressure::check(host, calls, explained));
    findings.extend(kubelet::check(host.kubelet.as_ref()));
    findings
}

#[allow(
    clippy::cast_precision_loss,
    reason = "it is compared with round figures"
)]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// With four digits after the point, as it is recorded.
fn rounded(figure: f64) -> f64 {
    (figure * 1e4).round() / 1e4
}

/// The first names, each once, and how many more there are.
fn listed(names: &[String]) -> Option<String> {
    const SHOWN: usize = 3;
    let mut names = names.to_vec();
    names.dedup();
    match names.len() {
        0 => None,
        n if n <= SHOWN => Some(names.join(", ")),
        n => Some(format!(
            "{} and {} more",
            names[..SHOWN].join(", "),
            n - SHOWN
        )),
    }
}

/// Keeps the first lines, and says how many more there are.
fn shorten(lines: &mut Vec<String>) {
    const SHOWN: usize = 10;
    if let Some(more) = lines.len().checked_sub(SHOWN).filter(|more| *more > 0) {
        lines.truncate(SHOWN);
        lines.push(format!("and {more} more"));
    }
}

/// What to do about a process that waits in these functions of the kernel: `disk`, unless it waits for something else.
fn what_blocks(places: &[String], disk: &'static str) -> &'static str {
    let all = |words: &[&str]| {
        let is_one = |place: &String| words.iter().any(|word| place.contains(word));
        !places.is_empty() && places.iter().all(is_one)
    };
    if all(&["refrigerator", "freezer"]) {
        "It is frozen. Find out what froze its control group (freezer.state, cgroup.freeze), and thaw it."
    } else if all(&["mem_cgroup", "try_charge"]) {
        "It waits for memory: its control group is at its limit. Find what uses the memory (memory.stat), or raise the limit."
    } else {
        disk
    }
}

fn blocked_evidence(places: &[String]) -> String {
    let mut places = places.to_vec();
    places.sort();
    places.dedup();
    format!("state D all the time, in {}", places.join(", "))
}

#[cfg(test)]
mod tests;
