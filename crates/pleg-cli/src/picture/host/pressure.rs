//! Pressure on CPU, disks and memory, and processes that are blocked in the kernel.
//!
//! They are a cause only where a call is slow: a node may work at full load and its calls be fast.

use serde::{Deserialize, Serialize};

use super::kinds::{BLOCKED_TASKS, CPU_PRESSURE, IO_PRESSURE, MEMORY_PRESSURE, STARVED};
use super::sample::{Samples, place};
use super::{Calls, Host, blocked_evidence, rounded, shorten, what_blocks};
use crate::picture::finding::{Finding, Severity};
use crate::proc::Proc;

const CPU: &str = "cpu_pressure";
/// So many threads of the runtime wait for a CPU if that makes its calls slow. Other processes may wait
/// while the runtime does not.
const WAITS: f64 = 0.1;

/// Pressure stall information.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Pressure {
    pub(crate) cpu: Option<Stalls>,
    pub(crate) io: Option<Stalls>,
    pub(crate) memory: Option<Stalls>,
}

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

/// The kernel's counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counters {
    cpu: Option<[Counter; 2]>,
    io: Option<[Counter; 2]>,
    memory: Option<[Counter; 2]>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counter {
    avg10: f64,
    /// In microseconds.
    total: u64,
}

impl Counters {
    pub(super) fn read(proc: &Proc) -> Self {
        let read = |resource: &str| {
            let text = proc.read(&format!("pressure/{resource}")).ok()?;
            // Old kernels have no "full" for the CPU.
            Some([
                counter(&text, "some")?,
                counter(&text, "full").unwrap_or_default(),
            ])
        };
        Self {
            cpu: read("cpu"),
            io: read("io"),
            memory: read("memory"),
        }
    }
}

/// Parses for example `some avg10=0.12 avg60=0.00 avg300=0.00 total=1234`.
fn counter(text: &str, kind: &str) -> Option<Counter> {
    let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
    let value = |name: &str| {
        line.split_whitespace()
            .find_map(|field| field.strip_prefix(name))
    };
    Some(Counter {
        avg10: value("avg10=")?.parse::<f64>().ok()? / 100.0,
        total: value("total=")?.parse().ok()?,
    })
}

/// The pressure during the time between two samples.
pub(super) fn assess(samples: &Samples) -> Pressure {
    let (begin, end) = (&samples.begin.pressure, &samples.end.pressure);
    let stall = |before: Counter, after: Counter| {
        let micros = after.total.saturating_sub(before.total);
        let stalled = std::time::Duration::from_micros(micros).as_secs_f64();
        Stall {
            avg10: rounded(after.avg10),
            share: rounded((stalled / samples.seconds()).min(1.0)),
        }
    };
    let stalls = |before: Option<[Counter; 2]>, after: Option<[Counter; 2]>| {
        let ([some, full], [some_after, full_after]) = before.zip(after)?;
        Some(Stalls {
            some: stall(some, some_after),
            full: stall(full, full_after),
        })
    };
    Pressure {
        cpu: stalls(begin.cpu, end.cpu),
        io: stalls(begin.io, end.io),
        memory: stalls(begin.memory, end.memory),
    }
}

/// The processes that were in state D all the time.
pub(super) fn blocked(samples: &Samples) -> Vec<BlockedProcess> {
    let lasting = samples.lasting().filter_map(|(_, process)| {
        let blocked = samples.end.blocked.get(&process.pid)?;
        let before = samples.begin.blocked.get(&process.pid)?;
        blocked.since(before).then(|| BlockedProcess {
            pid: process.pid,
            name: process.name.clone(),
            at: place(blocked),
        })
    });
    lasting.take(100).collect()
}

