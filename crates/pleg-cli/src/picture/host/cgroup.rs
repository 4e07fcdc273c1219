//! Control groups of version 1 and 2: the runtime's limits, and the freezer.

use super::*;

const MOUNT: &str = "/sys/fs/cgroup";
/// Groups that, like the root, may be the nearest common parent of this process's group and another process's. In a
/// pod with its own cgroup namespace, `/proc/PID/cgroup` shows the other group as a path below that parent.
const ABOVE: &str = " /kubepods /kubepods/burstable /kubepods/besteffort /kubepods.slice \
                     /kubepods.slice/kubepods-burstable.slice /kubepods.slice/kubepods-besteffort.slice";
/// A process that uses at least this share of a limit is close to the limit.
const CLOSE: f64 = 0.95;
/// Like [`CLOSE`], but for threads, and lower: a Go program crashes when it cannot start a thread.
const CLOSE_PIDS: f64 = 0.9;
/// Throttling is a finding if at least this percentage of the scheduler periods was throttled.
const THROTTLED: f64 = 25.0;
/// A limit of at least this means that there is no limit: version 1 then shows about 2^63.
const NO_LIMIT: u64 = 1 << 60;

/// Where four figures are, by cgroup version: limit, use, the part of the use that can be dropped, events. A place is a
/// file name, then nothing if the figure is the first word in the file, else `2nd` or the word before the figure.
fn figures(group: &str, controller: &str) -> impl Iterator<Item = &'static str> {
    let figures = match (controller, is_old(group, controller)) {
        ("cpu", true) => "cpu.cfs_quota_us, cpu.cfs_period_us, , cpu.stat nr_throttled",
        ("cpu", false) => "cpu.max, cpu.max 2nd, , cpu.stat nr_throttled",
        ("memory", true) => {
            "memory.limit_in_bytes, memory.usage_in_bytes, memory.stat total_inactive_file, \
             memory.oom_control oom_kill"
        }
        ("memory", false) => {
            "memory.max, memory.current, memory.stat inactive_file, memory.events oom_kill"
        }
        _ => "pids.max, pids.current, , pids.events max",
    };
    figures.split(", ")
}

fn is_old(group: &str, controller: &str) -> bool {
    group.starts_with(&format!("{MOUNT}/{controller}/"))
}

/// A limit of the runtime's control group or of a group above it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Limit {
    controller: String,
    group: String,
    /// CPU: the quota in microseconds. Memory: bytes. PIDs: threads.
    limit: u64,
    /// CPU: the period in microseconds. Memory: bytes in use, without the cache that can be dropped. PIDs: threads.
    used: u64,
    /// The number of throttled periods (CPU), OOM kills (memory) or refused forks (PIDs).
    events: u64,
    periods: u64,
}

