//! Pressure on CPU, disks and memory, and processes that are blocked in the kernel.
//!
//! They are a cause only where a call is slow: a node may work at full load and its calls be fast.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::kinds::*;
use super::sample::Samples;
use super::{Calls, Host, blocked_evidence, rounded, what_blocks};
use crate::picture::finding::{Finding, Severity};
use crate::proc::Proc;

const RESOURCES: [&str; 3] = ["cpu", "io", "memory"];
const CPU: &str = "cpu_pressure";
/// So many threads of the runtime wait for a CPU if that makes its calls slow. Other processes may wait
/// while the runtime does not.
const WAITS: f64 = 0.1;

/// Pressure stall information of each resource.
pub(crate) type Pressure = BTreeMap<String, Option<Stalls>>;

/// How long some and all tasks waited for a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Stalls {
    pub(crate) some: Stall,
    pub(crate) full: Stall,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Stall {
    /// The kernel's average over 10 s at the end, from 0 to 1.
    pub(crate) avg10: f64,
    /// The share of the examination, from 0 to 1.
    pub(crate) share: f64,
}

/// A process that was in state D all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BlockedProcess {
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// The function of the kernel in which it waits.
    pub(crate) at: String,
}

/// Of some and of all tasks: the average over 10 s, and how long they have waited in all, in microseconds.
pub(super) type Counters = BTreeMap<&'static str, [(f64, u64); 2]>;

/// Reads lines such as `some avg10=0.12 avg60=0.00 avg300=0.00 total=1234`.
pub(super) fn counters(proc: &Proc) -> Counters {
    let counters = RESOURCES.into_iter().filter_map(|resource| {
        let text = proc.read(&format!("pressure/{resource}")).ok()?;
        let counter = |kind: &str| {
            let line = text.lines().find(|line| line.starts_with(kind))?;
            let mut fields = line.split_whitespace();
            let mut value = |name| fields.find_map(|field| field.strip_prefix(name));
            let avg10: f64 = value("avg10=")?.parse().ok()?;
            Some((avg10 / 100.0, value("total=")?.parse().ok()?))
        };
        // Old kernels have no "full" for the CPU.
        let both = [counter("some")?, counter("full").unwrap_or_default()];
        Some((resource, both))
    });
    counters.collect()
}

/// The pressure during the time between two samples.
pub(super) fn assess(samples: &Samples) -> Pressure {
    let stall = |(_, before): (f64, u64), (avg10, after): (f64, u64)| {
        let stalled = Duration::from_micros(after.saturating_sub(before)).as_secs_f64();
        let share = rounded((stalled / samples.seconds()).min(1.0));
        let avg10 = rounded(avg10);
        Stall { avg10, share }
    };
    let stalls = |resource| {
        let before = samples.begin.pressure.get(resource)?;
        let after = samples.end.pressure.get(resource)?;
        let [some, full] = [0, 1].map(|n| stall(before[n], after[n]));
        Some(Stalls { some, full })
    };
    let all = RESOURCES.map(|resource| (resource.to_owned(), stalls(resource)));
    all.into()
}

pub(super) fn blocked(samples: &Samples) -> Vec<BlockedProcess> {
    let blocked = samples.end.all().filter(|seen| seen.blocked.is_some());
    let blocked = blocked.filter_map(|seen| {
        let (pid, name) = (seen.process.pid, seen.process.name.clone());
        let at = samples.lasts(seen).blocked.into_iter().next()?;
        Some(BlockedProcess { pid, name, at })
    });
    blocked.take(100).collect()
}

