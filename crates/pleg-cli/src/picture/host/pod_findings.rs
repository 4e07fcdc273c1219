//! The findings about shims and processes of containers.

use std::collections::{BTreeSet, HashSet};

use super::cgroup::thaw;
use super::daemon::Daemon;
use super::kinds::{
    CONTAINER_BLOCKED, ENDED_RUNS, FROZEN, INIT_GONE, Kind, SHIM_BLOCKED, SHIM_MISSING,
    SHIM_ORPHANED, SHIM_STOPPED, SHIM_ZOMBIE,
};
use super::shims::{Shim, Shims};
use super::{Calls, blocked_evidence, listed, what_blocks};
use crate::picture::finding::Finding;
use crate::text::short;

/// The lines about some pods, and by PID what to act on.
#[derive(Default)]
struct Lines {
    names: Vec<String>,
    evidence: Vec<String>,
    pids: BTreeSet<u32>,
    /// Where the processes wait.
    places: Vec<String>,
}

impl Lines {
    fn add(&mut self, name: String, pid: u32, line: impl std::fmt::Display) {
        self.evidence.push(format!("{name}: {line}"));
        self.names.push(name);
        self.pids.insert(pid);
    }

    /// PIDs for a command, with this between them.
    fn pids(&self, between: &str) -> String {
        let pids: Vec<String> = self.pids.iter().take(20).map(u32::to_string).collect();
        pids.join(between)
    }

    /// One finding about all of them, whose summary has their names in place of `{}`.
    fn found(self, kind: &Kind, summary: &str, next: String) -> Option<Finding> {
        let names = listed(&self.names)?;
        let mut finding = kind.found(summary.replace("{}", &names), next);
        finding.evidence = self.evidence;
        super::shorten(&mut finding.evidence);
        Some(finding)
    }
}

pub(super) fn check(shims: &Shims, daemon: Option<&Daemon>, calls: &Calls) -> Vec<Finding> {
    // Causes first.
    let findings = [
        ended_runs(shims, calls),
        stopped(shims, calls),
        frozen(shims, calls),
        blocked(shims, calls),
        init_blocked(shims, calls),
        missing(shims, daemon, calls),
        orphaned(shims, calls),
        zombies(shims, calls),
        dead_inits(shims, calls),
    ];
    findings.into_iter().flatten().collect()
}

/// Processes of containers that the runtime lists as ended or not at all. The kubelet has started the pod again, or will.
fn ended_runs(shims: &Shims, calls: &Calls) -> Option<Finding> {
    let listed = calls.listed.as_ref()?;
    let mut lines = Lines::default();
    for process in shims.processes.iter().filter(|process| process.old) {
        let state = match listed.get(&process.id) {
            Some(true) => continue,
            Some(false) => "is listed as ended",
            None => "is not listed",
        };
        let line = format!(
            "process {} runs, but container {} {state}",
            process.pid,
            short(&process.id)
        );
        lines.add(calls.pod_of(&process.shim), process.pid, line);
    }
    let next = format!(
        "Look whether these pods run a second time: `ps -o pid,etime,args -p {}`; then drain and reboot the node, or end \
         the old processes",
        lines.pids(",")
    );
    let summary =
        "processes of {} run, but the runtime has lost their containers: these pods may run twice";
    lines.found(&ENDED_RUNS, summary, next)
}

fn stopped(shims: &Shims, calls: &Calls) -> Option<Finding> {
    let mut lines = Lines::default();
    for shim in shims.shims.iter().filter(|shim| shim.stopped) {
        let line = format!("the shim (pid {}) is in state T", shim.pid);
        lines.add(calls.pod_of(&shim.id), shim.pid, line);
    }
    let next = format!(
        "Find out who stopped it; then continue it: `kill -CONT {}`",
        lines.pids(" ")
    );
    lines.found(&SHIM_STOPPED, "the shim of {} is stopped", next)
}

fn frozen(shims: &Shims, calls: &Calls) -> Option<Finding> {
    let mut lines = Lines::default();
    let found = shims.processes.iter();
    let found = found.filter_map(|process| Some((process, process.frozen.as_ref()?)));
    for (process, group) in found.clone() {
        let line = format!("process {} is frozen by {group}", process.pid);
        lines.add(calls.pod_of(&process.shim), process.pid, line);
    }
    let thaw = found
        .clone()
        .next()
        .map(|(_, group)| thaw(group))
        .unwrap_or_default();
    let next = format!(
        "Find out who froze it (a paused task, a checkpoint that failed); then thaw it: {thaw}"
    );
    lines.found(
        &FROZEN,
        "a container of {} is frozen: it does nothing, and cannot be stopped",
        next,
    )
}

fn blocked(shims: &Shims, calls: &Calls) -> Option<Finding> {
    let mut lines = Lines::default();
    let blocked = shims.shims.iter();
    for shim in blocked.filter(|shim| !shim.stopped && !shim.blocked.is_empty()) {
        let line = format!(
            "shim (pid {}): {}",
            shim.pid,
            blocked_evidence(&shim.blocked)
        );
        lines.add(calls.pod_of(&shim.id), shim.pid, line);
        lines.places.extend(shim.blocked.iter().cloned());
    }
    let pid = lines.pids.first()?;
    let disk = format!("Find the mount or disk for which it waits: `cat /proc/{pid}/task/*/stack`");
    let next = what_blocks(&lines.places, disk);
    lines.found(
        &SHIM_BLOCKED,
        "the shim of {} is blocked in the kernel",
        next,
    )
}

