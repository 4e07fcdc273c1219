//! Shims: the process beside the containers of a sandbox (containerd) or of a container (CRI-O's conmon), and its children:
//! the processes of containers, and programs such as `runc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cgroup::Group;
use super::sample::{Sample, Samples, Seen};
use super::{HostTarget, rounded};
use crate::bounded;
use crate::kubelet::{Kubelet, identity, value};
use crate::proc::{Belongs, Proc, Process};

/// The start of the name of containerd's shims. The kernel keeps no more of it.
const CONTAINERD: &str = "containerd-shim";
/// CRI-O's, one for each container.
const CONMON: &str = "conmon";
/// The namespace of the CRI plugin in containerd.
const NAMESPACE: &str = "k8s.io";
/// A process that is older than the examination by so many seconds existed when the first list was made.
const OLDER: f64 = 10.0;
/// Programs that the runtime starts for each operation on a container, and for which it waits.
const HELPERS: [&str; 5] = ["runc", "crun", "runsc", "youki", "kata-runtime"];
/// One that runs for longer hangs, in seconds: an operation takes some tens of milliseconds.
const LONG: f64 = 10.0;
/// The most bundles that are read, and the most helpers that are reported.
const MOST_BUNDLES: usize = 4096;
const MOST_HELPERS: usize = 100;

/// The shims and the containers that they keep.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Shims {
    /// Whether all processes of the host are visible and no shim may be in a pod, so that one that was not found does not
    /// exist.
    pub(crate) complete: bool,
    pub(crate) shims: Vec<Member>,
    /// Children of shims in the control groups of containers, that have not ended.
    pub(crate) processes: Vec<Member>,
    /// Programs such as `runc` that hang. People may start others that run for long: the parent of these is the runtime or a shim.
    pub(crate) helpers: Vec<Member>,
    /// Containers whose init process was gone or a zombie all the time.
    pub(crate) dead_inits: Vec<DeadInit>,
}

/// A shim, a process of a container, or a program such as `runc` that hangs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Member {
    pub(crate) pid: u32,
    /// Of a shim: the id of its sandbox, or for CRI-O of its container. Of a process: the id of its container or sandbox. Of a
    /// program: its name.
    pub(crate) id: String,
    /// The id of the shim that is its parent. A program without one was started by the runtime itself.
    pub(crate) shim: Option<String>,
    pub(crate) age_seconds: f64,
    /// It is so old that the list before the examination should contain its sandbox or container.
    pub(crate) old: bool,
    /// It was stopped at the start and at the end.
    pub(crate) stopped: bool,
    /// It or threads of it were blocked in the kernel all the time: where they wait.
    pub(crate) blocked: Vec<String>,
    /// The control group that was frozen all the time.
    pub(crate) frozen: Option<String>,
    /// Children that were zombies all the time.
    pub(crate) zombies: Vec<u32>,
}

impl Member {
    fn new(process: &Process, id: &str) -> Self {
        let (pid, id) = (process.pid, id.to_owned());
        let member = Self::default();
        Self { pid, id, ..member }
    }
}

/// A container whose init process is gone, or a zombie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeadInit {
    pub(crate) container: String,
    pub(crate) pid: u32,
    pub(crate) zombie: bool,
}

/// What a process is for a pod. It does not change as long as the process lives, except of a [`Child`](Role::Child).
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// With the id of its sandbox, or for CRI-O of its container.
    Shim(String),
    /// Root's program in a pod that has the name of a shim: of Kata Containers, or one that pretends.
    ShimInPod,
    /// It only has the name of a shim or kubelet.
    Other,
    /// A child of a shim, with the id and the control group of its container.
    Container(String, Option<Group>),
    /// A program such as `runc`.
    Helper,
    /// Another child of the runtime or of a shim. It may become the process of a container.
    Child,
    /// With the endpoint of its runtime, if that is not the one that serves the socket.
    Kubelet(Kubelet, Option<String>),
}