impl Limit {
    /// A measure of how much the limit held the runtime back: the larger, the more.
    fn weight(&self) -> f64 {
        match &*self.controller {
            "cpu" => share(self.events, self.periods),
            _ => share(self.used, self.limit) + share(self.events, 1),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    files: PathBuf,
    path: String,
}

impl Group {
    pub(super) fn find(files: &Path, text: &str, controller: &str) -> Option<Self> {
        let group_of = |name: &str| {
            let mut groups = text.lines().filter_map(|line| {
                let (names, group) = line.split_once(':')?.1.split_once(':')?;
                names.split(',').any(|n| n == name).then_some(group)
            });
            Some(groups.next()?.replace("/..", ""))
        };
        let (root, path) = match group_of(controller) {
            Some(path) => (format!("{MOUNT}/{controller}"), path),
            None => (MOUNT.to_owned(), group_of("")?),
        };
        let mut groups = ABOVE.split(' ').map(|above| {
            let path = format!("{root}{above}{path}");
            let (files, path) = (files.to_owned(), path.trim_end_matches('/').to_owned());
            Self { files, path }
        });
        groups.find(|group| group.file("").is_dir())
    }

    fn file(&self, name: &str) -> PathBuf {
        let group = self.files.join(self.path.trim_start_matches('/'));
        group.join(name)
    }

    /// The figure at a place that [`figures`] returns.
    fn figure(&self, at: &str) -> Option<u64> {
        let (file, word) = at.split_once(' ').unwrap_or((at, ""));
        // Needs no `bounded::read`, which is for files that another user may have made: only root can change this tree.
        let text = fs::read_to_string(self.file(file)).ok()?;
        let mut words = text.split_whitespace();
        let figure = match word {
            "" => words.next(),
            "2nd" => words.nth(1),
            word => words.skip_while(|other| *other != word).nth(1),
        };
        figure?.parse().ok()
    }

    fn with_parents(&self) -> impl Iterator<Item = Self> {
        let groups = Path::new(&self.path).ancestors().map(|path| {
            let (files, path) = (self.files.clone(), path.display().to_string());
            Self { files, path }
        });
        groups.take_while(|group| group.path.len() > MOUNT.len())
    }

    /// The topmost frozen group at or above this group, if this group is frozen. `state`: the state of a process in it.
    pub(super) fn frozen(&self, state: char) -> Option<String> {
        let (frozen, flag) = match is_old(&self.path, "freezer") {
            // With version 1 a frozen process is in state D. In other states, `freezer.state` is not read.
            true if state != 'D' => return None,
            true => {
                let state = fs::read_to_string(self.file("freezer.state")).ok()?;
                (state.trim() != "THAWED", "freezer.self_freezing")
            }
            false => (self.figure("cgroup.events frozen")? == 1, "cgroup.freeze"),
        };
        frozen.then_some(())?;
        let causes = self.with_parents();
        let topmost = causes.filter(|group| group.figure(flag) == Some(1)).last();
        Some(topmost.map_or_else(|| self.path.clone(), |group| group.path))
    }

    fn limit(&self, controller: &str) -> Option<Limit> {
        // Events of groups below this group do not count: those groups hit their own limits.
        let mut figures = figures(&self.path, controller).map(|at| {
            let local = self.figure(&at.replacen(".events ", ".events.local ", 1));
            local.or_else(|| self.figure(at))
        });
        let mut next = || figures.next().flatten();
        let (limit, used) = (next()?, next()?);
        let (cache, events) = (next().unwrap_or(0), next().unwrap_or(0));
        (1..NO_LIMIT).contains(&limit).then(|| Limit {
            controller: controller.to_owned(),
            group: self.path.clone(),
            limit,
            used: used.saturating_sub(cache),
            events,
            periods: self.figure("cpu.stat nr_periods").unwrap_or(0),
        })
    }
}

/// The limits of a process, by the text of its `/proc/PID/cgroup`, and the controllers whose group is not visible.
pub(super) fn limits(files: &Path, text: &str) -> (Vec<Limit>, Vec<&'static str>) {
    let (mut limits, mut unread) = (Vec::new(), Vec::new());
    for controller in ["cpu", "memory", "pids"] {
        let group = Group::find(files, text, controller);
        let groups = group.iter().flat_map(Group::with_parents);
        limits.extend(groups.filter_map(|group| group.limit(controller)));
        unread.extend(group.is_none().then_some(controller));
    }
    (limits, unread)
}

/// For each controller, the limit that held the runtime back most between two samples.
pub(super) fn assess(before: &[Limit], after: &[Limit]) -> Vec<Limit> {
    let during = after.iter().cloned().map(|mut limit| {
        let is_same = |b: &&Limit| (&b.controller, &b.group) == (&limit.controller, &limit.group);
        // The counts of a new limit may be older than the limit: judge the limit by its present use.
        let Limit {
            events, periods, ..
        } = *before.iter().find(is_same).unwrap_or(&limit);
        limit.events = limit.events.saturating_sub(events);
        limit.periods = limit.periods.saturating_sub(periods);
        limit
    });
    let worst = during.sorted_by(|a, b| b.weight().total_cmp(&a.weight()));
    let worst = worst.unique_by(|limit| limit.controller.clone());
    let worst = worst.sorted_by(|a, b| a.controller.cmp(&b.controller));
    worst.collect()
}

pub(super) fn check(limits: &[Limit], daemon: Option<&Daemon>) -> Vec<Finding> {
    let Some(Daemon { name, pid, .. }) = daemon else {
        return Vec::new();
    };
    let found = limits.iter().filter_map(|limit| {
        let (used, most) = (limit.used, limit.limit);
        let (events, periods) = (limit.events, limit.periods);
        let full = |close| events > 0 || share(used, most) >= close;
        let (code, is_found, summary, evidence) = match &*limit.controller {
            "cpu" => {
                let (cpus, percent) = (share(most, used), share(events, periods) * 100.0);
                let pauses = format!("had to pause in {percent:.0} % of the time slices");
                let summary = format!("may use {cpus:.2} CPUs only, and {pauses}");
                let evidence = format!("throttled in {events} of {periods} periods");
                ("daemon_cpu_limit", percent >= THROTTLED, summary, evidence)
            }
            "memory" => {
                let (used, most) = (bytes(used), bytes(most));
                let summary = format!("is at its memory limit: {used} of {most} are used");
                let evidence = format!("{events} OOM kills during the examination");
                ("daemon_memory_limit", full(CLOSE), summary, evidence)
            }
            _ => {
                let summary = format!("is at its limit of threads: {used} of {most} exist");
                let evidence = format!("{events} more were refused during the examination");
                ("daemon_pids_limit", full(CLOSE_PIDS), summary, evidence)
            }
        };
        is_found.then(|| {
            let finding = Finding::new(code, format!("the runtime {summary}"), raise(limit));
            let finding = finding.because(evidence).because(&*limit.group);
            finding.because(format!("{name}, pid {pid}"))
        })
    });
    found.collect()
}

/// Advice to raise a limit, at most until a reboot. For a unit with `systemctl`: systemd may undo a change of the file.
fn raise(limit: &Limit) -> String {
    let (group, name) = (&limit.group, &*limit.controller);
    let twice = limit.limit.saturating_mul(2).to_string();
    let (property, of_unit, value) = match name {
        "cpu" if is_old(group, name) => ("CPUQuota", "", "-1"),
        "cpu" => ("CPUQuota", "", "max"),
        "memory" => ("MemoryMax", &*twice, &*twice),
        _ => ("TasksMax", &*twice, &*twice),
    };
    let (_, unit) = group.rsplit_once('/').unwrap_or(("", group));
    let command = match unit.ends_with(".service") || unit.ends_with(".slice") {
        true => format!("systemctl set-property --runtime {unit} {property}={of_unit}"),
        false => {
            let file = figures(group, name).next().unwrap_or_default();
            format!("echo {value} > {group}/{file}")
        }
    };
    format!("Raise the limit: `{command}`; then find out what the group's processes do")
}

pub(super) fn thaw(group: &str) -> String {
    match is_old(group, "freezer") {
        true => format!("`echo THAWED > {group}/freezer.state`"),
        false => format!("`echo 0 > {group}/cgroup.freeze`"),
    }
}
