//! Shims, their children, and the findings about them. A shim is containerd's process for a sandbox, or CRI-O's for a
//! container (conmon). Its children are the processes of containers, and programs such as `runc`.

use super::*;
use crate::kubelet::{Kubelet, is_same};
use crate::proc::Belongs;

/// The start of the name of containerd's shims. The kernel keeps only 15 characters of a name.
const CONTAINERD: &str = "containerd-shim";
/// The name of CRI-O's shims, one for each container.
const CONMON: &str = "conmon";
/// The namespace that the CRI plugin uses in containerd.
const NAMESPACE: &str = "k8s.io";
/// If a process is this many seconds older than the first sample, the first CRI list should have its container.
const OLDER: f64 = 10.0;
/// Programs that the runtime starts for each operation, and waits for. `runsc` is left out: `runsc wait` may run long.
const HELPERS: [&str; 4] = ["runc", "crun", "youki", "kata-runtime"];
/// A program of [`HELPERS`] hangs if it runs for more seconds than this: an operation takes some tens of milliseconds.
const LONG: f64 = 10.0;
/// The maximum numbers: bundles that are read, helpers that are reported, arguments of a command in the advice.
const MOST_BUNDLES: usize = 4096;
const MOST_HELPERS: usize = 100;
const MOST_NAMED: usize = 20;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Shims {
    /// True if all processes of the host are visible and no shim runs in a pod, so `shims` has all shims.
    pub(crate) complete: bool,
    pub(crate) shims: Vec<Member>,
    /// Living children of shims, in the control groups of containers.
    pub(crate) processes: Vec<Member>,
    /// Programs such as `runc` that hang. Leaves out programs that a user started, because those may run long.
    pub(crate) helpers: Vec<Member>,
    /// Containers whose init process was gone or a zombie in both samples.
    pub(crate) dead_inits: Vec<DeadInit>,
}

/// A shim, a process of a container, or a program such as `runc` that hangs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Member {
    pub(crate) pid: u32,
    /// Shim: its sandbox's id (CRI-O: its container's). Process: its container's or sandbox's id. Program: its name.
    pub(crate) id: String,
    /// The id of the shim that is the parent. `None` for a program that the runtime itself started.
    pub(crate) shim: Option<String>,
    pub(crate) age_seconds: f64,
    /// True if the process is so old that the CRI list before the examination should have its sandbox or container.
    pub(crate) old: bool,
    #[serde(flatten)]
    pub(crate) lasting: Lasting,
    /// Children that were zombies in both samples.
    pub(crate) zombies: Vec<u32>,
}

impl Member {
    fn new(process: &Process, id: &str) -> Self {
        let (pid, id) = (process.pid, id.to_owned());
        let member = Self::default();
        Self { pid, id, ..member }
    }

    /// Returns true if the process is blocked in the kernel. A stopped or frozen process gets another finding.
    const fn is_blocked(&self) -> bool {
        let lasting = &self.lasting;
        !lasting.stopped && lasting.frozen.is_none() && !lasting.blocked.is_empty()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Constructor)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DeadInit {
    pub(crate) container: String,
    pub(crate) pid: u32,
    pub(crate) zombie: bool,
}

/// The role of a process, which does not change while it lives.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// A shim, with the id of its sandbox, or for CRI-O of its container.
    Shim(String),
    /// A program that runs as root in a pod, with the name of a shim: Kata Containers, or a program that imitates it.
    ShimInPod,
    /// A child of a shim, with the id and the control group of its container.
    Container(String, Option<Group>),
    Helper,
    /// A kubelet, with the endpoint of its runtime unless that is the examined runtime.
    Kubelet(Kubelet, Option<String>),
}

/// Finds the roles that are not known yet. A shim of a user other than root does not count.
pub(super) fn find(target: &HostTarget, daemon: Option<u32>, all: &mut BTreeMap<u32, Seen>) {
    let (proc, files) = (&Proc::below(&target.root), &host_files(&target.root));
    let mut parents: BTreeSet<u32> = daemon.into_iter().collect();
    for seen in all.values_mut().filter(|seen| !seen.process.is_dead()) {
        if seen.role.is_none() {
            seen.role = by_name(proc, &seen.process, target.socket.as_deref()).map(Arc::new);
        }
        parents.extend(seen.shim().map(|_| seen.process.pid));
    }
    let living = all.values_mut().filter(|seen| !seen.process.is_dead());
    for seen in living.filter(|seen| parents.contains(&seen.process.parent)) {
        if seen.role.is_none() {
            seen.role = of_child(proc, files, &seen.process).map(Arc::new);
        }
    }
}

