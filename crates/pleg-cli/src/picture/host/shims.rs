//! Shims: the process beside the containers of a sandbox (containerd) or of a container (CRI-O's conmon).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::bundles::DeadInit;
use super::cgroup::Group;
use super::sample::{Sample, Samples, place};
use crate::kubelet::values;
use crate::proc::{Belongs, Proc, Process};

/// The start of the name of containerd's shims. The kernel keeps no more of it.
const CONTAINERD: &str = "containerd-shim";
/// CRI-O's, one for each container.
const CONMON: &str = "conmon";
/// The namespace of the CRI plugin in containerd.
const NAMESPACE: &str = "k8s.io";
/// A process that is older than the examination by so many seconds existed when the first list was made.
const OLDER: f64 = 10.0;

/// The shims and the containers that they keep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Shims {
    /// Whether all processes of the host are visible and no shim may be in a pod, so that one that was not found does not
    /// exist.
    pub(crate) complete: bool,
    pub(crate) shims: Vec<Shim>,
    /// Children of shims in the control groups of containers, that have not ended.
    pub(crate) processes: Vec<ContainerProcess>,
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
    /// It is so old that the list before the examination should contain its sandbox.
    pub(crate) old: bool,
    /// It was stopped at the start and at the end.
    pub(crate) stopped: bool,
    /// Threads that were blocked in the kernel all the time: where they wait.
    pub(crate) blocked: Vec<String>,
    /// Children that were zombies all the time.
    pub(crate) zombies: Vec<u32>,
}

/// A process of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerProcess {
    pub(crate) pid: u32,
    /// The id of its container or sandbox.
    pub(crate) id: String,
    /// The id of its shim.
    pub(crate) shim: String,
    /// It is so old that the list before the examination should contain its container.
    pub(crate) old: bool,
    /// It was blocked in the kernel all the time: where it waits.
    pub(crate) blocked: Option<String>,
    /// The control group that was frozen all the time.
    pub(crate) frozen: Option<String>,
}

/// What a process is for a pod. It does not change as long as the process lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Shim {
        id: String,
    },
    /// Root's program in a pod that has the name of a shim: of Kata Containers, or one that pretends.
    ShimInPod,
    /// It only has the name of a shim.
    Other,
    /// A child of a shim, in the control group of this container.
    Container {
        id: String,
        freezer: Option<Group>,
    },
}

/// Finds the shims of the runtime that serves the socket, and their children. A shim whose runtime cannot be told counts.
/// One of another user does not.
pub(super) fn roles(
    proc: &Proc,
    files: &Path,
    sample: &Sample,
    before: &Sample,
    socket: Option<&Path>,
) -> BTreeMap<u32, Role> {
    let known = |process: &Process| {
        before.same(process)?;
        before.roles.get(&process.pid).cloned()
    };
    let named = sample.processes.values();
    let named = named.filter(|p| matches!(p.name.as_str(), CONTAINERD | CONMON) && !p.is_dead());
    let shims = named.filter_map(|process| {
        let role = known(process).or_else(|| shim(proc, process, socket))?;
        Some((process.pid, role))
    });
    let mut roles: BTreeMap<u32, Role> = shims.collect();
    let is_shim = |pid: &u32| matches!(roles.get(pid), Some(Role::Shim { .. }));
    let children = sample.processes.values();
    let children = children.filter(|process| is_shim(&process.parent) && !process.is_dead());
    let containers = children.filter_map(|process| {
        let role = known(process).or_else(|| {
            let groups = proc.read(&format!("{}/cgroup", process.pid)).ok()?;
            let id = groups.lines().find_map(container_in)?.to_owned();
            let freezer = Group::find(files, &groups, "freezer");
            Some(Role::Container { id, freezer })
        })?;
        Some((process.pid, role))
    });
    let containers: Vec<_> = containers.collect();
    roles.extend(containers);
    roles
}

/// The id of the container in a path such as `/kubepods/podUID/ID` or `/kubepods.slice/…/cri-containerd-ID.scope`.
fn container_in(line: &str) -> Option<&str> {
    let mut parts = line.split('/').filter_map(|part| {
        let part = part.strip_suffix(".scope").unwrap_or(part);
        let id = part.rsplit_once('-').map_or(part, |(_, id)| id);
        (id.len() == 64 && id.bytes().all(|b| b.is_ascii_hexdigit())).then_some(id)
    });
    parts.next()
}

