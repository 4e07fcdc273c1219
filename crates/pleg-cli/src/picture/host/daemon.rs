//! The process of the container runtime: the one that listens on the CRI socket.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use super::cgroup::thaw;
use super::sample::Samples;
use super::{CALLS, Host, blocked_evidence, rounded, share, what_blocks};
use crate::picture::finding::{Finding, Layer, Severity};

/// How long to wait for a connection.
const DEADLINE: Duration = Duration::from_secs(2);
/// The share of the open files at which a process or the system is close to its limit.
const FULL: f64 = 0.9;
/// A daemon that is younger has been restarted during an incident.
const YOUNG: f64 = 600.0;

/// The process of the container runtime.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Daemon {
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// It was stopped at the begin and at the end.
    pub(crate) stopped: bool,
    /// The control group that was frozen at the begin and at the end.
    pub(crate) frozen: Option<String>,
    /// Threads that were blocked in the kernel all the time: where they wait.
    pub(crate) blocked: Vec<String>,
    pub(crate) descriptors: Option<Descriptors>,
    pub(crate) threads: u64,
    pub(crate) resident_bytes: u64,
    /// The CPU time that it used, in CPUs.
    pub(crate) cpus: f64,
    /// How many of its threads waited for a CPU, on average.
    pub(crate) waiting_for_cpu: Option<f64>,
    pub(crate) age_seconds: Option<f64>,
    /// Another process listened on the socket at the begin.
    pub(crate) replaced: bool,
}

/// Open files and their limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Descriptors {
    pub(crate) open: u64,
    pub(crate) limit: u64,
}

impl Descriptors {
    pub(super) fn new((open, limit): (u64, u64)) -> Self {
        Self { open, limit }
    }

    fn is_full(self) -> bool {
        self.limit > 0 && share(self.open, self.limit) >= FULL
    }

    fn shown(self, what: &str) -> String {
        format!("{} of {} {what}", self.open, self.limit)
    }
}

/// The process that listens on the socket. systemd or a process that is not visible from here are not
/// the daemon.
pub(super) async fn listener(socket: &Path) -> Result<u32, String> {
    let failed = |why: String| format!("the process that listens on {}: {why}", socket.display());
    let stream = tokio::time::timeout(DEADLINE, UnixStream::connect(socket)).await;
    let stream = stream
        .map_err(|_| failed("no connection within 2 s".to_owned()))?
        .map_err(|error| failed(error.to_string()))?;
    let peer = stream.peer_cred().map_err(|e| failed(e.to_string()))?;
    match peer.pid().map(u32::try_from) {
        Some(Ok(1)) => Err(failed("systemd listens for it".to_owned())),
        Some(Ok(pid)) if pid > 1 => Ok(pid),
        _ => Err(failed("it is not visible from here".to_owned())),
    }
}

/// What two samples show of the daemon. `first` listened at the begin, `pid` at the end.
pub(super) fn assess(samples: &Samples, first: Option<u32>, pid: u32) -> Option<Daemon> {
    let after = samples.end.processes.get(&pid)?;
    let before = samples.begin.processes.get(&pid).filter(|p| p.is(after));
    let watched = samples.end.watched.get(&pid);
    Some(Daemon {
        pid,
        name: after.name.clone(),
        stopped: after.is_stopped() && before.is_some_and(crate::proc::Process::is_stopped),
        frozen: samples
            .end
            .frozen
            .get(&pid)
            .filter(|group| samples.begin.frozen.get(&pid) == Some(group))
            .cloned(),
        blocked: samples.blocked_threads(pid),
        descriptors: watched
            .and_then(|watched| watched.descriptors)
            .map(Descriptors::new),
        threads: after.threads,
        resident_bytes: after.resident(),
        cpus: before.map_or(0.0, |before| {
            rounded(after.cpu_since(before) / samples.seconds())
        }),
        waiting_for_cpu: samples.waiting_for_cpu(pid),
        age_seconds: samples.end.uptime.map(|uptime| rounded(after.age(uptime))),
        replaced: first.is_some_and(|first| first != pid),
    })
}

/// `limited`: a finding says that it is at its memory limit, where each thread that needs a page waits.
pub(super) fn check(host: &Host, limited: bool) -> Vec<Finding> {
    let full = [
        host.files
            .and_then(|files| host_full(files, "host_descriptors", "open files", "fs.file-max")),
        host.threads.and_then(|all| {
            host_full(
                all,
                "host_pids",
                "threads",
                "kernel.threads-max and kernel.pid_max",
            )
        }),
    ];
    let mut findings: Vec<Finding> = full.into_iter().flatten().collect();
    let Some(daemon) = &host.daemon else {
        return findings;
    };
    if daemon.stopped {
        findings.push(stopped(daemon));
    } else if let Some(group) = &daemon.frozen {
        findings.push(frozen(daemon, group));
    } else if !daemon.blocked.is_empty() && !limited {
        findings.push(blocked(daemon));
    }
    findings.extend(daemon.descriptors.and_then(|d| descriptors(daemon, d)));
    findings.extend(restarted(daemon));
    findings
}

fn stopped(daemon: &Daemon) -> Finding {
    let (name, pid) = (&daemon.name, daemon.pid);
    let summary = format!("the runtime is stopped ({name}, pid {pid})");
    let next = format!(
        "Find out who stopped it (a debugger, SIGSTOP); then continue it: `kill -CONT {pid}`"
    );
    Finding::new(
        "daemon_stopped",
        Layer::Runtime,
        Severity::Critical,
        summary,
        next,
    )
    .because("its state is T at the begin and at the end")
    .explains(CALLS)
}