fn by_name(proc: &Proc, process: &Process, socket: Option<&Path>) -> Option<Role> {
    if matches!(process.name.as_str(), CONTAINERD | CONMON) {
        return shim(proc, process, socket);
    }
    Kubelet::has_name_of(process).then_some(())?;
    let kubelet = Kubelet::of(proc, process)?;
    let other_runtime = socket.and_then(|socket| kubelet.other_runtime(proc, socket));
    Some(Role::Kubelet(kubelet, other_runtime))
}

fn shim(proc: &Proc, process: &Process, socket: Option<&Path>) -> Option<Role> {
    let pid = process.pid;
    match proc.belongs(pid)? {
        Belongs::System => {}
        Belongs::Pod => return Some(Role::ShimInPod),
        Belongs::User => return None,
    }
    let arguments = proc.arguments(pid)?;
    let (ours, id) = if process.name == CONMON {
        // Podman also uses conmon, so only a conmon with CRI-O's paths counts.
        let of_crio = arguments.iter().any(|argument| argument.contains("/crio"));
        (of_crio, value(&arguments, &["-c", "--cid"]))
    } else {
        let namespace = value(&arguments, &["-namespace", "--namespace"]);
        let address = socket.zip(value(&arguments, &["-address", "--address"]));
        let ours = address
            .is_none_or(|(socket, address)| is_same(proc, pid, address, socket) == Some(true))
            && namespace.is_none_or(|name| name == NAMESPACE);
        (ours, value(&arguments, &["-id", "--id"]))
    };
    Some(Role::Shim(id.filter(|_| ours)?.to_owned()))
}

fn of_child(proc: &Proc, files: &Path, process: &Process) -> Option<Role> {
    let pid = process.pid;
    // A helper runs outside of pods: a program in a pod may have the same name.
    let is_helper = HELPERS.contains(&process.name.as_str());
    if is_helper && proc.belongs(pid) == Some(Belongs::System) && !is_session(proc, pid) {
        return Some(Role::Helper);
    }
    // A child of the runtime or a shim gets no `Role` while in no container's cgroup: the runtime may move it later.
    let groups = proc.read(&format!("{pid}/cgroup")).ok()?;
    let id = groups.lines().find_map(container_in)?.to_owned();
    Some(Role::Container(id, Group::find(files, &groups, "freezer")))
}

/// Returns true for an `exec` in the foreground. CRI-O waits for it as long as its user wants, so it does not hang.
fn is_session(proc: &Proc, pid: u32) -> bool {
    let arguments = proc.arguments(pid).unwrap_or_default();
    let has = |word| arguments.iter().any(|argument| argument == word);
    has("exec") && !has("--detach") && !has("-d")
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

/// The PIDs of init processes, by container, from the files `init.pid` of their bundles. The working directory of a
/// containerd shim is the bundle of its sandbox, next to the bundles of all containers.
pub(super) fn inits(proc: &Proc, sample: &Sample, before: &Sample) -> BTreeMap<String, u32> {
    let named = sample.all().filter(|seen| seen.process.name == CONTAINERD);
    let shims = named.filter(|seen| seen.shim().is_some());
    let mut bundles = shims.map(|seen| proc.path(&format!("{}/cwd", seen.process.pid)));
    let bundle = bundles.find(|bundle| bundle.join("init.pid").exists());
    let bundles = bundle.and_then(|bundle| fs::read_dir(bundle.join("..")).ok());
    let bundles = bundles.into_iter().flatten().flatten().take(MOST_BUNDLES);
    let inits = bundles.filter_map(|bundle| {
        let container = bundle.file_name().to_string_lossy().into_owned();
        let read = || bounded::read(&bundle.path().join("init.pid"));
        let pid = match before.inits.get(&container) {
            // A container's init never changes its PID: take it from the previous sample.
            Some(pid) => *pid,
            None => read().ok()?.trim().parse().ok()?,
        };
        Some((container, pid))
    });
    inits.collect()
}

/// The containers whose init process has ended. The bundle exists until the runtime has noticed the end.
fn dead(sample: &Sample) -> impl Iterator<Item = DeadInit> {
    sample.inits.iter().filter_map(|(container, pid)| {
        let seen = sample.processes.get(pid);
        let ended = seen.is_none_or(|seen| seen.process.is_dead());
        ended.then(|| DeadInit::new(container.clone(), *pid, seen.is_some()))
    })
}

impl Shims {
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
        // Add shims that ended between the samples, so that `missing` ignores their sandboxes, which are about to end.
        let ended = begin.all().filter(|seen| end.same(&seen.process).is_none());
        let ended = ended.filter_map(|seen| Some(Member::new(&seen.process, seen.shim()?)));
        shims.shims.extend(ended);
        shims
    }

    fn add(&mut self, samples: &Samples, seen: &Seen) {
        let (Seen { process, .. }, end) = (seen, &samples.end);
        let age = end.uptime.map_or(0.0, |uptime| process.age(uptime));
        let parent = || end.processes.get(&process.parent)?.shim();
        let mut member = Member {
            shim: parent().map(str::to_owned),
            age_seconds: rounded(age),
            old: samples.begin.same(process).is_some() && age >= samples.seconds() + OLDER,
            lasting: samples.lasts(seen),
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
                member.lasting.stopped = process.is_stopped();
                let waits = seen.blocked.values().filter_map(|b| b.at.clone());
                member.lasting.blocked = waits.collect();
                self.helpers.push(member);
            }
            _ => {}
        }
    }
}