fn shim(proc: &Proc, process: &Process, socket: Option<&Path>) -> Option<Role> {
    let pid = process.pid;
    match proc.belongs(pid)? {
        Belongs::System => {}
        Belongs::Pod => return Some(Role::ShimInPod),
        Belongs::User => return Some(Role::Other),
    }
    let args = proc.arguments(pid)?;
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let id = if process.name == CONMON {
        // Other programs than CRI-O use it, too.
        let of_crio = args.iter().any(|arg| arg.contains("/crio"));
        of_crio.then(|| flag(&args, &["-c", "--cid"]))
    } else {
        let other_namespace =
            flag(&args, &["-namespace", "--namespace"]).is_some_and(|n| n != NAMESPACE);
        let address = flag(&args, &["-address", "--address"]);
        let other = |socket: &Path| address.is_some_and(|a| !is_same(proc, pid, a, socket));
        (!other_namespace && !socket.is_some_and(other)).then(|| flag(&args, &["-id", "--id"]))
    };
    Some(match id.flatten() {
        Some(id) => Role::Shim { id: id.to_owned() },
        None => Role::Other,
    })
}

/// The control groups of containers' processes that are frozen now.
pub(super) fn frozen_groups(sample: &Sample) -> BTreeMap<u32, String> {
    let frozen = sample.roles.iter().filter_map(|(pid, role)| {
        let Role::Container { freezer, .. } = role else {
            return None;
        };
        let state = sample.processes.get(pid)?.state;
        Some((*pid, freezer.as_ref()?.frozen(state)?))
    });
    frozen.collect()
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
    let (begin, end) = (&samples.begin, &samples.end);
    let is_old = |pid: u32| {
        let process = end
            .processes
            .get(&pid)
            .filter(|process| begin.same(process).is_some());
        let age = process
            .zip(end.uptime)
            .map(|(process, uptime)| process.age(uptime));
        age.is_some_and(|age| age >= samples.seconds() + OLDER)
    };
    // One that ended in between existed: its sandbox is not without a shim, but about to end.
    let now: BTreeSet<(u32, &str)> = end.shims().collect();
    let ended = begin.shims().filter(|shim| !now.contains(shim));
    let shims = now.iter().copied().chain(ended).map(|(pid, id)| {
        let process = |sample: &Sample| sample.processes.get(&pid).cloned();
        let both = process(begin).zip(process(end));
        let stopped = both.is_some_and(|(b, a)| b.is(&a) && b.is_stopped() && a.is_stopped());
        let children = end.processes.values();
        let children = children.filter(|p| p.parent == pid && zombies.contains(&p.pid));
        Shim {
            pid,
            id: id.to_owned(),
            old: is_old(pid),
            stopped,
            blocked: samples.blocked_threads(pid),
            zombies: children.map(|p| p.pid).collect(),
        }
    });
    let processes = end.roles.iter().filter_map(|(pid, role)| {
        let Role::Container { id, .. } = role else {
            return None;
        };
        let parent = end.processes.get(pid)?.parent;
        let Role::Shim { id: shim } = end.roles.get(&parent)? else {
            return None;
        };
        let (before, after) = (begin.blocked.get(pid), end.blocked.get(pid));
        let blocked = after
            .zip(before)
            .filter(|(after, before)| after.since(before));
        let frozen = end
            .frozen
            .get(pid)
            .filter(|group| begin.frozen.get(pid) == Some(group));
        Some(ContainerProcess {
            pid: *pid,
            id: id.clone(),
            shim: shim.clone(),
            old: is_old(*pid),
            blocked: blocked.map(|(after, _)| place(after)),
            frozen: frozen.cloned(),
        })
    });
    let gone = end
        .dead_inits
        .iter()
        .filter(|init| begin.dead_inits.contains(init));
    let in_pods = end.roles.values().any(|role| *role == Role::ShimInPod);
    Shims {
        complete: end.shows_host && !in_pods,
        shims: shims.collect(),
        processes: processes.collect(),
        dead_inits: gone.cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::host::fake::FakeHost;
    use crate::picture::host::sample::Subject;

    fn shim(host: &FakeHost, pid: u32, name: &str, state: char, args: &str) {
        host.process(pid, name, state, 1);
        host.arguments(pid, &args.split(' ').collect::<Vec<_>>());
    }

    #[test]
    fn shims_of_the_socket_are_found() {
        let host = FakeHost::new();
        let path = |name: &str| host.root().join(name).display().to_string();
        let (ours, theirs) = (path("cri.sock"), path("other.sock"));
        host.write("cri.sock", "");
        host.write("other.sock", "");
        for (pid, name, args) in [
            (
                10,
                CONTAINERD,
                format!("shim -namespace k8s.io -id s1 -address {ours}"),
            ),
            (
                11,
                CONTAINERD,
                format!("shim -namespace k8s.io -id s2 -address {theirs}"),
            ),
            (
                12,
                CONTAINERD,
                format!("shim -namespace moby -id s3 -address {ours}"),
            ),
            (13, CONTAINERD, "shim -namespace=k8s.io -id=s4".to_owned()),
            (14, CONTAINERD, "shim".to_owned()),
            (
                20,
                CONMON,
                "conmon -b /b -c c1 --exit-dir=/var/run/crio/exits".to_owned(),
            ),
            (
                21,
                CONMON,
                "conmon -c c2 --exit-dir /run/libpod/exits".to_owned(),
            ),
            (22, "other", "shim -id s5".to_owned()),
        ] {
            shim(&host, pid, name, 'S', &args);
        }
        let ids = |socket: Option<&str>| {
            let socket = socket.map(PathBuf::from);
            let subject = Subject {
                root: host.root().to_owned(),
                socket,
                ..Subject::default()
            };
            let sample = Sample::take(&subject, None).unwrap();
            sample
                .shims()
                .map(|(_, id)| id.to_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(ids(Some(&ours)), "s1 s4 c1");
        assert_eq!(ids(None), "s1 s2 s4 c1");
        assert_eq!(ids(Some("/gone.sock")), "s4 c1");
    }

    #[test]
    fn program_of_a_user_or_a_pod_is_no_shim() {
        let host = FakeHost::new();
        shim(&host, 10, CONTAINERD, 'T', "shim -id s1");
        let found = || {
            let shims = assess(&host.samples(None, |_| ()));
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
        for (pid, state) in [(10, 'T'), (11, 'S'), (12, 'T')] {
            shim(&host, pid, CONTAINERD, state, &format!("shim -id s{pid}"));
        }
        host.process(100, "app", 'Z', 11);
        host.process(101, "app", 'Z', 11);
        host.process(102, "app", 'S', 11);
        // Its first thread has ended, others run.
        let stat = "103 (app) Z 11 0 0 0 0 0 0 0 0 0 0 0 0 0 20 0 2 0 100000 0 512 0\n";
        host.write("proc/103/stat", stat);
        let shims = assess(&host.samples(None, |host| {
            host.remove("proc/101");
            host.remove("proc/12");
            host.process(102, "app", 'Z', 11);
        }));
        assert!(shims.complete);
        assert!(shims.shims[0].stopped && !shims.shims[1].stopped);
        assert_eq!(shims.shims[1].zombies, [100]);
        let ended = Shim {
            pid: 12,
            id: "s12".to_owned(),
            ..Shim::default()
        };
        assert_eq!(shims.shims[2..], [ended]);
    }

    #[test]
    fn container_processes_are_found_with_both_cgroup_versions() {
        let id = "f".repeat(64);
        for (group, freezer, frozen, thawed) in [
            (
                format!("4:freezer:/kubepods/pod1/{id}"),
                "sys/fs/cgroup/freezer/kubepods/pod1",
                "freezer.state",
                "THAWED",
            ),
            (
                format!("0::/kubepods.slice/pod1.slice/cri-containerd-{id}.scope"),
                "sys/fs/cgroup/kubepods.slice/pod1.slice",
                "cgroup.events",
                "populated 1\nfrozen 0",
            ),
            (
                format!("0::/../pod1.slice/crio-{id}.scope"),
                "sys/fs/cgroup/kubepods.slice/pod1.slice",
                "cgroup.events",
                "frozen 0",
            ),
        ] {
            let host = FakeHost::new();
            shim(&host, 10, CONTAINERD, 'S', "shim -id s1");
            host.process(100, "app", 'D', 10);
            host.process(101, "runc", 'S', 10);
            host.write("proc/100/cgroup", &group);
            let own = group.rsplit('/').next().unwrap();
            let state = format!("{freezer}/{own}/{frozen}");
            let (flag, now) = match frozen {
                "freezer.state" => ("freezer.self_freezing", "FROZEN"),
                _ => ("cgroup.freeze", "frozen 1"),
            };
            host.write(&state, now);
            host.write(&format!("{freezer}/{flag}"), "1");
            let all = assess(&host.samples(None, |_| ())).processes;
            assert_eq!(
                (all.len(), all[0].pid, &*all[0].id, &*all[0].shim),
                (1, 100, &*id, "s1")
            );
            assert!(all[0].old);
            assert_eq!(
                all[0].frozen,
                Some(format!("/{freezer}")),
                "the group above is the cause"
            );
            let thawed = assess(&host.samples(None, |host| host.write(&state, thawed)));
            assert_eq!(thawed.processes[0].frozen, None, "{group}");
        }
    }
}