fn frozen(daemon: &Daemon, group: &str) -> Finding {
    let summary = format!(
        "the runtime is frozen ({}, pid {})",
        daemon.name, daemon.pid
    );
    let next = format!(
        "Find out who froze its control group; then thaw it: {}",
        thaw(group)
    );
    Finding::new(
        "daemon_frozen",
        Layer::Runtime,
        Severity::Critical,
        summary,
        next,
    )
    .because(format!("{group} is frozen"))
    .explains(CALLS)
}

fn blocked(daemon: &Daemon) -> Finding {
    let pid = daemon.pid;
    let summary = format!(
        "the runtime has {} blocked in the kernel ({}, pid {pid})",
        threads(daemon.blocked.len()),
        daemon.name,
    );
    let disk = format!(
        "Find the disk or mount for which it waits: `dmesg`; `cat /proc/{pid}/task/*/stack`"
    );
    let next = what_blocks(&daemon.blocked, disk);
    Finding::new(
        "daemon_blocked",
        Layer::Runtime,
        Severity::Warning,
        summary,
        next,
    )
    .because(blocked_evidence(&daemon.blocked))
    .explains(CALLS)
}

fn threads(number: usize) -> String {
    match number {
        1 => "a thread".to_owned(),
        n => format!("{n} threads"),
    }
}

fn descriptors(daemon: &Daemon, descriptors: Descriptors) -> Option<Finding> {
    descriptors.is_full().then(|| {
        let pid = daemon.pid;
        let summary = format!("the runtime is close to its limit of open files ({}, pid {pid})", daemon.name);
        let twice = descriptors.limit.saturating_mul(2).max(1024);
        let next = format!(
            "Raise it: `prlimit --pid {pid} --nofile={twice}:{twice}`, and LimitNOFILE of its unit; see what it has \
             open: `ls -l /proc/{pid}/fd`"
        );
        Finding::new("daemon_descriptors", Layer::Runtime, Severity::Warning, summary, next)
            .because(descriptors.shown("descriptors are open"))
            .explains(CALLS)
    })
}

fn host_full(used: Descriptors, code: &'static str, what: &str, setting: &str) -> Option<Finding> {
    used.is_full().then(|| {
        let summary = format!("the host is close to its limit of {what}");
        let next = match code {
            "host_pids" => "Find the process with most threads: `ps -eo nlwp,pid,comm | sort -n | tail`",
            _ => "Find the process with most of them: `lsof -n | awk '{print $2, $1}' | sort | uniq -c | sort -n | tail`",
        };
        Finding::new(code, Layer::Host, Severity::Warning, summary, format!("{next}; or raise {setting}"))
            .because(used.shown(&format!("{what} exist on the whole host")))
            .explains(CALLS)
    })
}

fn restarted(daemon: &Daemon) -> Option<Finding> {
    let age = daemon.age_seconds.filter(|age| *age < YOUNG);
    if age.is_none() && !daemon.replaced {
        return None;
    }
    let severity = if daemon.replaced {
        Severity::Warning
    } else {
        Severity::Info
    };
    let summary = if daemon.replaced {
        format!(
            "the runtime restarted during the examination (now pid {})",
            daemon.pid
        )
    } else {
        format!(
            "the runtime restarted recently ({}, pid {})",
            daemon.name, daemon.pid
        )
    };
    let finding = Finding::new(
        "daemon_restarted",
        Layer::Runtime,
        severity,
        summary,
        "Read its log for the cause (journalctl -u containerd, -u crio); look for the OOM killer (dmesg).",
    );
    Some(match age {
        Some(age) => finding.because(format!("the process is {age:.0} s old")),
        None => finding,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::host::fake::FakeHost;
    use tokio::net::UnixListener;

    #[test]
    fn daemon_is_assessed_from_two_samples() {
        let host = FakeHost::new();
        host.busy(800, "containerd", 100);
        host.thread(800, 801, 'D', 3, "rpc_wait");
        host.write("proc/800/fd/0", "");
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files   1024  4096  files\n";
        host.write("proc/800/limits", limits);
        let samples = host.samples(Some(800), |host| host.busy(800, "containerd", 300));
        let daemon = assess(&samples, Some(800), 800).unwrap();
        assert_eq!(daemon.name, "containerd");
        assert_eq!(daemon.blocked, ["rpc_wait"]);
        let descriptors = Descriptors {
            open: 1,
            limit: 1024,
        };
        assert_eq!(daemon.descriptors, Some(descriptors));
        assert!((daemon.cpus - 0.5).abs() < 0.01, "{daemon:?}");
        assert!(
            daemon
                .age_seconds
                .is_some_and(|age| (age - 4000.0).abs() < 1.0)
        );
        assert!(!daemon.stopped && !daemon.replaced);
        assert!(assess(&samples, Some(799), 800).unwrap().replaced);
        assert_eq!(assess(&samples, None, 9), None);
    }

    #[test]
    fn daemon_is_stopped_only_if_it_is_at_begin_and_end() {
        let host = FakeHost::new();
        for (first, last, stopped) in [('T', 'T', true), ('S', 'T', false), ('t', 't', true)] {
            host.process(800, "containerd", first, 1);
            let samples = host.samples(Some(800), |host| host.process(800, "containerd", last, 1));
            assert_eq!(assess(&samples, None, 800).unwrap().stopped, stopped);
        }
    }

    #[tokio::test]
    async fn listener_is_found_by_its_socket() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("cri.sock");
        let why = listener(&socket).await.unwrap_err();
        assert!(why.contains("cri.sock: No such file"), "{why}");
        let _bound = UnixListener::bind(&socket).unwrap();
        assert_eq!(listener(&socket).await, Ok(std::process::id()));
    }
}
