//! Shims: the process beside the containers of a sandbox (containerd) or of a container (CRI-O's conmon).

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::bundles::DeadInit;
use super::daemon::Daemon;
use super::sample::Samples;
use super::{Calls, blocked_evidence, listed, what_blocks};
use crate::kubelet::values;
use crate::picture::finding::{Finding, Layer, Severity};
use crate::proc::{Belongs, Proc, Process};
use crate::text::short;

/// The begin of the name of containerd's shims. The kernel keeps no more of it.
const CONTAINERD: &str = "containerd-shim";
/// CRI-O's, one for each container.
const CONMON: &str = "conmon";
/// The namespace of the CRI plugin in containerd.
const NAMESPACE: &str = "k8s.io";

/// The shims and the containers that they keep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Shims {
    /// Whether all processes of the host are visible and no shim may be in a pod, so that one that was not found does not
    /// exist.
    pub(crate) complete: bool,
    pub(crate) shims: Vec<Shim>,
    /// Containers whose init process was gone or a zombie all the time.
    pub(crate) dead_inits: Vec<DeadInit>,
}

/// One shim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Shim {
    pub(crate) pid: u32,
    /// The id of its sandbox, or for CRI-O of its container.
    pub(crate) id: String,
    /// It was stopped at the begin and at the end.
    pub(crate) stopped: bool,
    /// Threads that were blocked in the kernel all the time: where they wait.
    pub(crate) blocked: Vec<String>,
    /// Children that were zombies all the time.
    pub(crate) zombies: Vec<u32>,
}

/// A process that is a shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShimProcess {
    pub(super) pid: u32,
    pub(super) id: String,
}

/// The shims of the runtime that serves the socket, and whether root has programs of that name in pods: those of Kata
/// Containers may be there, and so may those that pretend. A shim whose runtime cannot be told counts. One of another user
/// does not.
pub(super) fn find(
    proc: &Proc,
    processes: &BTreeMap<u32, Process>,
    socket: Option<&Path>,
) -> (Vec<ShimProcess>, bool) {
    let mut in_pods = false;
    let shims = processes.values().filter_map(|process| {
        let pid = process.pid;
        if !matches!(process.name.as_str(), CONTAINERD | CONMON) {
            return None;
        }
        let belongs = proc.belongs(pid)?;
        in_pods |= belongs == Belongs::Pod;
        if belongs != Belongs::System {
            return None;
        }
        let args = proc.arguments(pid)?;
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let id = match process.name.as_str() {
            // Other programs than CRI-O use it, too.
            CONMON if args.iter().any(|arg| arg.contains("/crio")) => {
                flag(&args, &["-c", "--cid"])?
            }
            CONMON => return None,
            _ => {
                if flag(&args, &["-namespace", "--namespace"]).is_some_and(|n| n != NAMESPACE) {
                    return None;
                }
                let address = flag(&args, &["-address", "--address"]);
                let other = |socket: &Path| address.is_some_and(|a| !is_same(proc, pid, a, socket));
                if socket.is_some_and(other) {
                    return None;
                }
                flag(&args, &["-id", "--id"])?
            }
        };
        Some(ShimProcess {
            pid,
            id: id.to_owned(),
        })
    });
    let shims = shims.collect();
    (shims, in_pods)
}

fn flag<'a>(args: &'a [&'a str], names: &[&'a str]) -> Option<&'a str> {
    names.iter().find_map(|name| values(args, name).last())
}

/// Whether a process means this socket by a path.
fn is_same(proc: &Proc, pid: u32, address: &str, socket: &Path) -> bool {
    let address = address.strip_prefix("unix://").unwrap_or(address);
    let identity = |path: &Path| fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    let relative = address.strip_prefix('/').unwrap_or(address);
    let theirs = [
        proc.path(&format!("{pid}/root")).join(relative),
        PathBuf::from(address),
    ];
    match identity(socket) {
        None => Path::new(address) == socket,
        ours => theirs.iter().any(|path| identity(path) == ours),
    }
}