/// Such a process cannot be killed, so its container and pod cannot be stopped.
fn init_blocked(shims: &Shims, calls: &Calls) -> Option<Finding> {
    let mut lines = Lines::default();
    for process in shims
        .processes
        .iter()
        .filter(|process| process.frozen.is_none())
    {
        let Some(place) = &process.blocked else {
            continue;
        };
        let why = blocked_evidence(std::slice::from_ref(place));
        lines.add(
            calls.pod_of(&process.shim),
            process.pid,
            format!("process {}: {why}", process.pid),
        );
        lines.places.push(place.clone());
    }
    let disk = format!(
        "Find the mount or disk for which it waits: `cat /proc/{}/stack`",
        lines.pids.first()?
    );
    let next = what_blocks(&lines.places, disk);
    lines.found(
        &CONTAINER_BLOCKED,
        "a process of {} is blocked in the kernel, and cannot be killed",
        next,
    )
}

/// Sandboxes that both lists show as Ready and that have no shim.
fn missing(shims: &Shims, daemon: Option<&Daemon>, calls: &Calls) -> Option<Finding> {
    if !shims.complete || daemon.is_none_or(|daemon| daemon.name != "containerd") {
        return None;
    }
    let with: HashSet<&str> = shims.shims.iter().map(|shim| shim.id.as_str()).collect();
    let without = calls.ready.iter();
    let without = without.filter(|(id, _)| !with.contains(id.as_str()));
    let mut lines = Lines::default();
    let mut ids = Vec::new();
    for (id, pod) in without {
        lines.add(
            pod.clone(),
            0,
            format!("no containerd-shim with -id {}", short(id)),
        );
        ids.push(short(id));
    }
    ids.truncate(5);
    let next = format!(
        "Remove the pod: `crictl rmp -f {}`; the kubelet creates it again",
        ids.join(" ")
    );
    lines.found(
        &SHIM_MISSING,
        "the sandbox of {} is listed as Ready, but has no shim",
        next,
    )
}

/// Shims whose sandbox no list contains, and that keep no process.
fn orphaned(shims: &Shims, calls: &Calls) -> Option<Finding> {
    let listed = calls.listed.as_ref()?;
    let keeps = |shim: &Shim| {
        shims
            .processes
            .iter()
            .any(|process| process.shim == shim.id)
    };
    let mut lines = Lines::default();
    let found = shims.shims.iter();
    for shim in found.filter(|shim| shim.old && !listed.contains_key(&shim.id) && !keeps(shim)) {
        lines.add(
            short(&shim.id),
            shim.pid,
            format!(
                "no list contains the sandbox of the shim (pid {})",
                shim.pid
            ),
        );
    }
    let next = format!(
        "They use memory and nothing else: end them with `kill {}`",
        lines.pids(" ")
    );
    lines.found(
        &SHIM_ORPHANED,
        "shims without a sandbox are left over: {}",
        next,
    )
}

fn zombies(shims: &Shims, calls: &Calls) -> Option<Finding> {
    let mut lines = Lines::default();
    for shim in shims.shims.iter().filter(|shim| !shim.zombies.is_empty()) {
        let zombies: Vec<String> = shim.zombies.iter().map(u32::to_string).collect();
        let line = format!(
            "the shim (pid {}) does not reap {}",
            shim.pid,
            zombies.join(", ")
        );
        lines.add(calls.pod_of(&shim.id), shim.pid, line);
    }
    let next = format!(
        "If it lasts, kill the shim, which ends the containers of the pod: `kill {}`",
        lines.pids(" ")
    );
    lines.found(
        &SHIM_ZOMBIE,
        "the shim of {} does not reap an ended process",
        next,
    )
}

/// Containers that both lists show as Running and whose process is gone.
fn dead_inits(shims: &Shims, calls: &Calls) -> Option<Finding> {
    let mut lines = Lines::default();
    let mut ids = Vec::new();
    for init in &shims.dead_inits {
        let Some(name) = calls.running.get(&init.container) else {
            continue;
        };
        let state = if init.zombie {
            "is a zombie"
        } else {
            "does not exist"
        };
        lines.add(
            name.clone(),
            init.pid,
            format!("process {} of {} {state}", init.pid, short(&init.container)),
        );
        ids.push(short(&init.container));
    }
    ids.truncate(5);
    let next = format!(
        "Stop it: `crictl stop {}`; if that fails, remove its pod",
        ids.join(" ")
    );
    lines.found(
        &INIT_GONE,
        "{} is listed as Running, but its process has ended",
        next,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_shims_are_one_finding() {
        let stopped = |n| Shim {
            id: format!("s{n}"),
            stopped: true,
            ..Shim::default()
        };
        let shims = Shims {
            shims: (0..30).map(stopped).collect(),
            ..Shims::default()
        };
        let findings = check(&shims, None, &Calls::default());
        assert_eq!(findings.len(), 1);
        assert!(findings[0].summary.contains("and 27 more"), "{findings:?}");
        assert_eq!(findings[0].evidence.len(), 11);
    }
}
