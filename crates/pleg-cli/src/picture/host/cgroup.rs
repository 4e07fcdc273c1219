//! Control groups of version 1 and 2: the runtime's limits, and the freezer.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::daemon::Daemon;
use super::kinds::{DAEMON_CPU, DAEMON_MEMORY, DAEMON_PIDS};
use super::share;
use crate::figures::bytes;
use crate::picture::finding::Finding;

const MOUNT: &str = "/sys/fs/cgroup";
/// In a cgroup namespace of its own, this process sees paths that begin at the group which both processes have
/// above them. A pod's group is below one of these.
const ABOVE: [&str; 7] = [
    "",
    "kubepods",
    "kubepods/burstable",
    "kubepods/besteffort",
    "kubepods.slice",
    "kubepods.slice/kubepods-burstable.slice",
    "kubepods.slice/kubepods-besteffort.slice",
];
/// The share of a limit at which a process is close to it.
const CLOSE: f64 = 0.95;
/// The same of threads. At the limit a program in Go ends.
const CLOSE_PIDS: f64 = 0.9;
/// The share of the scheduler's periods in which the runtime had to pause.
const THROTTLED: f64 = 0.25;
/// Version 1 shows a limit of about 2^63 where there is none.
const NO_LIMIT: u64 = 1 << 60;

/// The limit that holds the runtime back most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Limit {
    /// The directory of the control group.
    pub(crate) group: String,
    /// CPU: the quota in microseconds. Memory: bytes. PIDs: threads.
    pub(crate) limit: u64,
    /// CPU: the period in microseconds. Memory: bytes, without the cache that can be dropped. PIDs: threads.
    pub(crate) used: u64,
    /// During the examination: throttled periods, OOM kills, refused forks.
    pub(crate) events: u64,
    /// The scheduler's periods during the examination.
    pub(crate) periods: u64,
}

/// The limits of the runtime's control group and of those above it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Limits {
    pub(crate) cpu: Option<Limit>,
    pub(crate) memory: Option<Limit>,
    pub(crate) pids: Option<Limit>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Controller {
    Cpu,
    Memory,
    Pids,
}

impl Controller {
    const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Pids];

    const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
        }
    }
}

/// The directory of a control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    /// Where this process finds the host's files.
    files: PathBuf,
    path: String,
    /// The length of the path of the hierarchy's root.
    root: usize,
}

