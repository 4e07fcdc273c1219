//! Reads `/proc`.
//!
//! Callers read the command lines of shims, runtimes and kubelets only: the read takes a lock on the process's memory,
//! which a thread in state D may hold.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};
use serde::{Deserialize, Serialize};

use crate::bounded;

/// The initial PID namespace has the same number on every Linux kernel (`PROC_PID_INIT_INO`).
pub(crate) const HOST_PIDS: &str = "pid:[4026531836]";

/// A process or a thread, as its `stat` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// The name of the program, at most 15 characters.
    pub(crate) name: String,
    /// The state, as in `ps`: R, S, D, T, t, Z or I.
    pub(crate) state: char,
    pub(crate) parent: u32,
    pub(crate) threads: u64,
    /// CPU time, in clock ticks.
    ticks: u64,
    /// The virtual memory of the process in bytes.
    pub(crate) memory: u64,
    /// Clock ticks from the boot to the start of the process. Two processes with the same PID have different numbers.
    started: u64,
    pages: u64,
}

impl Process {
    fn parse(stat: &str) -> Option<Self> {
        // The second field is the name, in parentheses. It may contain any character.
        let (head, rest) = stat.rsplit_once(')')?;
        let (pid, name) = head.split_once(" (")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field)?.parse::<u64>().ok();
        Some(Self {
            pid: pid.trim().parse().ok()?,
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            threads: number(17)?,
            ticks: number(11)?.checked_add(number(12)?)?,
            started: number(19)?,
            memory: number(20)?,
            pages: number(21)?,
        })
    }

    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Returns true for a zombie. A process that has lost only its first thread has the same state, but more threads.
    pub(crate) fn is_dead(&self) -> bool {
        self.state == 'X' || self.state == 'Z' && self.threads <= 1
    }

    /// Returns true if `other` is the same process, and not another one with the same PID.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.pid == other.pid && self.started == other.started
    }

    /// The CPU time that the process has used since an earlier sample, in seconds.
    pub(crate) fn cpu_since(&self, before: &Self) -> f64 {
        seconds(self.ticks.saturating_sub(before.ticks))
    }

    /// The time of the process's start in seconds of Unix time, if the system started at `boot`.
    pub(crate) fn started_at(&self, boot: f64) -> f64 {
        boot + seconds(self.started)
    }

    /// The age of the process in seconds, if the system has been up for `uptime` seconds.
    pub(crate) fn age(&self, uptime: f64) -> f64 {
        (uptime - seconds(self.started)).max(0.0)
    }

    pub(crate) fn resident(&self) -> u64 {
        let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
        let page = page.and_then(|bytes| u64::try_from(bytes).ok());
        self.pages.saturating_mul(page.unwrap_or(4096))
    }
}

fn seconds(ticks: u64) -> f64 {
    let second = sysconf(SysconfVar::CLK_TCK).ok().flatten();
    ticks as f64 / second.filter(|ticks| *ticks > 0).unwrap_or(100) as f64
}

/// The owner of a process, by its real user and control group: root outside of pods, root in a pod, or another user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Belongs {
    System,
    Pod,
    User,
}

/// Returns true if a line of `/proc/PID/cgroup` names the control group of a pod.
fn is_pods(line: &str) -> bool {
    // If this process has its own control group namespace, paths of groups outside of this namespace begin with `/..`.
    let path = line.splitn(3, ':').nth(2).unwrap_or_default();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let is_digit = |c: char| c.is_ascii_hexdigit() || matches!(c, '-' | '_');
    let is_uid = |uid: &str| uid.len() >= 32 && uid.chars().all(is_digit);
    let is_pod = |part: &str| {
        let part = part.strip_suffix(".slice").unwrap_or(part);
        part.contains("kubepods") || part.rsplit_once("pod").is_some_and(|(_, uid)| is_uid(uid))
    };
    // If a pod has no parent group, containerd puts its containers below /k8s.io.
    let Some(last) = parts.iter().rposition(|part| is_pod(part)) else {
        return parts.first() == Some(&"k8s.io");
    };
    // CRI-O may put conmon, a container's monitor, into the group of the pod. It is not a part of the pod.
    let below = parts.get(last + 1);
    !below.is_some_and(|part| part.starts_with("crio-conmon-"))
}

/// A process or thread in state D.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    switches: Option<u64>,
    /// The function of the kernel in which the thread waits.
    pub(crate) at: Option<String>,
}