/// `explained`: another finding already explains slow calls.
pub(super) fn check(host: &Host, calls: &Calls, explained: bool) -> Vec<Finding> {
    let (io, memory, cpu) = (&host.pressure.io, &host.pressure.memory, &host.pressure.cpu);
    let found = [
        exceeds(io.as_ref(), 0.2, 0.1).map(io_pressure),
        exceeds(memory.as_ref(), 0.1, 0.05).map(memory_pressure),
        exceeds(cpu.as_ref(), 0.5, 0.5).map(|stalls| cpu_pressure(stalls, host)),
        blocked_tasks(&host.blocked),
    ];
    let delays = |finding: &Finding| {
        let waits = host.daemon.as_ref().and_then(|d| d.waiting_for_cpu);
        calls.slow && (finding.code != CPU || waits.is_none_or(|waits| waits >= WAITS))
    };
    let found = found.into_iter().flatten().map(|mut finding| {
        if delays(&finding) {
            finding.severity = Severity::Warning;
            finding.explains = if explained { &[] } else { STARVED };
        }
        finding
    });
    found.collect()
}

fn io_pressure(stalls: &Stalls) -> Finding {
    let next =
        "Find what reads and writes most (`pidstat -d 1 5`); look for errors of the disk (`dmesg`)";
    IO_PRESSURE
        .found(summary("disks", stalls), next)
        .because(figures(stalls))
}

fn memory_pressure(stalls: &Stalls) -> Finding {
    let next = "Find what uses most memory (`ps -eo rss,pid,comm --sort=-rss | head`); set limits, and reserve memory for the \
                system (kubelet: systemReserved)";
    MEMORY_PRESSURE
        .found(summary("memory", stalls), next)
        .because(figures(stalls))
}

fn cpu_pressure(stalls: &Stalls, host: &Host) -> Finding {
    let next = "Find what uses most CPU time (`top`); set CPU limits, or reserve CPU for the system (kubelet: \
                systemReserved)";
    let mut found = CPU_PRESSURE
        .found(summary("a CPU", stalls), next)
        .because(figures(stalls));
    let load = host
        .load
        .map(|load| format!("load {load:.1} on {} CPUs", host.cpus));
    let waits = host
        .daemon
        .as_ref()
        .and_then(|daemon| daemon.waiting_for_cpu);
    let waits = waits.map(|n| format!("on average {n:.2} threads of the runtime waited for a CPU"));
    found.evidence.extend(load.into_iter().chain(waits));
    found
}

fn blocked_tasks(blocked: &[BlockedProcess]) -> Option<Finding> {
    let places: Vec<String> = blocked.iter().map(|process| process.at.clone()).collect();
    let summary = match blocked.len() {
        0 => return None,
        1 => "a process was blocked in the kernel all the time".to_owned(),
        n => format!("{n} processes were blocked in the kernel all the time"),
    };
    let first = blocked.first().map_or(0, |process| process.pid);
    let disk =
        format!("Find the disk or mount for which they wait: `dmesg`; `cat /proc/{first}/stack`");
    let next = what_blocks(&places, disk);
    let mut found = BLOCKED_TASKS.found(summary, next);
    let lines = blocked.iter().map(|process| {
        let why = blocked_evidence(std::slice::from_ref(&process.at));
        format!("{} (pid {}): {why}", process.name, process.pid)
    });
    found.evidence = lines.collect();
    shorten(&mut found.evidence);
    Some(found)
}

/// The stalls, if some or all tasks waited for at least these shares of the time.
fn exceeds(stalls: Option<&Stalls>, some: f64, full: f64) -> Option<&Stalls> {
    stalls.filter(|s| s.some.share >= some || s.full.share >= full)
}

fn summary(resource: &str, stalls: &Stalls) -> String {
    format!(
        "tasks waited for {resource} {:.0} % of the time",
        stalls.some.share * 100.0
    )
}