impl Group {
    /// Finds the group in the text of `/proc/PID/cgroup`.
    pub(super) fn find(files: &Path, text: &str, controller: &str) -> Option<Self> {
        let groups = text.lines().filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            fields.next().zip(fields.next())
        });
        let groups: Vec<(&str, &str)> = groups.collect();
        let of = |name: &str| groups.iter().find(|(c, _)| c.split(',').any(|c| c == name));
        let (root, path) = match of(controller) {
            Some((_, path)) => (format!("{MOUNT}/{controller}"), path),
            None => (MOUNT.to_owned(), &of("")?.1),
        };
        let parts: Vec<&str> = path
            .split('/')
            .filter(|p| !matches!(*p, "" | ".."))
            .collect();
        let paths = ABOVE.iter().map(|above| {
            let parts = [&root, *above].into_iter().chain(parts.iter().copied());
            let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
            parts.join("/")
        });
        let group = |path| Self {
            files: files.to_owned(),
            path,
            root: root.len(),
        };
        let mut found = paths.map(group).filter(|group| group.directory().is_dir());
        found.next()
    }

    fn directory(&self) -> PathBuf {
        self.files.join(self.path.trim_start_matches('/'))
    }

    fn read(&self, file: &str) -> Option<String> {
        // The kernel's own file, in a tree that only root can change.
        let text = std::fs::read_to_string(self.directory().join(file)).ok()?;
        Some(text.trim().to_owned())
    }

    fn number(&self, file: &str) -> Option<u64> {
        self.read(file)?.parse().ok()
    }

    /// A number in a file with lines such as `oom_kill 3`.
    fn field(&self, file: &str, name: &str) -> Option<u64> {
        let text = self.read(file)?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(field, _)| *field == name)?.1.parse().ok()
    }

    /// This group and those above it, but not the root.
    fn with_parents(&self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self.clone()), |group| {
            let (parent, _) = group.path.rsplit_once('/')?;
            Some(Self {
                path: parent.to_owned(),
                ..group.clone()
            })
        })
        .take_while(|group| group.path.len() > group.root)
    }

    /// The topmost group that is frozen, if this one is. `state` is that of a process in it.
    pub(super) fn frozen(&self, state: char) -> Option<String> {
        // With version 1 a frozen process is in state D. Hundreds that are not need no look at the file.
        if state != 'D' && self.path.starts_with("/sys/fs/cgroup/freezer/") {
            return None;
        }
        let state = self.read("freezer.state");
        let frozen = state.map(|state| state != "THAWED");
        let frozen = frozen.or_else(|| Some(self.field("cgroup.events", "frozen")? == 1));
        if frozen != Some(true) {
            return None;
        }
        let is_cause = |group: &Self| {
            let flag = group.number("freezer.self_freezing");
            flag.or_else(|| group.number("cgroup.freeze")) == Some(1)
        };
        let cause = self.with_parents().filter(is_cause).last();
        Some(cause.map_or_else(|| self.path.clone(), |group| group.path))
    }

    fn limit(&self, controller: Controller) -> Option<Limit> {
        let (limit, used, events) = match controller {
            Controller::Cpu => {
                let max = self.read("cpu.max").and_then(|max| {
                    let (quota, period) = max.split_once(' ')?;
                    quota.parse().ok().zip(period.parse().ok())
                });
                let old = || {
                    Some((
                        self.number("cpu.cfs_quota_us")?,
                        self.number("cpu.cfs_period_us")?,
                    ))
                };
                let (quota, period) = max.or_else(old)?;
                (quota, period, self.field("cpu.stat", "nr_throttled"))
            }
            Controller::Memory => {
                let new = self.number("memory.max").zip(self.number("memory.current"));
                let old = || {
                    self.number("memory.limit_in_bytes")
                        .zip(self.number("memory.usage_in_bytes"))
                };
                let (limit, used) = new.or_else(old)?;
                let cache = |name| self.field("memory.stat", name);
                let cache = cache("total_inactive_file").or_else(|| cache("inactive_file"));
                let kills = self.field("memory.events", "oom_kill");
                let kills = kills.or_else(|| self.field("memory.oom_control", "oom_kill"));
                (limit, used.saturating_sub(cache.unwrap_or(0)), kills)
            }
            Controller::Pids => {
                let (limit, used) = self.number("pids.max").zip(self.number("pids.current"))?;
                (limit, used, self.field("pids.events", "max"))
            }
        };
        (1..NO_LIMIT).contains(&limit).then(|| Limit {
            group: self.path.clone(),
            limit,
            used,
            events: events.unwrap_or(0),
            periods: match controller {
                Controller::Cpu => self.field("cpu.stat", "nr_periods").unwrap_or(0),
                _ => 0,
            },
        })
    }
}

/// The limits of a process with the counters since their group exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters([Vec<Limit>; 3]);

impl Counters {
    pub(super) fn read(files: &Path, text: &str) -> Self {
        Self(Controller::ALL.map(|controller| {
            let group = Group::find(files, text, controller.name());
            let groups = group.iter().flat_map(Group::with_parents);
            groups.filter_map(|group| group.limit(controller)).collect()
        }))
    }
}

/// What the counters say of the time between two samples.
pub(super) fn assess(before: &Counters, after: &Counters) -> Limits {
    let worst = |n: usize, weight: fn(&Limit) -> f64| {
        let during = after.0[n].iter().filter_map(|after| {
            let before = before.0[n]
                .iter()
                .find(|before| before.group == after.group)?;
            Some(Limit {
                events: after.events.saturating_sub(before.events),
                periods: after.periods.saturating_sub(before.periods),
                ..after.clone()
            })
        });
        during.max_by(|a, b| weight(a).total_cmp(&weight(b)))
    };
    let fill = |limit: &Limit| share(limit.used, limit.limit) + share(limit.events, 1);
    Limits {
        cpu: worst(0, |limit| share(limit.events, limit.periods)),
        memory: worst(1, fill),
        pids: worst(2, fill),
    }
}

