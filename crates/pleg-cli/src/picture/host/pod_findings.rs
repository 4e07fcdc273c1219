//! The findings about shims and processes of containers.

use std::collections::HashSet;

use super::cgroup::thaw;
use super::daemon::Daemon;
use super::kinds::*;
use super::shims::{Member, Shims};
use super::{Calls, Pod, blocked_evidence, what_blocks};
use crate::picture::finding::Finding;
use crate::text::short;

/// The most processes or containers that a command names.
const MOST: usize = 20;

/// What is found about one pod: its name, a line of evidence, and what the next step acts on.
type Row = (String, String, String);

/// One finding about all rows. In the summary, `{}` is for the names of the pods, and in the next step for what it acts on.
fn found(kind: &Kind, summary: &str, next: &str, rows: Vec<Row>) -> Option<Finding> {
    let acted_on: Vec<&str> = rows.iter().take(MOST).map(|(_, _, on)| &**on).collect();
    let next = next.replace("{}", &acted_on.join(" "));
    let lines = rows.into_iter().map(|(pod, line, _)| (pod, line));
    kind.about(lines, summary, next)
}

/// The rows about those members that have a line.
fn rows(all: &[Member], calls: Calls<'_>, line: impl Fn(&Member) -> Option<String>) -> Vec<Row> {
    let rows = all.iter().filter_map(|member| {
        let line = line(member)?;
        let pod = calls.pod_of(member.shim.as_ref().unwrap_or(&member.id));
        Some((pod, line, member.pid.to_string()))
    });
    rows.collect()
}

pub(super) fn check(shims: &Shims, daemon: Option<&Daemon>, calls: Calls<'_>) -> Vec<Finding> {
    // Causes first.
    let findings = [
        helpers(shims, calls),
        ended_runs(shims, calls),
        stopped(shims, calls),
        frozen(shims, calls),
        shim_blocked(shims, calls),
        container_blocked(shims, calls),
        missing(shims, daemon, calls),
        orphaned(shims, calls),
        zombies(shims, calls),
        dead_inits(shims, calls),
    ];
    findings.into_iter().flatten().collect()
}

fn helpers(shims: &Shims, calls: Calls<'_>) -> Option<Finding> {
    let helpers = shims.helpers.iter();
    let oldest = helpers.max_by(|a, b| a.age_seconds.total_cmp(&b.age_seconds))?;
    let pid = oldest.pid;
    let see = format!("`cat /proc/{pid}/stack; ls -l /proc/{pid}/fd; pgrep -a -P {pid}`");
    let next = match oldest.stopped {
        true => format!("It is stopped: `kill -CONT {pid}`"),
        false => what_blocks(&oldest.blocked, format!("See what it waits for: {see}")),
    };
    let mut rows = rows(&shims.helpers, calls, |helper| {
        let (name, pid, age) = (&helper.id, helper.pid, helper.age_seconds);
        let at = helper.blocked.iter().map(|at| format!(", in {at}"));
        let at: String = at.collect();
        Some(format!("{name} (pid {pid}) runs for {age:.0} s{at}"))
    });
    for ((pod, ..), helper) in rows.iter_mut().zip(&shims.helpers) {
        if helper.shim.is_none() {
            "the runtime".clone_into(pod);
        }
    }
    let summary = format!("{} hangs: it has not ended for {{}}", oldest.id);
    found(&RUNC_HANGS, &summary, &next, rows)
}

/// Processes of containers that the runtime lists as ended or not at all. The kubelet has started the pod again, or will.
fn ended_runs(shims: &Shims, calls: Calls<'_>) -> Option<Finding> {
    let listed = calls.listed()?;
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
    let next = "Look whether these pods run a second time: `ps -o pid,etime,args -p '{}'`; then drain and reboot the \
                node, or end the old processes";
    found(&ENDED_RUNS, summary, next, rows)
}

fn stopped(shims: &Shims, calls: Calls<'_>) -> Option<Finding> {
    let rows = rows(&shims.shims, calls, |shim| {
        let line = format!("the shim (pid {}) is in state T", shim.pid);
        shim.stopped.then_some(line)
    });
    let next = "Find out who stopped it; then continue it: `kill -CONT {}`";
    found(&SHIM_STOPPED, "the shim of {} is stopped", next, rows)
}

fn frozen(shims: &Shims, calls: Calls<'_>) -> Option<Finding> {
    let rows = rows(&shims.processes, calls, |process| {
        let group = process.frozen.as_ref()?;
        Some(format!("process {} is frozen by {group}", process.pid))
    });
    let mut groups = shims.processes.iter().filter_map(|p| p.frozen.as_ref());
    let group = groups.next()?;
    let why = "Find out who froze it (a paused task, a checkpoint that failed)";
    let next = format!("{why}; then thaw it: {}", thaw(group));
    let summary = "a container of {} is frozen: it does nothing, and cannot be stopped";
    found(&FROZEN, summary, &next, rows)
}