/// Finds the roles that are not known yet. A shim whose runtime cannot be told counts. One of another user does not.
pub(super) fn find(
    proc: &Proc,
    files: &Path,
    target: &HostTarget,
    daemon: Option<u32>,
    all: &mut BTreeMap<u32, Seen>,
) {
    let mut parents: BTreeSet<u32> = daemon.into_iter().collect();
    let living = all.values_mut().filter(|seen| !seen.process.is_dead());
    for seen in living {
        if seen.role.is_none() {
            seen.role = by_name(proc, &seen.process, target.socket.as_deref()).map(Arc::new);
        }
        parents.extend(seen.shim().map(|_| seen.process.pid));
    }
    let living = all.values_mut().filter(|seen| !seen.process.is_dead());
    for seen in living.filter(|seen| parents.contains(&seen.process.parent)) {
        if matches!(seen.role.as_deref(), None | Some(Role::Other)) {
            seen.role = Some(Arc::new(of_child(proc, files, &seen.process)));
        }
    }
}

fn by_name(proc: &Proc, process: &Process, socket: Option<&Path>) -> Option<Role> {
    if matches!(process.name.as_str(), CONTAINERD | CONMON) {
        return shim(proc, process, socket);
    }
    Kubelet::has_name_of(process).then_some(())?;
    let Some(kubelet) = Kubelet::of(proc, process) else {
        return Some(Role::Other);
    };
    let other_runtime = socket.and_then(|socket| kubelet.other_runtime(socket));
    Some(Role::Kubelet(kubelet, other_runtime))
}

fn shim(proc: &Proc, process: &Process, socket: Option<&Path>) -> Option<Role> {
    let pid = process.pid;
    match proc.belongs(pid)? {
        Belongs::System => {}
        Belongs::Pod => return Some(Role::ShimInPod),
        Belongs::User => return Some(Role::Other),
    }
    let arguments = proc.arguments(pid)?;
    let (ours, id) = if process.name == CONMON {
        // Programs other than CRI-O also use it.
        let of_crio = arguments.iter().any(|argument| argument.contains("/crio"));
        (of_crio, value(&arguments, &["-c", "--cid"]))
    } else {
        let namespace = value(&arguments, &["-namespace", "--namespace"]);
        let address = value(&arguments, &["-address", "--address"]);
        let address = socket.zip(address);
        let ours = address.is_none_or(|(socket, address)| is_same(proc, pid, address, socket))
            && namespace.is_none_or(|name| name == NAMESPACE);
        (ours, value(&arguments, &["-id", "--id"]))
    };
    let id = id.filter(|_| ours);
    Some(id.map_or(Role::Other, |id| Role::Shim(id.to_owned())))
}

/// Whether a process means this socket by a path.
fn is_same(proc: &Proc, pid: u32, address: &str, socket: &Path) -> bool {
    let address = Path::new(address.strip_prefix("unix://").unwrap_or(address));
    let Some(ours) = identity(socket) else {
        return address == socket;
    };
    let inside = proc.path(&format!("{pid}/root/{}", address.display()));
    identity(&inside) == Some(ours) || identity(address) == Some(ours)
}