pub(super) fn check(limits: &Limits, daemon: Option<&Daemon>) -> Vec<Finding> {
    let Some(Daemon { name, pid, .. }) = daemon else {
        return Vec::new();
    };
    let full = |limit: &&Limit, close| limit.events > 0 || share(limit.used, limit.limit) >= close;
    let cpu = limits.cpu.as_ref();
    let cpu = cpu.filter(|limit| share(limit.events, limit.periods) >= THROTTLED);
    let cpu = cpu.map(|limit| {
        let (cpus, part) = (share(limit.limit, limit.used), share(limit.events, limit.periods));
        let summary = format!(
            "the runtime may use {cpus:.2} CPUs only, and had to pause in {:.0} % of the time slices",
            part * 100.0
        );
        DAEMON_CPU.found(summary, raise(limit, Controller::Cpu))
            .because(format!("throttled in {} of {} periods", limit.events, limit.periods))
            .because(limit.group.clone())
    });
    let memory = limits.memory.as_ref().filter(|limit| full(limit, CLOSE));
    let memory = memory.map(|limit| {
        let (used, most) = (bytes(limit.used), bytes(limit.limit));
        let summary = format!("the runtime is at its memory limit: {used} of {most} are used");
        DAEMON_MEMORY
            .found(summary, raise(limit, Controller::Memory))
            .because(format!("{} OOM kills during the examination", limit.events))
            .because(limit.group.clone())
    });
    let pids = limits.pids.as_ref().filter(|limit| full(limit, CLOSE_PIDS));
    let pids = pids.map(|limit| {
        let (used, most) = (limit.used, limit.limit);
        let summary = format!("the runtime is at its limit of threads: {used} of {most} exist");
        DAEMON_PIDS
            .found(summary, raise(limit, Controller::Pids))
            .because(format!(
                "{} more were refused during the examination",
                limit.events
            ))
            .because(limit.group.clone())
    });
    let found = [cpu, memory, pids].into_iter().flatten();
    found
        .map(|finding| finding.because(format!("{name}, pid {pid}")))
        .collect()
}

/// How to raise a limit until the next restart. systemd sets the limits of its units again at each reload.
fn raise(limit: &Limit, controller: Controller) -> String {
    let (group, twice) = (&limit.group, limit.limit.saturating_mul(2));
    let (_, unit) = group.rsplit_once('/').unwrap_or(("", group));
    let old = group.starts_with(&format!("{MOUNT}/{}/", controller.name()));
    let (property, value, file) = match (controller, old) {
        (Controller::Cpu, true) => ("CPUQuota", "-1".to_owned(), "cpu.cfs_quota_us"),
        (Controller::Cpu, false) => ("CPUQuota", "max".to_owned(), "cpu.max"),
        (Controller::Memory, true) => ("MemoryMax", twice.to_string(), "memory.limit_in_bytes"),
        (Controller::Memory, false) => ("MemoryMax", twice.to_string(), "memory.max"),
        (Controller::Pids, _) => ("TasksMax", twice.to_string(), "pids.max"),
    };
    let command = match unit.ends_with(".service") || unit.ends_with(".slice") {
        true if controller == Controller::Cpu => {
            format!("systemctl set-property --runtime {unit} CPUQuota=")
        }
        true => format!("systemctl set-property --runtime {unit} {property}={value}"),
        false => format!("echo {value} > {group}/{file}"),
    };
    format!("Raise the limit: `{command}`; then find out what the group's processes do")
}

/// The command that ends a freeze.
pub(super) fn thaw(group: &str) -> String {
    match group.starts_with(&format!("{MOUNT}/freezer/")) {
        true => format!("`echo THAWED > {group}/freezer.state`"),
        false => format!("`echo 0 > {group}/cgroup.freeze`"),
    }
}