fn figures(stalls: &Stalls) -> String {
    let percent = |share: f64| share * 100.0;
    format!(
        "some tasks waited {:.0} % of the examination, all tasks {:.0} %; in the last 10 s {:.0} % and {:.0} %",
        percent(stalls.some.share),
        percent(stalls.full.share),
        percent(stalls.some.avg10),
        percent(stalls.full.avg10),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::host::daemon::Daemon;
    use crate::picture::host::fake::{FakeHost, codes};

    fn stalls(some: f64, full: f64) -> Option<Stalls> {
        let stall = |share| Stall {
            avg10: share,
            share,
        };
        Some(Stalls {
            some: stall(some),
            full: stall(full),
        })
    }

    #[test]
    fn pressure_is_a_warning_only_beside_a_slow_call() {
        let host = |change: fn(&mut Host)| {
            let mut host = Host::default();
            change(&mut host);
            host
        };
        let fine = Calls::default();
        let slow = Calls {
            slow: true,
            ..Calls::default()
        };
        for (host, code) in [
            (
                host(|h| h.pressure.io = stalls(0.2, 0.0)),
                Some("io_pressure"),
            ),
            (
                host(|h| h.pressure.io = stalls(0.15, 0.1)),
                Some("io_pressure"),
            ),
            (host(|h| h.pressure.io = stalls(0.15, 0.05)), None),
            (
                host(|h| h.pressure.memory = stalls(0.1, 0.0)),
                Some("memory_pressure"),
            ),
            (
                host(|h| h.pressure.cpu = stalls(0.6, 0.0)),
                Some("cpu_pressure"),
            ),
            (host(|h| h.pressure.cpu = stalls(0.4, 0.0)), None),
            (
                host(|h| h.blocked.push(BlockedProcess::default())),
                Some("blocked_tasks"),
            ),
            (Host::default(), None),
        ] {
            for (calls, severity) in [(&fine, Severity::Info), (&slow, Severity::Warning)] {
                let expected: Vec<_> = code.iter().map(|code| (*code, severity)).collect();
                assert_eq!(codes(&check(&host, calls, false)), expected, "{host:?}");
            }
        }
    }

    #[test]
    fn cpu_pressure_is_a_warning_only_if_the_runtime_waits_too() {
        let slow = Calls {
            slow: true,
            ..Calls::default()
        };
        for (waits, explained, severity, explains) in [
            (Some(0.05), false, Severity::Info, false),
            (Some(0.15), false, Severity::Warning, true),
            (Some(0.15), true, Severity::Warning, false),
            (None, false, Severity::Warning, true),
        ] {
            let mut host = Host {
                daemon: Some(Daemon {
                    waiting_for_cpu: waits,
                    ..Daemon::default()
                }),
                ..Host::default()
            };
            host.pressure.cpu = stalls(0.9, 0.0);
            let findings = check(&host, &slow, explained);
            assert_eq!(codes(&findings), [(CPU, severity)], "{waits:?}");
            assert_eq!(findings[0].explains.is_empty(), !explains, "{waits:?}");
        }
    }

    #[test]
    fn share_follows_from_the_counters() {
        let host = FakeHost::new();
        let write = |total: u64| {
            let line =
                |kind: &str| format!("{kind} avg10=12.50 avg60=1.00 avg300=0.00 total={total}\n");
            host.write("proc/pressure/io", &(line("some") + &line("full")));
            host.write("proc/pressure/cpu", &line("some"));
        };
        write(1_000_000);
        let pressure = assess(&host.samples(None, |_| write(2_000_000)));
        let stall = Stall {
            avg10: 0.125,
            share: 0.25,
        };
        let none = Stall::default();
        assert_eq!(
            pressure.io,
            Some(Stalls {
                some: stall.clone(),
                full: stall.clone()
            })
        );
        assert_eq!(
            pressure.cpu,
            Some(Stalls {
                some: stall,
                full: none
            })
        );
        assert_eq!(pressure.memory, None);
    }

    #[test]
    fn process_that_ran_in_between_is_not_blocked() {
        let host = FakeHost::new();
        host.process(20, "stuck", 'D', 1);
        host.process(21, "busy", 'D', 1);
        host.process(22, "new", 'S', 1);
        host.process(23, "own", 'D', std::process::id());
        host.write("proc/20/wchan", "nfs_wait");
        let ran = "voluntary_ctxt_switches:\t9\nnonvoluntary_ctxt_switches:\t0\n";
        let samples = host.samples(None, |host| {
            host.write("proc/21/status", ran);
            host.process(22, "new", 'D', 1);
        });
        let blocked = blocked(&samples);
        let stuck = BlockedProcess {
            pid: 20,
            name: "stuck".to_owned(),
            at: "nfs_wait".to_owned(),
        };
        assert_eq!(blocked, [stuck]);
    }
}