fn of_child(proc: &Proc, files: &Path, process: &Process) -> Role {
    let pid = process.pid;
    if HELPERS.contains(&process.name.as_str()) && proc.belongs(pid) != Some(Belongs::User) {
        return Role::Helper;
    }
    let groups = proc.read(&format!("{pid}/cgroup")).unwrap_or_default();
    match groups.lines().find_map(container_in) {
        Some(id) => Role::Container(id.to_owned(), Group::find(files, &groups, "freezer")),
        None => Role::Child,
    }
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

/// The PIDs of init processes, by the ids of the containers whose bundles exist.
///
/// The working directory of a shim of containerd is the bundle of its sandbox. Beside it are the bundles of all containers of
/// the runtime, each with the PID of its init process in the file `init.pid`.
pub(super) fn inits(proc: &Proc, sample: &Sample, before: &Sample) -> BTreeMap<String, u32> {
    let named = sample.all().filter(|seen| seen.process.name == CONTAINERD);
    let shims = named.filter(|seen| seen.shim().is_some());
    let mut bundles = shims.map(|seen| proc.path(&format!("{}/cwd", seen.process.pid)));
    let bundle = bundles.find(|bundle| bundle.join("init.pid").exists());
    let bundles = bundle.and_then(|bundle| fs::read_dir(bundle.join("..")).ok());
    let bundles = bundles.into_iter().flatten().flatten().take(MOST_BUNDLES);
    let inits = bundles.filter_map(|bundle| {
        let container = bundle.file_name().to_string_lossy().into_owned();
        // It never changes.
        if let Some(pid) = before.inits.get(&container) {
            return Some((container, *pid));
        }
        let text = bounded::read(&bundle.path().join("init.pid")).ok()?;
        Some((container, text.trim().parse().ok()?))
    });
    inits.collect()
}

/// The containers whose init process has ended. Their bundles exist until the runtime has noticed.
fn dead(sample: &Sample) -> impl Iterator<Item = DeadInit> {
    sample.inits.iter().filter_map(|(container, pid)| {
        let seen = sample.processes.get(pid);
        let ended = seen.is_none_or(|seen| seen.process.is_dead());
        ended.then(|| DeadInit {
            container: container.clone(),
            pid: *pid,
            zombie: seen.is_some(),
        })
    })
}

impl Shims {
    /// The facts that two samples show.
    pub(super) fn of(samples: &Samples) -> Self {
        let (begin, end) = (&samples.begin, &samples.end);
        let gone: Vec<DeadInit> = dead(begin).collect();
        let mut shims = Self {
            complete: end.shows_host,
            dead_inits: dead(end).filter(|init| gone.contains(init)).collect(),
            ..Self::default()
        };
        for seen in end.all() {
            shims.add(samples, seen);
        }
        let zombies = begin.all().filter(|seen| seen.process.is_dead());
        for zombie in zombies.filter_map(|seen| end.same(&seen.process)) {
            let Process { pid, parent, .. } = zombie.process;
            let mut parents = shims.shims.iter_mut();
            if let Some(shim) = parents.find(|shim| shim.pid == parent) {
                shim.zombies.push(pid);
            }
        }
        // One that ended in between existed: its sandbox is not without a shim, but about to end.
        let ended = begin.all().filter(|seen| end.same(&seen.process).is_none());
        let ended = ended.filter_map(|seen| Some(Member::new(&seen.process, seen.shim()?)));
        shims.shims.extend(ended);
        shims
    }

    fn add(&mut self, samples: &Samples, seen: &Seen) {
        let (Seen { process, .. }, end) = (seen, &samples.end);
        let age = end.uptime.map_or(0.0, |uptime| process.age(uptime));
        let existed = samples.begin.same(process).is_some();
        let parent = || end.processes.get(&process.parent)?.shim();
        let lasting = samples.lasts(seen);
        let mut member = Member {
            shim: parent().map(str::to_owned),
            age_seconds: rounded(age),
            old: existed && age >= samples.seconds() + OLDER,
            stopped: lasting.stopped,
            blocked: lasting.blocked,
            frozen: lasting.frozen,
            ..Member::new(process, &process.name)
        };
        match seen.role.as_deref() {
            _ if process.is_dead() => {}
            Some(Role::Shim(id)) => {
                (member.id, member.shim) = (id.clone(), None);
                self.shims.push(member);
            }
            Some(Role::ShimInPod) => self.complete = false,
            Some(Role::Container(id, _)) if member.shim.is_some() => {
                member.id.clone_from(id);
                self.processes.push(member);
            }
            Some(Role::Helper) if age >= LONG && self.helpers.len() < MOST_HELPERS => {
                member.stopped = process.is_stopped();
                member.blocked = seen.blocked.iter().filter_map(|b| b.at.clone()).collect();
                self.helpers.push(member);
            }
            _ => {}
        }
    }
}
