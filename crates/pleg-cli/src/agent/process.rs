//! Metrics about this process, by the names that all Prometheus clients use, and which build it is.

use std::fs;
use std::io;
use std::time::Duration;

use metrics::{describe_counter, describe_gauge, gauge};
use nix::sys::resource::{Resource, getrlimit};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};

const BUILD: &str = "pleg_build_info";
const CPU: &str = "process_cpu_seconds_total";
const CPU_HELP: &str = "CPU time of this process, user and system.";
const RESIDENT: &str = "process_resident_memory_bytes";
const VIRTUAL: &str = "process_virtual_memory_bytes";
const OPEN_FILES: &str = "process_open_fds";
const MOST_FILES: &str = "process_max_fds";
const THREADS: &str = "process_threads";
const STARTED: &str = "process_start_time_seconds";

/// Registers the descriptions.
pub(super) fn describe() {
    describe_gauge!(BUILD, "1 for the `version` of pleg.");
    describe_counter!(CPU, CPU_HELP);
    describe_gauge!(RESIDENT, "Memory of this process that is in RAM.");
    describe_gauge!(VIRTUAL, "Virtual memory of this process.");
    describe_gauge!(OPEN_FILES, "Open file descriptors.");
    describe_gauge!(MOST_FILES, "The most file descriptors that may be open.");
    describe_gauge!(THREADS, "Threads of this process.");
    describe_gauge!(STARTED, "Unix time of the start of this process.");
}

/// Writes the present values. What cannot be read is left out.
pub(super) fn show() {
    gauge!(BUILD, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    if let Ok((soft, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
        gauge!(MOST_FILES).set(soft as f64);
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // One of them reads the directory.
        gauge!(OPEN_FILES).set(open.count().saturating_sub(1) as f64);
    }
    if let Some(stat) = Stat::read() {
        gauge!(RESIDENT).set(stat.resident);
        gauge!(VIRTUAL).set(stat.memory);
        gauge!(THREADS).set(stat.threads);
        if let Some(started) = stat.started {
            gauge!(STARTED).set(started);
        }
    }
}

/// The CPU time, as Prometheus reads it. A recorder counts in whole numbers only.
pub(super) fn cpu() -> String {
    let used = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    used.map_or_else(
        |_| String::new(),
        |used| {
            let seconds = Duration::from(used).as_secs_f64();
            format!("# HELP {CPU} {CPU_HELP}\n# TYPE {CPU} counter\n{CPU} {seconds}\n\n")
        },
    )
}

/// `/proc/self/stat`, see `proc_pid_stat(5)`.
#[derive(Debug, PartialEq)]
struct Stat {
    threads: f64,
    /// Unix time.
    started: Option<f64>,
    memory: f64,
    resident: f64,
}

impl Stat {
    fn read() -> Option<Self> {
        let read = || {
            io::Result::Ok((
                fs::read_to_string("/proc/self/stat")?,
                fs::read_to_string("/proc/stat")?,
            ))
        };
        let (stat, host) = read().ok()?;
        let value = |name| sysconf(name).ok().flatten().map(|value| value as f64);
        let (ticks, page) = (value(SysconfVar::CLK_TCK)?, value(SysconfVar::PAGE_SIZE)?);
        Self::parse(&stat, &host, ticks, page)
    }

    /// `ticks` a second, and bytes of a `page`.
    fn parse(stat: &str, host: &str, ticks: f64, page: f64) -> Option<Self> {
        // The second field is the name, in parentheses. It may contain any character. The field after it is
        // the third one.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let boot = host.lines().find_map(|line| line.strip_prefix("btime "));
        let boot = boot.and_then(|boot| boot.trim().parse::<f64>().ok());
        Some(Self {
            threads: field(20)?,
            started: boot
                .zip(field(22))
                .map(|(boot, after)| boot + after / ticks),
            memory: field(23)?,
            resident: field(24)? * page,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_although_the_name_has_spaces() {
        let stat = "7 (a) 1 (b) S 1 7 7 0 -1 4194304 1 0 0 0 5 6 0 0 20 0 3 0 250 4096000 10 0";
        let host = "cpu  1 2\nbtime 1000\nprocesses 5\n";
        let expected = Stat {
            threads: 3.0,
            started: Some(1002.5),
            memory: 4_096_000.0,
            resident: 40_960.0,
        };
        assert_eq!(Stat::parse(stat, host, 100.0, 4096.0), Some(expected));
        assert_eq!(Stat::parse("7 (a) S", host, 100.0, 4096.0), None);
        assert!(Stat::read().is_some_and(|stat| stat.resident > 0.0));
    }
}
