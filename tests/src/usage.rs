//! The resource usage of a process, from /proc.

use std::time::Duration;

use anyhow::Context as _;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

/// The number in the line of `/proc/PID/status` that begins with `line`. For `VmRSS:` and `VmHWM:`, the unit is KiB.
pub fn status(pid: u32, line: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let value = status.lines().find_map(|l| l.strip_prefix(line));
    let number = value.and_then(|v| v.split_whitespace().next());
    Ok(number.with_context(|| format!("no {line}"))?.parse()?)
}

/// The state of a process, as in `ps`: R, S, D, T, Z or X. `None` if there is no such process.
pub fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field of the line is the program's name in parentheses. The name may contain any character.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.trim_start().chars().next()
}

/// The CPU time of all threads of a process, including ended ones.
pub fn cpu(pid: u32) -> anyhow::Result<Duration> {
    // For the id 0, clock_getcpuclockid would return the clock of the calling process.
    anyhow::ensure!(pid > 0, "the process has no id");
    let clock = clock_getcpuclockid(Pid::from_raw(pid.try_into()?));
    let time = clock.and_then(clock_gettime);
    Ok(time
        .with_context(|| format!("cannot read the CPU time of process {pid}"))?
        .into())
}
