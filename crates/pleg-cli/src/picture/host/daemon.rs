//! The process of the container runtime: the one that listens on the CRI socket.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use super::sample::Samples;
use super::{CALLS, blocked_evidence, rounded, share, what_blocks};
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

    fn shown(self) -> String {
        format!("{} of {} descriptors are open", self.open, self.limit)
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

pub(super) fn check(daemon: Option<&Daemon>, files: Option<Descriptors>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = files.and_then(host_descriptors).into_iter().collect();
    let Some(daemon) = daemon else {
        return findings;
    };
    if daemon.stopped {
        findings.push(stopped(daemon));
    } else if !daemon.blocked.is_empty() {
        findings.push(blocked(daemon));
    }
    findings.extend(daemon.descriptors.and_then(|d| descriptors(daemon, d)));
    findings.extend(restarted(daemon));
    findings
}

fn stopped(daemon: &Daemon) -> Finding {
    let summary = format!(
        "the runtime is stopped ({}, pid {})",
        daemon.name, daemon.pid
    );
    Finding::new(
        "daemon_stopped",
        Layer::Runtime,
        Severity::Critical,
        summary,
        "Find out who stopped it (a debugger, SIGSTOP, the freezer); then send SIGCONT.",
    )
    .because("its state is T at the begin and at the end")
    .explains(CALLS)
}

fn blocked(daemon: &Daemon) -> Finding {
    let summary = format!(
        "the runtime has {} blocked in the kernel ({}, pid {})",
        threads(daemon.blocked.len()),
        daemon.name,
        daemon.pid
    );
    Finding::new(
        "daemon_blocked",
        Layer::Runtime,
        Severity::Warning,
        summary,
        what_blocks(
            &daemon.blocked,
            "Find the disk or mount for which it waits (dmesg; /proc/PID/task/*/stack).",
        ),
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
        Finding::new(
            "daemon_descriptors",
            Layer::Runtime,
            Severity::Warning,
            format!(
                "the runtime is close to its limit of open files ({}, pid {})",
                daemon.name, daemon.pid
            ),
            "Raise LimitNOFILE of its unit; find out what it has open (ls -l /proc/PID/fd).",
        )
        .because(descriptors.shown())
        .explains(CALLS)
    })
}

fn host_descriptors(files: Descriptors) -> Option<Finding> {
    files.is_full().then(|| {
        Finding::new(
            "host_descriptors",
            Layer::Host,
            Severity::Warning,
            "the host is close to its limit of open files",
            "Find the process that has most of them open; raise fs.file-max.",
        )
        .because(format!("on the whole host, {}", files.shown()))
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
    use crate::picture::host::fake::{FakeHost, codes};
    use crate::picture::host::sample::Sample;
    use tokio::net::UnixListener;

    fn daemon() -> Daemon {
        Daemon {
            pid: 800,
            name: "containerd".to_owned(),
            age_seconds: Some(86_400.0),
            ..Daemon::default()
        }
    }

    #[test]
    fn findings_follow_from_the_evidence() {
        use Severity::{Critical, Info, Warning};
        let full = Some(Descriptors {
            open: 90,
            limit: 100,
        });
        let stopped = Daemon {
            stopped: true,
            ..daemon()
        };
        let blocked = Daemon {
            blocked: vec!["nfs_wait".to_owned()],
            ..daemon()
        };
        let both = Daemon {
            stopped: true,
            ..blocked.clone()
        };
        let open = Daemon {
            descriptors: full,
            ..daemon()
        };
        let spare = Daemon {
            descriptors: Some(Descriptors {
                open: 89,
                limit: 100,
            }),
            ..daemon()
        };
        let young = Daemon {
            age_seconds: Some(59.0),
            ..daemon()
        };
        let replaced = Daemon {
            replaced: true,
            ..daemon()
        };
        for (daemon, files, found) in [
            (None, None, vec![]),
            (Some(daemon()), None, vec![]),
            (Some(stopped), None, vec![("daemon_stopped", Critical)]),
            (Some(blocked), None, vec![("daemon_blocked", Warning)]),
            (Some(both), None, vec![("daemon_stopped", Critical)]),
            (Some(open), None, vec![("daemon_descriptors", Warning)]),
            (Some(spare), None, vec![]),
            (None, full, vec![("host_descriptors", Warning)]),
            (Some(young), None, vec![("daemon_restarted", Info)]),
            (Some(replaced), None, vec![("daemon_restarted", Warning)]),
        ] {
            let findings = check(daemon.as_ref(), files);
            assert_eq!(codes(&findings), found, "{daemon:?}");
        }
    }

    #[test]
    fn daemon_is_assessed_from_two_samples() {
        let host = FakeHost::new();
        host.busy(800, "containerd", 100);
        host.thread(800, 801, 'D', 3, "rpc_wait");
        host.write("proc/800/fd/0", "");
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files   1024  4096  files\n";
        host.write("proc/800/limits", limits);
        let begin = Sample::take(host.root(), None, Some(800)).unwrap();
        host.busy(800, "containerd", 300);
        let end = Sample::take(host.root(), None, Some(800)).unwrap();
        let samples = Samples::new(begin, end, Duration::from_secs(4));
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
            let begin = Sample::take(host.root(), None, Some(800)).unwrap();
            host.process(800, "containerd", last, 1);
            let end = Sample::take(host.root(), None, Some(800)).unwrap();
            let samples = Samples::new(begin, end, Duration::from_secs(4));
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
