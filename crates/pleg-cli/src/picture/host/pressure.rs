//! Pressure on CPU, disks and memory, and processes that are blocked in the kernel.
//!
//! Pressure and blocked processes matter only if a call is slow: a node may work at full load and answer fast.

use super::*;
use crate::picture::finding::STARVED;

/// Per resource: file in /proc/pressure, code, noun, least shares of time in which some and all tasks wait, advice.
const RESOURCES: [(&str, &str, &str, [f64; 2], &str); 3] = [
    ("io", "io_pressure", "disks", [0.2, 0.1], IO),
    ("memory", "memory_pressure", "memory", [0.1, 0.05], MEMORY),
    ("cpu", "cpu_pressure", "a CPU", [0.5, 0.5], CPU),
];
const IO: &str =
    "Find what reads and writes most (`pidstat -d 1 5`); look for errors of the disk (`dmesg`)";
const MEMORY: &str = "Find what uses the most memory (`ps -eo rss,pid,comm --sort=-rss | head`); set limits, and reserve memory for \
                      the system (kubelet: systemReserved)";
const CPU: &str = "Find what uses the most CPU time (`top`); set CPU limits, or reserve CPU for the system (kubelet: \
                   systemReserved)";
/// CPU pressure slows calls if, on average, at least this number of the runtime's threads wait for a CPU.
const WAITS: f64 = 0.1;

pub(crate) type Pressure = BTreeMap<String, Option<Stalls>>;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Stalls {
    pub(crate) some: Stall,
    pub(crate) full: Stall,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Stall {
    /// The share of the examination's last 10 s in which tasks waited, as the kernel averages it, from 0 to 1.
    pub(crate) avg10: f64,
    /// The share of the examination's time in which tasks waited, from 0 to 1.
    pub(crate) share: f64,
}

/// A process that was in state D in both samples, and has not run in between.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BlockedProcess {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) at: String,
}

/// For each resource, the lines `some` and `full`: the average over 10 s, and the total waiting time in microseconds.
pub(super) type Counters = BTreeMap<&'static str, [(f64, u64); 2]>;

/// Reads lines such as `some avg10=0.12 avg60=0.00 avg300=0.00 total=1234`.
pub(super) fn counters(proc: &Proc) -> Counters {
    let counters = RESOURCES.into_iter().filter_map(|(resource, ..)| {
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

pub(super) fn assess(samples: &Samples) -> Pressure {
    let stall = |(_, before): (f64, u64), (avg10, after): (f64, u64)| {
        let stalled = Duration::from_micros(after.saturating_sub(before)).as_secs_f64();
        let share = rounded((stalled / samples.seconds()).min(1.0));
        let avg10 = rounded(avg10);
        Stall { avg10, share }
    };
    let all = RESOURCES.map(|(resource, ..)| {
        let before = samples.begin.pressure.get(resource);
        let both = before.zip(samples.end.pressure.get(resource));
        let stalls = both.map(|(before, after)| {
            let [some, full] = [0, 1].map(|n| stall(before[n], after[n]));
            Stalls { some, full }
        });
        (resource.to_owned(), stalls)
    });
    all.into()
}

pub(super) fn blocked(samples: &Samples) -> Vec<BlockedProcess> {
    let blocked = samples.end.all().filter(|seen| seen.process.state == 'D');
    let blocked = blocked.filter_map(|seen| {
        let (pid, name) = (seen.process.pid, seen.process.name.clone());
        let at = samples.lasts(seen).blocked.into_iter().next()?;
        Some(BlockedProcess { pid, name, at })
    });
    blocked.take(100).collect()
}

/// The findings about pressure. `explained`: another finding already explains slow calls.
pub(super) fn check(host: &Host, calls: Calls<'_>, explained: bool) -> Vec<Finding> {
    let waits = host.daemon.as_ref().and_then(|d| d.waiting_for_cpu);
    let (cpus, threads) = (host.cpus, "threads of the runtime waited for a CPU");
    let load = host.load.map(|n| format!("load {n:.1} on {cpus} CPUs"));
    let of_daemon = waits.map(|n| format!("on average {n:.2} {threads}"));
    let pressure = RESOURCES.iter().filter_map(|&(resource, code, what, least, next)| {
        let Stalls { some, full } = host.pressure.get(resource)?.as_ref()?;
        (some.share >= least[0] || full.share >= least[1]).then_some(())?;
        let shares = [some.share, full.share, some.avg10, full.avg10];
        let [some, full, some_now, full_now] = shares.map(|share| share * 100.0);
        let summary = format!("tasks waited for {what} {some:.0} % of the time");
        let finding = Finding::new(code, summary, next).because(format!(
            "some tasks waited {some:.0} % of the examination, all tasks {full:.0} %; in the last 10 s {some_now:.0} % and \
             {full_now:.0} %"
        ));
        let more = [&load, &of_daemon].into_iter().flatten().cloned();
        Some(finding.because_of(more.filter(|_| resource == "cpu")))
    });
    let mut findings: Vec<Finding> = pressure.chain(blocked_tasks(&host.blocked)).collect();
    // CPU pressure slows calls only if the runtime waits for a CPU, and not only other processes.
    let runtime_waits = waits.is_none_or(|waits| waits >= WAITS);
    let delays = |f: &&mut Finding| calls.slow && (f.code != "cpu_pressure" || runtime_waits);
    for finding in findings.iter_mut().filter(delays) {
        finding.severity = Severity::Warning;
        finding.explains = if explained { "" } else { STARVED };
    }
    findings
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
    let finding = Finding::new("blocked_tasks", summary, what_blocks(&places, disk));
    Some(finding.because_of(lines))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::host::tests::fake::{FakeHost, codes};

    /// Columns: the runtime's wait for a CPU, whether another finding explains slow calls, whether a call is slow;
    /// expected: the severity, and whether the pressure explains slow calls.
    #[test]
    fn cpu_pressure_is_a_warning_only_if_the_runtime_waits() {
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
            assert_eq!(codes(&findings), [("cpu_pressure", severity)], "{waits}");
            assert_eq!(findings[0].explains.is_empty(), !explains, "{waits}");
        }
    }

    #[test]
    fn share_of_waiting_time_follows_from_two_counter_values() {
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