/// A row of a finding: a pod's name, a line of evidence, and an argument for the command in the next step.
type Row = (String, String, String);

/// One finding about all rows. `{}` stands for the pods' names in the summary, and for the arguments in the next step.
fn found(code: &'static str, summary: &str, next: &str, rows: Vec<Row>) -> Option<Finding> {
    let mut arguments = rows.iter().take(MOST_NAMED).map(|(_, _, on)| on);
    let next = next.replace("{}", &arguments.join(" "));
    let lines = rows.into_iter().map(|(pod, line, _)| (pod, line));
    Finding::about(code, lines, summary, next)
}

fn rows(all: &[Member], calls: Calls<'_>, line: impl Fn(&Member) -> Option<String>) -> Vec<Row> {
    let rows = all.iter().filter_map(|member| {
        let line = line(member)?;
        let pod = calls.pod_of(member.shim.as_ref().unwrap_or(&member.id));
        Some((pod, line, member.pid.to_string()))
    });
    rows.collect()
}

pub(super) fn check(shims: &Shims, daemon: Option<&Daemon>, calls: Calls<'_>) -> Vec<Finding> {
    let stopped = rows(&shims.shims, calls, |shim| {
        let line = format!("the shim (pid {}) is in state T", shim.pid);
        shim.lasting.stopped.then_some(line)
    });
    let zombies = rows(&shims.shims, calls, |shim| {
        let (pid, zombies) = (shim.pid, shim.zombies.iter().join(", "));
        (!zombies.is_empty()).then(|| format!("the shim (pid {pid}) does not reap {zombies}"))
    });
    let of_shim = ["the shim", "", "task/*/"];
    let of_process = ["a process", ", and cannot be killed", ""];
    // Findings that explain others come first.
    let findings = [
        helpers(shims, calls),
        ended_runs(shims, calls),
        found(
            "shim_stopped",
            "the shim of {} is stopped",
            &super::stopped("{}"),
            stopped,
        ),
        frozen(shims, calls),
        blocked("shim_blocked", of_shim, &shims.shims, calls),
        // Neither a container with a blocked process nor its pod can be stopped.
        blocked("container_blocked", of_process, &shims.processes, calls),
        missing(shims, daemon, calls),
        orphaned(shims, calls),
        found(
            "shim_zombie",
            "the shim of {} does not reap an ended process",
            "If it lasts, kill the shim, which ends the containers of the pod: `kill {}`",
            zombies,
        ),
        dead_inits(shims, calls),
    ];
    findings.into_iter().flatten().collect()
}

fn helpers(shims: &Shims, calls: Calls<'_>) -> Option<Finding> {
    let helpers = shims.helpers.iter();
    let oldest = helpers.max_by(|a, b| a.age_seconds.total_cmp(&b.age_seconds))?;
    let pid = oldest.pid;
    let see = format!("`cat /proc/{pid}/stack; ls -l /proc/{pid}/fd; pgrep -a -P {pid}`");
    let see = format!("See what it waits for: {see}");
    let next = match oldest.lasting.stopped {
        true => stopped(pid),
        false => what_blocks(&oldest.lasting.blocked, see),
    };
    let mut rows = rows(&shims.helpers, calls, |helper| {
        let (name, pid, age) = (&helper.id, helper.pid, helper.age_seconds);
        let at = helper.lasting.blocked.iter().map(|at| format!(", in {at}"));
        let at: String = at.collect();
        Some(format!("{name} (pid {pid}) has run for {age:.0} s{at}"))
    });
    for ((pod, ..), helper) in rows.iter_mut().zip(&shims.helpers) {
        if helper.shim.is_none() {
            "the runtime".clone_into(pod);
        }
    }
    let summary = format!("{} hangs: it has not ended for {{}}", oldest.id);
    found("runc_hangs", &summary, &next, rows)
}