/// What two samples show of the shims.
pub(super) fn assess(samples: &Samples) -> Shims {
    let zombies = samples.zombies();
    // One that ended in between existed: its sandbox is not without a shim, but about to end.
    let ended = samples.begin.shims.iter();
    let ended = ended.filter(|shim| !samples.end.shims.contains(shim));
    let shims = samples.end.shims.iter().chain(ended).map(|shim| {
        let process = |sample: &super::sample::Sample| sample.processes.get(&shim.pid).cloned();
        let both = process(&samples.begin).zip(process(&samples.end));
        let stopped = both.is_some_and(|(b, a)| b.is(&a) && b.is_stopped() && a.is_stopped());
        let children = samples.end.processes.values();
        let children = children.filter(|p| p.parent == shim.pid && zombies.contains(&p.pid));
        Shim {
            pid: shim.pid,
            id: shim.id.clone(),
            stopped,
            blocked: samples.blocked_threads(shim.pid),
            zombies: children.map(|p| p.pid).collect(),
        }
    });
    let gone = samples.end.dead_inits.iter();
    let gone = gone.filter(|init| samples.begin.dead_inits.contains(init));
    Shims {
        complete: samples.end.shows_host && !samples.end.shims_in_pods,
        shims: shims.collect(),
        dead_inits: gone.cloned().collect(),
    }
}

pub(super) fn check(shims: &Shims, daemon: Option<&Daemon>, calls: &Calls) -> Vec<Finding> {
    // Causes first.
    let findings = [
        stopped(shims, calls),
        blocked(shims, calls),
        missing(shims, daemon, calls),
        zombies(shims, calls),
        dead_inits(shims, calls),
    ];
    findings.into_iter().flatten().collect()
}

fn stopped(shims: &Shims, calls: &Calls) -> Option<Finding> {
    let stopped = shims.shims.iter().filter(|shim| shim.stopped);
    let lines = stopped.map(|shim| {
        let pod = calls.pod_of(&shim.id);
        let line = format!("{pod}: the shim (pid {}) is in state T", shim.pid);
        (pod, line)
    });
    group(lines, |pods| {
        let next = "Find out who stopped it; then send SIGCONT (kill -CONT PID).";
        let summary = format!("the shim of {pods} is stopped");
        finding("shim_stopped", Severity::Critical, summary, next).explains(OF_POD)
    })
}

fn blocked(shims: &Shims, calls: &Calls) -> Option<Finding> {
    let blocked = shims.shims.iter();
    let blocked = blocked.filter(|shim| !shim.stopped && !shim.blocked.is_empty());
    let places: Vec<String> = blocked
        .clone()
        .flat_map(|shim| shim.blocked.clone())
        .collect();
    let lines = blocked.map(|shim| {
        let (pod, why) = (calls.pod_of(&shim.id), blocked_evidence(&shim.blocked));
        let line = format!("{pod}: shim (pid {}): {why}", shim.pid);
        (pod, line)
    });
    group(lines, |pods| {
        let next = what_blocks(
            &places,
            "Find the mount or disk for which it waits (/proc/PID/task/*/stack).",
        );
        let summary = format!("the shim of {pods} is blocked in the kernel");
        finding("shim_blocked", Severity::Critical, summary, next).explains(OF_POD)
    })
}

/// Sandboxes that both lists show as Ready and that have no shim.
fn missing(shims: &Shims, daemon: Option<&Daemon>, calls: &Calls) -> Option<Finding> {
    if !shims.complete || daemon.is_none_or(|daemon| daemon.name != "containerd") {
        return None;
    }
    let with: HashSet<&str> = shims.shims.iter().map(|shim| shim.id.as_str()).collect();
    let without = calls.ready.iter();
    let without = without.filter(|(id, _)| !with.contains(id.as_str()));
    let lines = without.map(|(id, pod)| {
        let line = format!("{pod}: no containerd-shim with -id {}", short(id));
        (pod.clone(), line)
    });
    group(lines, |pods| {
        let next = "Remove the pod (crictl rmp -f); the kubelet creates it again.";
        let summary = format!("the sandbox of {pods} is listed as Ready, but has no shim");
        finding("shim_missing", Severity::Warning, summary, next)
            .explains(OF_POD)
            .destroys()
    })
}

fn zombies(shims: &Shims, calls: &Calls) -> Option<Finding> {
    let with = shims.shims.iter().filter(|shim| !shim.zombies.is_empty());
    let lines = with.map(|shim| {
        let pod = calls.pod_of(&shim.id);
        let pids: Vec<String> = shim.zombies.iter().map(u32::to_string).collect();
        let (pid, pids) = (shim.pid, pids.join(", "));
        let line = format!("{pod}: the shim (pid {pid}) does not reap {pids}");
        (pod, line)
    });
    group(lines, |pods| {
        let next = "If it lasts, kill the shim: this ends the containers of the pod.";
        let summary = format!("the shim of {pods} does not reap an ended process");
        finding("shim_zombie", Severity::Warning, summary, next)
            .explains(OF_POD)
            .destroys()
    })
}

