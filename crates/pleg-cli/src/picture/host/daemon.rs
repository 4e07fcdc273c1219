//! The process of the container runtime: the one that listens on the CRI socket.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use super::cgroup::thaw;
use super::kinds::*;
use super::sample::{Samples, Seen};
use super::{Host, STOPPED, blocked_evidence, rounded, share, stopped, what_blocks};
use crate::picture::finding::{Finding, Severity};
use crate::proc::Open;

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
    /// It was stopped at the start and at the end.
    pub(crate) stopped: bool,
    /// The control group that was frozen at the start and at the end.
    pub(crate) frozen: Option<String>,
    /// Threads that were blocked in the kernel all the time: where they wait.
    pub(crate) blocked: Vec<String>,
    pub(crate) descriptors: Option<Open>,
    pub(crate) threads: u64,
    pub(crate) resident_bytes: u64,
    /// The CPU time that it used, in CPUs.
    pub(crate) cpus: f64,
    /// How many of its threads waited for a CPU, on average.
    pub(crate) waiting_for_cpu: Option<f64>,
    pub(crate) age_seconds: Option<f64>,
    /// Another process listened on the socket at the start.
    pub(crate) replaced: bool,
}

/// Those that are close to their limit.
fn full(used: Option<Open>) -> Option<Open> {
    used.filter(|used| used.limit > 0 && share(used.open, used.limit) >= FULL)
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

/// What two samples show of the daemon. `first` listened at the start, `pid` at the end.
pub(super) fn assess(samples: &Samples, first: Option<u32>, pid: u32) -> Option<Daemon> {
    let (end, seen) = (&samples.end, samples.end.processes.get(&pid)?);
    let (process, lasting) = (&seen.process, samples.lasts(seen));
    let used = |before: &Seen| process.cpu_since(&before.process) / samples.seconds();
    Some(Daemon {
        pid,
        name: process.name.clone(),
        stopped: lasting.stopped,
        frozen: lasting.frozen,
        blocked: lasting.blocked,
        descriptors: end.descriptors,
        threads: process.threads,
        resident_bytes: process.resident(),
        cpus: rounded(samples.begin.same(process).map_or(0.0, used)),
        waiting_for_cpu: samples.waiting_for_cpu(),
        age_seconds: end.uptime.map(|uptime| rounded(process.age(uptime))),
        replaced: first.is_some_and(|first| first != pid),
    })
}

/// `limited`: a finding says that it is at its memory limit, where each thread that needs a page waits.
pub(super) fn check(host: &Host, limited: bool) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    findings.extend(full(host.files).map(|used| {
        let next = "Find the process with most of them: `lsof -n | awk '{print $2, $1}' | sort | uniq -c | sort -n | \
                    tail`; or raise fs.file-max";
        let finding = HOST_FILES.found("the host is close to its limit of open files", next);
        finding.because(format!("{used} descriptors are open on the whole host"))
    }));
    findings.extend(full(host.threads).map(|used| {
        let next = "Find the process with most of them: `ps -eo nlwp,pid,comm | sort -n | tail`; or raise \
                    kernel.pid_max and kernel.threads-max";
        let finding = HOST_PIDS.found("the host is close to its limit of threads", next);
        finding.because(format!("{used} threads exist on the whole host"))
    }));
    let Some(daemon) = &host.daemon else {
        return findings;
    };
    let (pid, who) = (daemon.pid, format!("{}, pid {}", daemon.name, daemon.pid));
    if daemon.stopped {
        let finding = DAEMON_STOPPED.found(format!("the runtime is stopped ({who})"), stopped(pid));
        findings.push(finding.because(STOPPED));
    } else if let Some(group) = &daemon.frozen {
        let thaw = thaw(group);
        let next = format!("Find out who froze its control group; then thaw it: {thaw}");
        let finding = DAEMON_FROZEN.found(format!("the runtime is frozen ({who})"), next);
        findings.push(finding.because(format!("{group} is frozen")));
    } else if !daemon.blocked.is_empty() && !limited {
        let threads = daemon.blocked.len();
        let disk = "Find the disk or mount for which it waits";
        let disk = format!("{disk}: `dmesg`; `cat /proc/{pid}/task/*/stack`");
        let summary = format!("{threads} threads of the runtime are blocked in the kernel ({who})");
        let finding = DAEMON_BLOCKED.found(summary, what_blocks(&daemon.blocked, disk));
        findings.push(finding.because(blocked_evidence(&daemon.blocked)));
    }
    findings.extend(full(daemon.descriptors).map(|used| {
        let twice = used.limit.saturating_mul(2).max(1024);
        let next = format!(
            "Raise it: `prlimit --pid {pid} --nofile={twice}:`, and LimitNOFILE of its unit; see what it has open: \
             `ls -l /proc/{pid}/fd`"
        );
        let summary = format!("the runtime is close to its limit of open files ({who})");
        let finding = DAEMON_FILES.found(summary, next);
        finding.because(format!("{used} descriptors are open"))
    }));
    findings.extend(restarted(daemon, &who));
    findings
}

fn restarted(daemon: &Daemon, who: &str) -> Option<Finding> {
    let age = daemon.age_seconds.filter(|age| *age < YOUNG);
    let (when, severity) = match daemon.replaced {
        true => ("during the examination", Severity::Warning),
        false => ("recently", Severity::Info),
    };
    let next = "Read its log for the cause (`journalctl -u containerd -u crio`); look for the OOM killer (`dmesg`)";
    let summary = format!("the runtime restarted {when} ({who})");
    let mut finding = DAEMON_RESTARTED.found(summary, next);
    finding.severity = severity;
    let finding = finding.because_of(age.map(|age| format!("the process is {age:.0} s old")));
    (daemon.replaced || age.is_some()).then_some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

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