fn shim_blocked(shims: &Shims, calls: Calls<'_>) -> Option<Finding> {
    let words = ["the shim", "", "task/*/"];
    blocked(&SHIM_BLOCKED, words, &shims.shims, calls)
}

/// Such a process cannot be killed, so its container and pod cannot be stopped.
fn container_blocked(shims: &Shims, calls: Calls<'_>) -> Option<Finding> {
    let words = ["a process", ", and cannot be killed", ""];
    blocked(&CONTAINER_BLOCKED, words, &shims.processes, calls)
}

/// A stopped or frozen process is another finding.
fn blocked(
    kind: &Kind,
    [what, so, threads]: [&str; 3],
    all: &[Member],
    calls: Calls<'_>,
) -> Option<Finding> {
    let is_blocked = |m: &Member| !m.stopped && m.frozen.is_none() && !m.blocked.is_empty();
    let rows = rows(all, calls, |member| {
        let why = blocked_evidence(&member.blocked);
        is_blocked(member).then(|| format!("{what} (pid {}): {why}", member.pid))
    });
    let (_, _, pid) = rows.first()?;
    let find =
        format!("Find the mount or disk for which it waits: `cat /proc/{pid}/{threads}stack`");
    let blocked = all.iter().filter(|m| is_blocked(m));
    let places = blocked.flat_map(|member| member.blocked.clone());
    let next = what_blocks(&places.collect::<Vec<_>>(), find);
    let summary = format!("{what} of {{}} is blocked in the kernel{so}");
    found(kind, &summary, &next, rows)
}

/// Sandboxes that both lists show as Ready and that have no shim.
fn missing<'a>(shims: &Shims, daemon: Option<&Daemon>, calls: Calls<'a>) -> Option<Finding> {
    if !shims.complete || daemon.is_none_or(|daemon| daemon.name != "containerd") {
        return None;
    }
    let with: HashSet<&str> = shims.shims.iter().map(|shim| shim.id.as_str()).collect();
    let ids = |pod: &'a Pod| pod.ready.iter().map(move |id| (id, &pod.name));
    let ready = calls.both().flat_map(ids);
    let without = ready.filter(|(id, _)| !with.contains(id.as_str()));
    let rows = without.map(|(id, pod)| {
        let id = short(id);
        (pod.clone(), format!("no containerd-shim with -id {id}"), id)
    });
    let summary = "the sandbox of {} is listed as Ready, but has no shim";
    let next = "Remove the pod: `crictl rmp -f {}`; the kubelet creates it again";
    found(&SHIM_MISSING, summary, next, rows.collect())
}

/// Shims whose sandbox no list contains, and that keep no process.
fn orphaned(shims: &Shims, calls: Calls<'_>) -> Option<Finding> {
    let listed = calls.listed()?;
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
    found(&SHIM_ORPHANED, summary, next, rows)
}

fn zombies(shims: &Shims, calls: Calls<'_>) -> Option<Finding> {
    let rows = rows(&shims.shims, calls, |shim| {
        let zombies: Vec<String> = shim.zombies.iter().map(u32::to_string).collect();
        let (pid, all) = (shim.pid, zombies.join(", "));
        (!zombies.is_empty()).then(|| format!("the shim (pid {pid}) does not reap {all}"))
    });
    let summary = "the shim of {} does not reap an ended process";
    let next = "If it lasts, kill the shim, which ends the containers of the pod: `kill {}`";
    found(&SHIM_ZOMBIE, summary, next, rows)
}

/// Containers that both lists show as Running and whose process is gone.
fn dead_inits<'a>(shims: &Shims, calls: Calls<'a>) -> Option<Finding> {
    let rows = shims.dead_inits.iter().filter_map(|init| {
        let running = |pod: &'a Pod| Some((&pod.name, pod.running.get(&init.container)?));
        let (pod, container) = calls.both().find_map(running)?;
        let (pid, id) = (init.pid, short(&init.container));
        let state = ["does not exist", "is a zombie"][usize::from(init.zombie)];
        let line = format!("process {pid} of {id} {state}");
        Some((format!("{pod} {container}"), line, id))
    });
    let summary = "{} is listed as Running, but its process has ended";
    let next = "Stop it: `crictl stop {}`; if that fails, remove its pod";
    found(&INIT_GONE, summary, next, rows.collect())
}