/// Processes of containers that the runtime lists as ended or not at all. The kubelet may start such pods again.
fn ended_runs(shims: &Shims, calls: Calls<'_>) -> Option<Finding> {
    let listed = &calls.listed()?.listed;
    let rows = rows(&shims.processes, calls, |process| {
        let (pid, id) = (process.pid, short(&process.id));
        let state = match listed.get(&process.id) {
            Some(true) => return None,
            Some(false) => "is listed as ended",
            None => "is not listed",
        };
        let line = format!("process {pid} runs, but container {id} {state}");
        process.old.then_some(line)
    });
    let summary =
        "processes of {} run, but the runtime has lost their containers: these pods may run twice";
    let next = "See whether these pods run a second time: `ps -o pid,etime,args -p '{}'`; then drain and reboot the \
                node, or end the old processes";
    found("ended_container_runs", summary, next, rows)
}

fn frozen(shims: &Shims, calls: Calls<'_>) -> Option<Finding> {
    let rows = rows(&shims.processes, calls, |process| {
        let group = process.lasting.frozen.as_ref()?;
        Some(format!("process {} is frozen by {group}", process.pid))
    });
    let mut processes = shims.processes.iter();
    let group = processes.find_map(|p| p.lasting.frozen.as_ref())?;
    let why = "Find out who froze it (a paused task, a checkpoint that failed)";
    let next = format!("{why}; then thaw it: {}", thaw(group));
    let summary = "a container of {} is frozen: it does nothing, and cannot be stopped";
    found("container_frozen", summary, &next, rows)
}

fn blocked(
    code: &'static str,
    [what, so, tasks]: [&str; 3],
    all: &[Member],
    calls: Calls<'_>,
) -> Option<Finding> {
    let rows = rows(all, calls, |member| {
        let why = blocked_evidence(&member.lasting.blocked);
        let line = format!("{what} (pid {}): {why}", member.pid);
        member.is_blocked().then_some(line)
    });
    let (_, _, pid) = rows.first()?;
    let find = format!("Find the mount or disk for which it waits: `cat /proc/{pid}/{tasks}stack`");
    let blocked = all.iter().filter(|member| member.is_blocked());
    let places = blocked.flat_map(|member| member.lasting.blocked.clone());
    let next = what_blocks(&places.collect::<Vec<_>>(), find);
    let summary = format!("{what} of {{}} is blocked in the kernel{so}");
    found(code, &summary, &next, rows)
}

/// Sandboxes without a shim that are Ready in the lists before and after the examination.
fn missing(shims: &Shims, daemon: Option<&Daemon>, calls: Calls<'_>) -> Option<Finding> {
    if !shims.complete || daemon.is_none_or(|daemon| daemon.name != "containerd") {
        return None;
    }
    let with: HashSet<&str> = shims.shims.iter().map(|shim| shim.id.as_str()).collect();
    let pods = calls.listed()?.pods.iter();
    let ready = pods.flat_map(|pod| pod.ready.iter().map(move |id| (id, &pod.name)));
    let without = ready.filter(|(id, _)| !with.contains(id.as_str()));
    let rows = without.map(|(id, pod)| {
        let id = short(id);
        (pod.clone(), format!("no containerd-shim with -id {id}"), id)
    });
    let summary = "the sandbox of {} is listed as Ready, but has no shim";
    let next = "Remove the pod: `crictl rmp -f {}`; the kubelet creates it again";
    found("shim_missing", summary, next, rows.collect())
}

/// Shims without a container's process, and whose sandbox is in no list before or after the examination.
fn orphaned(shims: &Shims, calls: Calls<'_>) -> Option<Finding> {
    let listed = &calls.listed()?.listed;
    let keeping = shims.processes.iter().filter_map(|p| p.shim.as_deref());
    let keeping: HashSet<&str> = keeping.collect();
    let rows = rows(&shims.shims, calls, |shim| {
        let known = listed.contains_key(&shim.id) || keeping.contains(&*shim.id);
        let pid = shim.pid;
        let line = || format!("no list contains the sandbox of the shim (pid {pid})");
        (shim.old && !known).then(line)
    });
    let summary = "shims without a sandbox are left over: {}";
    let next = "They use memory and nothing else: end them with `kill {}`";
    found("shim_orphaned", summary, next, rows)
}

/// Containers without a process that are Running in the lists before and after the examination.
fn dead_inits(shims: &Shims, calls: Calls<'_>) -> Option<Finding> {
    let pods = &calls.listed()?.pods;
    let rows = shims.dead_inits.iter().filter_map(|init| {
        let mut pods = pods.iter();
        let (pod, container) =
            pods.find_map(|p| Some((&p.name, p.running.get(&init.container)?)))?;
        let (pid, id) = (init.pid, short(&init.container));
        let state = ["does not exist", "is a zombie"][usize::from(init.zombie)];
        let line = format!("process {pid} of {id} {state}");
        Some((format!("{pod} {container}"), line, id))
    });
    let summary = "{} is listed as Running, but its process has ended";
    let next = "Stop it: `crictl stop {}`; if that fails, remove its pod";
    found("init_gone", summary, next, rows.collect())
}