impl Blocked {
    /// Returns true if the thread has not run since an earlier sample.
    pub(crate) fn since(&self, before: &Self) -> bool {
        self.switches.is_some() && self.switches == before.switches
    }
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, derive_more::Display,
)]
#[serde(default)]
#[display("{open} of {limit}")]
pub(crate) struct Open {
    pub(crate) open: u64,
    pub(crate) limit: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Proc(PathBuf);

impl Proc {
    pub(crate) fn below(root: &Path) -> Self {
        Self(root.join("proc"))
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    pub(crate) fn shows_host(&self) -> bool {
        let namespace = fs::read_link(self.path("self/ns/pid"));
        namespace.is_ok_and(|namespace| namespace == Path::new(HOST_PIDS))
            && self.read("1/cmdline").is_ok()
    }

    /// The text of a file of the kernel. Without the file type check of [`bounded::read`], which takes 3 system calls.
    pub(crate) fn read(&self, path: &str) -> io::Result<String> {
        let mut bytes = Vec::with_capacity(1024);
        let file = fs::File::open(self.path(path))?;
        file.take(1 << 20).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A figure in a file of the kernel: its word number `n`, counted from 0.
    pub(crate) fn word<T: FromStr>(&self, path: &str, n: usize) -> Option<T> {
        let text = self.read(path).ok()?;
        text.split_whitespace().nth(n)?.parse().ok()
    }

    /// The path by which this program reaches a file that another process sees at `path`.
    pub(crate) fn inside(&self, pid: u32, path: &str) -> PathBuf {
        let root = self.path(&format!("{pid}/root"));
        root.join(path.trim_start_matches('/'))
    }

    pub(crate) fn mounts(&self, process: impl Display) -> io::Result<String> {
        // Read up to 16 MiB: the line for the mount of an image with many layers has several KiB.
        bounded::read_up_to(&self.path(&format!("{process}/mountinfo")), 16 << 20)
    }

    pub(crate) fn belongs(&self, pid: u32) -> Option<Belongs> {
        let real: u32 = number(&self.read(&format!("{pid}/status")).ok()?, "Uid:")?;
        let groups = self.read(&format!("{pid}/cgroup")).ok()?;
        Some(match real {
            0 if groups.lines().any(is_pods) => Belongs::Pod,
            0 => Belongs::System,
            _ => Belongs::User,
        })
    }

    pub(crate) fn pids(&self) -> io::Result<impl Iterator<Item = u32> + use<>> {
        numbers(&self.0)
    }

    /// The process or thread in this directory of `/proc`. Returns `None` if the process has ended.
    pub(crate) fn process(&self, directory: impl Display) -> Option<Process> {
        // The kernel returns the file, which is shorter than the buffer, in one read, so no second read is needed.
        let mut bytes = [0; 1024];
        let mut file = fs::File::open(self.path(&format!("{directory}/stat"))).ok()?;
        let length = file.read(&mut bytes).ok()?;
        Process::parse(&String::from_utf8_lossy(bytes.get(..length)?))
    }

    pub(crate) fn arguments(&self, pid: u32) -> Option<Vec<String>> {
        let line = self.read(&format!("{pid}/cmdline")).ok()?;
        let line = line.strip_suffix('\0').unwrap_or(&line);
        Some(line.split('\0').map(str::to_owned).collect())
    }

    fn threads(&self, pid: u32) -> impl Iterator<Item = (u32, String)> + use<> {
        let threads = numbers(&self.path(&format!("{pid}/task")));
        let threads = threads.into_iter().flatten();
        threads.map(move |thread| (thread, format!("{pid}/task/{thread}")))
    }

    pub(crate) fn blocked_threads(&self, pid: u32) -> BTreeMap<u32, Blocked> {
        let threads = self.threads(pid);
        let blocked = threads.filter(|(_, dir)| self.process(dir).is_some_and(|t| t.state == 'D'));
        let blocked = blocked.map(|(thread, dir)| (thread, self.blocked(dir)));
        blocked.collect()
    }

    /// The sum of the times that the threads of a process have waited for a CPU.
    pub(crate) fn waited(&self, pid: u32) -> Option<Duration> {
        // Word 0 of `schedstat` is the time on a CPU, and word 1 the time of waiting for a CPU, in nanoseconds.
        let waited = |(_, dir)| self.word(&format!("{dir}/schedstat"), 1);
        let waited = self.threads(pid).filter_map(waited);
        waited.reduce(u64::saturating_add).map(Duration::from_nanos)
    }

    pub(crate) fn blocked(&self, directory: impl Display) -> Blocked {
        let status = self.read(&format!("{directory}/status"));
        let status = status.unwrap_or_default();
        let of_own: Option<u64> = number(&status, "voluntary_ctxt_switches:");
        let forced = number(&status, "nonvoluntary_ctxt_switches:");
        let at = self.read(&format!("{directory}/wchan")).ok();
        let switches = of_own.zip(forced).map(|(a, b)| a.saturating_add(b));
        let at = at.filter(|function| !function.is_empty() && function != "0");
        Blocked { switches, at }
    }

    pub(crate) fn descriptors(&self, pid: u32) -> Option<Open> {
        let open = fs::read_dir(self.path(&format!("{pid}/fd"))).ok()?.count() as u64;
        let limit = number(&self.read(&format!("{pid}/limits")).ok()?, "Max open files")?;
        Some(Open { open, limit })
    }

    pub(crate) fn files(&self) -> Option<Open> {
        let figure = |n| self.word("sys/fs/file-nr", n);
        let (open, limit) = (figure(0)?, figure(2)?);
        Some(Open { open, limit })
    }

    /// The time of the boot in seconds of Unix time.
    pub(crate) fn boot(&self) -> Option<f64> {
        number(&self.read("stat").ok()?, "btime")
    }
}

fn numbers(directory: &Path) -> io::Result<impl Iterator<Item = u32> + use<>> {
    let entries = fs::read_dir(directory)?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// The number after the name of a field at the start of a line.
pub(crate) fn number<T: FromStr>(text: &str, field: &str) -> Option<T> {
    let rest = text.lines().find_map(|line| line.strip_prefix(field))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_with_spaces_and_parentheses_is_parsed() {
        let stat = "42 (a) b (c) D 7 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0 3 0 900 4096000 16 0";
        let process = Process::parse(stat).unwrap();
        let numbers = (process.pid, process.parent, process.threads, process.memory);
        assert_eq!(numbers, (42, 7, 3, 4_096_000));
        let name = (&*process.name, process.state, process.resident() % 16);
        assert_eq!(name, ("a) b (c", 'D', 0));
        let times = [process.age(19.0), process.started_at(1000.0)];
        assert_eq!(times.map(|time| time.round() as u64), [10, 1009]);
        for stat in ["", "42", "42 (x)", "42 (x) R 1", "x (x) R 1 1", "42 x R"] {
            assert_eq!(Process::parse(stat), None, "{stat}");
        }
    }

    const OF_PODS: &str = "
        0::/kubepods/burstable/podUID/ID
        4:memory:/kubepods/besteffort/podHEX/ID
        0::/kubepods.slice/kubepods-podSLICE.slice/cri-containerd-ID.scope
        0::/kubelet/kubepods/podUID/ID
        0::/../../podUID/ID
        0::/../kubepods-burstable-podSLICE.slice/crio-ID.scope/crio-conmon-x
        0::/k8s.io/ID";
    const OF_OTHERS: &str = "
        0::/system.slice/kubelet.service
        0::/../../system.slice/containerd.service
        0::/
        0::/podruntime/kubelet
        0::/docker/ID
        0::/kubepods.slice/kubepods-podSLICE.slice/crio-conmon-ID.scope";

    #[test]
    fn only_control_groups_of_pods_are_recognized_as_such() {
        let uid = "0b5c3a1e-2f4d-4c6b-8a7e-9d0f1a2b3c4d";
        for (lines, expected) in [(OF_PODS, true), (OF_OTHERS, false)] {
            let lines = lines.replace("SLICE", &uid.replace('-', "_"));
            let lines = lines.replace("HEX", &uid.replace('-', ""));
            let lines = lines.replace("UID", uid).replace("ID", &"f".repeat(64));
            for line in lines.trim().lines() {
                assert_eq!(is_pods(line.trim()), expected, "{line}");
            }
        }
    }

    #[test]
    fn plausible_values_are_read_from_proc_of_own_process() {
        let proc = Proc::below(Path::new("/"));
        let own = proc.process(std::process::id()).unwrap();
        assert!(proc.process("self").unwrap().is(&own));
        assert!(own.started_at(proc.boot().unwrap()) > 1e9 && proc.waited(own.pid).is_some());
        assert!(own.threads > 1 && own.resident() > 1 << 20, "{own:?}");
        assert!(own.age(proc.word("uptime", 0).unwrap()) < 3600.0 * 24.0);
        assert!(proc.pids().unwrap().any(|pid| pid == own.pid));
        for used in [proc.descriptors(own.pid), proc.files()] {
            assert!(used.is_some_and(|used| used.open > 2 && used.open < used.limit));
        }
    }
}