/// `explained`: another finding already explains slow calls.
pub(super) fn check(host: &Host, calls: Calls<'_>, explained: bool) -> Vec<Finding> {
    // The stalls, if some or all tasks waited for at least these shares of the time.
    let exceeds = |resource: &str, some: f64, full: f64| {
        let stalls = host.pressure.get(resource)?.as_ref();
        stalls.filter(|s| s.some.share >= some || s.full.share >= full)
    };
    let (daemon, cpus) = (host.daemon.as_ref(), host.cpus);
    let waits = daemon.and_then(|daemon| daemon.waiting_for_cpu);
    let load = host.load.map(|n| format!("load {n:.1} on {cpus} CPUs"));
    let threads = "threads of the runtime waited for a CPU";
    let of_daemon = waits.map(|n| format!("on average {n:.2} {threads}"));
    let io = exceeds("io", 0.2, 0.1).map(|stalls| {
        let next = "Find what reads and writes most (`pidstat -d 1 5`); look for errors of the disk (`dmesg`)";
        pressure(&IO_PRESSURE, "disks", stalls, next)
    });
    let memory = exceeds("memory", 0.1, 0.05).map(|stalls| {
        let next = "Find what uses most memory (`ps -eo rss,pid,comm --sort=-rss | head`); set limits, and reserve memory for \
                    the system (kubelet: systemReserved)";
        pressure(&MEMORY_PRESSURE, "memory", stalls, next)
    });
    let cpu = exceeds("cpu", 0.5, 0.5).map(|stalls| {
        let next = "Find what uses most CPU time (`top`); set CPU limits, or reserve CPU for the system (kubelet: \
                    systemReserved)";
        let finding = pressure(&CPU_PRESSURE, "a CPU", stalls, next);
        finding.because_of(load).because_of(of_daemon)
    });
    let found = [io, memory, cpu, blocked_tasks(&host.blocked)];
    let mut findings: Vec<Finding> = found.into_iter().flatten().collect();
    let delays = |finding: &&mut Finding| {
        calls.slow && (finding.code != CPU || waits.is_none_or(|waits| waits >= WAITS))
    };
    for finding in findings.iter_mut().filter(delays) {
        finding.severity = Severity::Warning;
        finding.explains = if explained { &[] } else { STARVED };
    }
    findings
}

fn pressure(kind: &Kind, resource: &str, stalls: &Stalls, next: &str) -> Finding {
    let Stalls { some, full } = stalls;
    let shares = [some.share, full.share, some.avg10, full.avg10];
    let [some, full, some_now, full_now] = shares.map(|share| share * 100.0);
    let summary = format!("tasks waited for {resource} {some:.0} % of the time");
    kind.found(summary, next).because(format!(
        "some tasks waited {some:.0} % of the examination, all tasks {full:.0} %; in the last 10 s {some_now:.0} % and \
         {full_now:.0} %"
    ))
}

fn blocked_tasks(blocked: &[BlockedProcess]) -> Option<Finding> {
    let first = blocked.first()?.pid;
    let summary = match blocked.len() {
        1 => "a process was blocked in the kernel all the time".to_owned(),
        n => format!("{n} processes were blocked in the kernel all the time"),
    };
    let disk =
        format!("Find the disk or mount for which they wait: `dmesg`; `cat /proc/{first}/stack`");
    let places: Vec<String> = blocked.iter().map(|process| process.at.clone()).collect();
    let lines = blocked.iter().map(|process| {
        let why = blocked_evidence(std::slice::from_ref(&process.at));
        format!("{} (pid {}): {why}", process.name, process.pid)
    });
    let finding = BLOCKED_TASKS.found(summary, what_blocks(&places, disk));
    Some(finding.because_of(lines))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::host::tests::fake::{FakeHost, codes};
    use crate::picture::runtime::Pods;

    /// The runtime's wait for a CPU, whether another finding explains slow calls, the severity beside a slow call, whether it
    /// explains them.
    #[test]
    fn cpu_pressure_is_a_warning_only_if_the_runtime_waits_too() {
        let pods = &Pods::default();
        for (waits, explained, slow, severity, explains) in [
            ("0.15", false, false, Severity::Info, false),
            ("0.05", false, true, Severity::Info, false),
            ("0.15", false, true, Severity::Warning, true),
            ("0.15", true, true, Severity::Warning, false),
            ("null", false, true, Severity::Warning, true),
        ] {
            let pressure = r#""pressure": {"cpu": {"some": {"share": 0.9}}}"#;
            let json = format!(r#"{{"daemon": {{"waitingForCpu": {waits}}}, {pressure}}}"#);
            let calls = Calls::new(pods, slow, true);
            let findings = check(&serde_json::from_str(&json).unwrap(), calls, explained);
            assert_eq!(codes(&findings), [(CPU, severity)], "{waits}");
            assert_eq!(findings[0].explains.is_empty(), !explains, "{waits}");
        }
    }

    #[test]
    fn share_follows_from_the_counters() {
        let host = FakeHost::new();
        let write = |total: u64| {
            let line = format!("avg10=12.50 avg60=1.00 avg300=0.00 total={total}\n");
            host.write("proc/pressure/io", &format!("some {line}full {line}"));
            host.write("proc/pressure/cpu", &format!("some {line}"));
        };
        write(1_000_000);
        let pressure = assess(&host.samples(None, |_| write(2_000_000)));
        let stall = r#"{"avg10":0.125,"share":0.25}"#;
        let none = r#"{"avg10":0.0,"share":0.0}"#;
        let expected = format!(
            r#"{{"cpu":{{"some":{stall},"full":{none}}},"io":{{"some":{stall},"full":{stall}}},"memory":null}}"#
        );
        assert_eq!(serde_json::to_string(&pressure).unwrap(), expected);
    }
}