/// Containers that both lists show as Running and whose process is gone.
fn dead_inits(shims: &Shims, calls: &Calls) -> Option<Finding> {
    let lines = shims.dead_inits.iter().filter_map(|init| {
        let name = calls.running.get(&init.container)?;
        let state = if init.zombie {
            "is a zombie"
        } else {
            "does not exist"
        };
        let (pid, container) = (init.pid, short(&init.container));
        let line = format!("{name}: process {pid} of {container} {state}");
        Some((name.clone(), line))
    });
    group(lines, |containers| {
        let next =
            "Remove the pod (crictl rmp -f), or kill its shim; the kubelet creates it again.";
        let summary = format!("{containers} is listed as Running, but its process has ended");
        finding("init_gone", Severity::Critical, summary, next).destroys()
    })
}

/// What a shim that does not answer explains.
const OF_POD: &[&str] = &["status_slow", "pods_hung", "pods_failing", "init_gone"];

fn finding(code: &'static str, severity: Severity, summary: String, next: &'static str) -> Finding {
    Finding::new(code, Layer::Pod, severity, summary, next)
}

/// One finding about some pods: their names, and a line of evidence for each.
fn group(
    found: impl Iterator<Item = (String, String)>,
    finding: impl FnOnce(String) -> Finding,
) -> Option<Finding> {
    let (names, lines): (Vec<String>, Vec<String>) = found.unzip();
    let names = listed(&names)?;
    let mut finding = finding(names);
    finding.evidence = lines;
    super::shorten(&mut finding.evidence);
    Some(finding)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::picture::host::fake::{FakeHost, codes};
    use crate::picture::host::sample::Sample;

    const SHIM: &str = "containerd-shim";

    fn shim(host: &FakeHost, pid: u32, state: char, args: &[&str]) {
        host.process(pid, SHIM, state, 1);
        host.arguments(pid, args);
    }

    fn of(id: &str) -> Shims {
        let shim = Shim {
            pid: 900,
            id: id.to_owned(),
            ..Shim::default()
        };
        Shims {
            complete: true,
            shims: vec![shim],
            dead_inits: Vec::new(),
        }
    }

    fn calls() -> Calls {
        let one = |id: &str, name: &str| BTreeMap::from([(id.to_owned(), name.to_owned())]);
        Calls {
            sandboxes: one("s1", "shop/cart"),
            ready: one("s1", "shop/cart"),
            running: one("c1", "shop/cart web"),
            ..Calls::default()
        }
    }

    #[test]
    fn findings_follow_from_the_evidence() {
        use Severity::{Critical, Warning};
        let daemon = Daemon {
            name: "containerd".to_owned(),
            ..Daemon::default()
        };
        let with = |change: fn(&mut Shim)| {
            let mut shims = of("s1");
            change(&mut shims.shims[0]);
            shims
        };
        let dead = |zombie: bool, container: &str| Shims {
            dead_inits: vec![DeadInit {
                container: container.to_owned(),
                pid: 901,
                zombie,
            }],
            ..of("s1")
        };
        for (shims, found) in [
            (of("s1"), vec![]),
            (with(|s| s.stopped = true), vec![("shim_stopped", Critical)]),
            (
                with(|s| s.blocked = vec!["nfs".to_owned()]),
                vec![("shim_blocked", Critical)],
            ),
            (
                with(|s| s.zombies = vec![901]),
                vec![("shim_zombie", Warning)],
            ),
            (dead(false, "c1"), vec![("init_gone", Critical)]),
            (dead(true, "c1"), vec![("init_gone", Critical)]),
            (dead(false, "c2"), vec![]),
            (of("s2"), vec![("shim_missing", Warning)]),
            (
                Shims {
                    complete: false,
                    ..of("s2")
                },
                vec![],
            ),
        ] {
            let findings = check(&shims, Some(&daemon), &calls());
            assert_eq!(codes(&findings), found, "{shims:?}");
            assert!(
                findings.iter().all(|f| f.summary.contains("shop/cart")),
                "{findings:?}"
            );
        }
        assert_eq!(check(&of("s2"), None, &calls()), []);
        let crio = Daemon {
            name: "crio".to_owned(),
            ..Daemon::default()
        };
        assert_eq!(check(&of("s2"), Some(&crio), &calls()), []);
    }

    #[test]
    fn many_shims_are_one_finding() {
        let shims = (0..30).map(|n| Shim {
            id: format!("s{n}"),
            stopped: true,
            ..Shim::default()
        });
        let shims = Shims {
            shims: shims.collect(),
            ..Shims::default()
        };
        let findings = check(&shims, None, &Calls::default());
        assert_eq!(findings.len(), 1);
        assert!(findings[0].summary.contains("and 27 more"), "{findings:?}");
        assert_eq!(findings[0].evidence.len(), 11);
    }

    #[test]
    fn shims_of_the_socket_are_found() {
        let host = FakeHost::new();
        let socket = host.root().join("cri.sock");
        let other = host.root().join("other.sock");
        host.write("cri.sock", "");
        host.write("other.sock", "");
        let (ours, theirs) = (socket.to_str().unwrap(), other.to_str().unwrap());
        let program = "/usr/bin/containerd-shim-runc-v2";
        shim(
            &host,
            10,
            'S',
            &[
                program,
                "-namespace",
                "k8s.io",
                "-id",
                "s1",
                "-address",
                ours,
            ],
        );
        shim(
            &host,
            11,
            'S',
            &[
                program,
                "-namespace",
                "k8s.io",
                "-id",
                "s2",
                "-address",
                theirs,
            ],
        );
        shim(
            &host,
            12,
            'S',
            &[program, "-namespace", "moby", "-id", "s3", "-address", ours],
        );
        shim(&host, 13, 'S', &[program, "-namespace=k8s.io", "-id=s4"]);
        shim(&host, 14, 'S', &[program]);
        host.process(20, "conmon", 'S', 1);
        let exits = "--exit-dir=/var/run/crio/exits";
        host.arguments(20, &["/usr/bin/conmon", "-b", "/b", "-c", "c1", exits]);
        host.process(21, "conmon", 'S', 1);
        host.arguments(
            21,
            &["conmon", "-c", "c2", "--exit-dir", "/run/libpod/exits"],
        );
        host.process(22, "other", 'S', 1);
        host.arguments(22, &[program, "-id", "s5"]);
        let ids = |socket: Option<&Path>| {
            let sample = Sample::take(host.root(), socket, None).unwrap();
            let ids = sample.shims.into_iter().map(|shim| shim.id);
            ids.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(ids(Some(&socket)), "s1 s4 c1");
        assert_eq!(ids(None), "s1 s2 s4 c1");
        assert_eq!(ids(Some(Path::new("/gone.sock"))), "s4 c1");
    }

    #[test]
    fn program_of_a_user_or_a_pod_is_no_shim() {
        let host = FakeHost::new();
        shim(&host, 10, 'T', &["containerd-shim-runc-v2", "-id", "s1"]);
        let found = || {
            let sample = || Sample::take(host.root(), None, None).unwrap();
            let shims = assess(&Samples::new(sample(), sample(), Duration::from_secs(20)));
            (shims.shims.len(), shims.complete)
        };
        assert_eq!(found(), (1, true));
        host.write("proc/10/status", "Uid:\t1000\t0\t0\t0\n");
        assert_eq!(found(), (0, true));
        host.write("proc/10/status", "Uid:\t0\t0\t0\t0\n");
        host.write("proc/10/cgroup", "0::/kubepods/pod1/x\n");
        assert_eq!(found(), (0, false), "Kata Containers has its shims there");
    }

    #[test]
    fn only_what_lasts_is_reported() {
        let host = FakeHost::new();
        let args = ["containerd-shim-runc-v2", "-id", "s1"];
        shim(&host, 10, 'T', &args);
        shim(&host, 11, 'S', &["containerd-shim-runc-v2", "-id", "s2"]);
        shim(&host, 12, 'T', &["containerd-shim-runc-v2", "-id", "s3"]);
        host.process(100, "app", 'Z', 11);
        host.process(101, "app", 'Z', 11);
        host.process(102, "app", 'S', 11);
        // Its first thread has ended, others run.
        let stat = "103 (app) Z 11 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 2 0 100000 0 512 0\n";
        host.write("proc/103/stat", stat);
        let begin = Sample::take(host.root(), None, None).unwrap();
        host.remove("proc/101");
        host.remove("proc/12");
        host.process(102, "app", 'Z', 11);
        let end = Sample::take(host.root(), None, None).unwrap();
        let shims = assess(&Samples::new(begin, end, Duration::from_secs(20)));
        assert!(shims.complete);
        assert!(shims.shims[0].stopped && !shims.shims[1].stopped);
        assert_eq!(shims.shims[1].zombies, [100]);
        let ended = Shim {
            pid: 12,
            id: "s3".to_owned(),
            ..Shim::default()
        };
        assert_eq!(shims.shims[2..], [ended]);
    }
}
